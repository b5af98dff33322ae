// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answers of `turbolane advise` from many machines in one report.
//!
//! **Problem.** Of a thousand machines, a few lose clock to wide code. Their administrator wants
//! to know which, what is at stake, and what to do first.
//!
//! **Idea.** Machines are ordered by what is known about them: first where a gain was predicted,
//! the largest first; then where it is not known, the most clock at stake first; last where there
//! is nothing to win. Each has one next step. Machines with the same CPU are one row of a table,
//! services of the same name on several machines another.
//!
//! **Limits.** An advice does not name its machine, so the file does. Gains are percentages of one
//! machine's work and are not added up. What machines report is untrusted: control characters,
//! which a terminal would obey, are replaced.

mod html;
mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::SCHEMA;
use crate::advise::{Advice, LevelClock, Service, Worth};

/// The advice of one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Machine {
    /// Its name: the file's.
    pub name: String,
    /// Its CPU.
    pub cpu: String,
    /// Whether keeping wide code apart is worth it.
    pub worth: Worth,
    /// Why.
    pub why: String,
    /// Gain that was predicted for the sampled load.
    pub gain_pct: Option<f64>,
    /// Clock of all cores without wide code.
    pub clock_khz: Option<u32>,
    /// How much of it the worst level costs.
    pub stake_khz: Option<u32>,
    /// What was sampled, if a load was.
    pub sampled: Option<String>,
    /// Services that map wide code; unknown where none were looked for.
    pub services: Option<u32>,
    /// What to do next; empty if there is nothing to do.
    pub next: String,
}

/// Machines with the same CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Model {
    /// Its name.
    pub cpu: String,
    /// Machines that have it.
    pub machines: u32,
    /// Those where it is worth it.
    pub yes: u32,
    /// Those where that is not known.
    pub unknown: u32,
    /// Clock of all cores without wide code; the highest of them, since calibrations differ.
    pub clock_khz: Option<u32>,
    /// The most that the worst level costs.
    pub stake_khz: Option<u32>,
}

/// A service on all machines together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FleetService {
    /// Unit, or program.
    pub name: String,
    /// Highest level that the code which it maps can hold the clock at.
    pub sustained_level: u8,
    /// CPU time that its processes have used.
    pub cpu_time_ns: u64,
    /// Machines on which it runs.
    pub machines: Vec<String>,
}

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fleet {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// The machines, in the order in which to look at them.
    pub machines: Vec<Machine>,
    /// Their CPUs, the most frequent first.
    pub models: Vec<Model>,
    /// Their services with wide code, the highest level first.
    pub services: Vec<FleetService>,
}

impl Fleet {
    /// The report on machines, each with its name.
    pub fn new(advices: &[(String, Advice)]) -> Self {
        let mut machines: Vec<Machine> =
            advices.iter().map(|(name, advice)| Machine::of(name, advice)).collect();
        machines.sort_by(|a, b| {
            let gain = |machine: &Machine| machine.gain_pct.unwrap_or(0.0);
            rank(a.worth)
                .cmp(&rank(b.worth))
                .then(gain(b).total_cmp(&gain(a)))
                .then(b.stake_khz.cmp(&a.stake_khz))
                .then_with(|| a.name.cmp(&b.name))
        });
        let models = models(&machines);
        Fleet { schema: SCHEMA, machines, models, services: services(advices) }
    }

    /// Machines with this verdict.
    fn count(&self, worth: Worth) -> usize {
        self.machines.iter().filter(|machine| machine.worth == worth).count()
    }
}

/// Who is looked at first.
fn rank(worth: Worth) -> u8 {
    match worth {
        Worth::Yes => 0,
        Worth::Unknown => 1,
        Worth::No => 2,
    }
}

impl Machine {
    fn of(name: &str, advice: &Advice) -> Self {
        let (clock_khz, stake_khz) = stake(&advice.cpu.clocks).unzip();
        Machine {
            name: plain(name),
            cpu: plain(&advice.cpu.name),
            worth: advice.verdict.worth,
            why: plain(&advice.verdict.why),
            gain_pct: advice.prediction.as_ref().map(|prediction| prediction.gain_pct),
            clock_khz,
            stake_khz,
            sampled: advice.sampled.as_deref().map(plain),
            services: advice.services.as_ref().map(|services| services.len() as u32),
            next: plain(&next(advice)),
        }
    }
}

/// The clock without wide code, and what the slowest level takes from it.
fn stake(clocks: &[LevelClock]) -> Option<(u32, u32)> {
    let scalar = clocks.iter().find(|clock| clock.license_level == 0)?.clock_khz;
    let slowest = clocks.iter().map(|clock| clock.clock_khz).min()?;
    Some((scalar, scalar - slowest))
}

/// The next step: the command that was found to help or decides whether it does, else what is
/// missing for it, else what looks for one.
fn next(advice: &Advice) -> String {
    let verdict = &advice.verdict;
    match (verdict.worth, &advice.run, &advice.prove) {
        (Worth::No, ..) => return String::new(),
        (Worth::Yes, Some(run), _) => return run.clone(),
        (Worth::Unknown, _, Some(prove)) => return prove.clone(),
        _ if !advice.run_note.is_empty() => return advice.run_note.clone(),
        _ => {}
    }
    let busiest = advice.services.iter().flatten().max_by_key(|s| (level(s), s.cpu_time_ns));
    match busiest {
        Some(service) if !advice.cpu.clocks.is_empty() && service.name.ends_with(".service") => {
            format!("sudo turbolane advise --unit {}", service.name)
        }
        _ => verdict.next.clone(),
    }
}

fn level(service: &Service) -> u8 {
    service.objects.iter().map(|object| object.sustained_level).max().unwrap_or(0)
}

fn models(machines: &[Machine]) -> Vec<Model> {
    let mut by_cpu: BTreeMap<&str, Model> = BTreeMap::new();
    for machine in machines {
        let model = by_cpu.entry(&machine.cpu).or_insert_with(|| Model {
            cpu: machine.cpu.clone(),
            machines: 0,
            yes: 0,
            unknown: 0,
            clock_khz: None,
            stake_khz: None,
        });
        model.machines += 1;
        model.yes += u32::from(machine.worth == Worth::Yes);
        model.unknown += u32::from(machine.worth == Worth::Unknown);
        model.clock_khz = model.clock_khz.max(machine.clock_khz);
        model.stake_khz = model.stake_khz.max(machine.stake_khz);
    }
    let mut models: Vec<Model> = by_cpu.into_values().collect();
    models.sort_by_key(|model| std::cmp::Reverse(model.machines));
    models
}

fn services(advices: &[(String, Advice)]) -> Vec<FleetService> {
    let mut by_name: BTreeMap<String, FleetService> = BTreeMap::new();
    for (machine, advice) in advices {
        for service in advice.services.iter().flatten() {
            let name = plain(&service.name);
            let all = by_name.entry(name.clone()).or_insert(FleetService {
                name,
                sustained_level: 0,
                cpu_time_ns: 0,
                machines: Vec::new(),
            });
            all.sustained_level = all.sustained_level.max(level(service));
            all.cpu_time_ns = all.cpu_time_ns.saturating_add(service.cpu_time_ns);
            all.machines.push(plain(machine));
        }
    }
    let mut services: Vec<FleetService> = by_name.into_values().collect();
    services
        .sort_by_key(|s| std::cmp::Reverse((s.sustained_level, s.machines.len(), s.cpu_time_ns)));
    services
}

/// Text that cannot command a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl Advice {
    /// An answer that `turbolane advise --json` has printed; else what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        /// All that other documents have too.
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
        }
        let head: Head = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if head.schema != SCHEMA {
            return Err(format!("its schema is {}, this program knows {SCHEMA}", head.schema));
        }
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::advise::{Cpu, Object, Prediction, Verdict};

    fn advice(cpu: &str, clocks: &[u32], worth: Worth) -> Advice {
        let clock = |(level, mhz): (usize, &u32)| LevelClock {
            license_level: level as u8,
            clock_khz: mhz * 1000,
        };
        let cpu = Cpu {
            name: cpu.into(),
            basis: Some("table".into()),
            is_other: false,
            clocks: clocks.iter().enumerate().map(clock).collect(),
            held_ns: None,
            worst_drop_pct: None,
        };
        Advice::new(cpu, Verdict::new(worth, "since it is so", "look closer"))
    }

    fn predicted(gain_pct: f64) -> Advice {
        let prediction = Prediction {
            wide_cores: 2,
            figure: "throughput".into(),
            gain_pct,
            least_pct: gain_pct,
            most_pct: gain_pct,
            reduced_least_pct: 1.0,
            reduced_most_pct: 1.0,
            runs: 1,
            sections_ns: vec![],
            sections_by: String::new(),
            narrower: None,
        };
        let sampled = Some("nginx.service, 30.0s".to_string());
        let run = Some("sudo turbolane enable --wide-cpus 2".into());
        let prediction = Some(prediction);
        let known = advice("Xeon Gold 6130", &[2800, 2400, 1900], Worth::Yes);
        Advice { prediction, sampled, run, ..known }
    }

    fn service(name: &str, sustained_level: u8, cpu_time_ns: u64) -> Service {
        let object = Object { file: "/l.so".into(), sustained_level, functions: 1 };
        Service { name: name.into(), processes: 1, cpu_time_ns, objects: vec![object] }
    }

    /// Machines of each kind, in no order.
    pub(in crate::fleet) fn sample() -> Fleet {
        let mut looked_at = advice("Xeon Gold 6130", &[2800, 2400, 1900], Worth::Unknown);
        looked_at.services =
            Some(vec![service("ssh.service", 1, 9), service("nginx.service", 2, 5)]);
        let mut hidden = advice("Some \u{1b}[31mCPU", &[], Worth::Unknown);
        hidden.services = Some(vec![service("nginx.service", 2, 1_500_000_000)]);
        Fleet::new(&[
            ("genoa".into(), advice("AMD EPYC 9654", &[], Worth::No)),
            ("hidden".into(), hidden),
            ("small".into(), predicted(1.25)),
            ("looked-at".into(), looked_at),
            ("large".into(), predicted(7.6)),
        ])
    }

    /// Predicted gains come first, the largest of them before all; then what is at stake; then the
    /// rest.
    #[test]
    fn what_to_do_first_comes_first() {
        let fleet = sample();
        let order: Vec<&str> = fleet.machines.iter().map(|machine| &*machine.name).collect();
        assert_eq!(order, ["large", "small", "looked-at", "hidden", "genoa"]);
        let next: Vec<&str> = fleet.machines.iter().map(|machine| &*machine.next).collect();
        let run = "sudo turbolane enable --wide-cpus 2";
        // Where the clocks are not known, sampling would not decide.
        assert_eq!(
            next,
            [run, run, "sudo turbolane advise --unit nginx.service", "look closer", ""]
        );
        assert_eq!(fleet.machines[0].stake_khz, Some(900_000));
        assert_eq!(fleet.machines[4].stake_khz, None);
    }

    /// A gain that is not certain has to be proved; one that nothing can bring says what is
    /// missing.
    #[test]
    fn the_next_step_depends_on_what_is_known() {
        let prove = Some("sudo turbolane verify".to_string());
        let mut uncertain = Advice { prove, ..predicted(3.0) };
        assert_eq!(next(&uncertain), "sudo turbolane enable --wide-cpus 2");
        uncertain.verdict.worth = Worth::Unknown;
        assert_eq!(next(&uncertain), "sudo turbolane verify");
        let blocked = Advice { run: None, run_note: "no sched_ext".into(), ..predicted(3.0) };
        assert_eq!(next(&blocked), "no sched_ext");
    }

    /// Machines with one CPU are one model; a service is one row with all its machines.
    #[test]
    fn models_and_services_are_joined() {
        let fleet = sample();
        let model = &fleet.models[0];
        assert_eq!((model.cpu.as_str(), model.machines), ("Xeon Gold 6130", 3));
        assert_eq!((model.yes, model.unknown, model.stake_khz), (2, 1, Some(900_000)));
        let [nginx, ssh] = fleet.services.as_slice() else { panic!("{:?}", fleet.services) };
        assert_eq!((nginx.name.as_str(), nginx.cpu_time_ns), ("nginx.service", 1_500_000_005));
        assert_eq!(nginx.machines, ["hidden", "looked-at"]);
        assert_eq!((ssh.name.as_str(), ssh.sustained_level), ("ssh.service", 1));
    }

    /// What a machine reports cannot command the terminal of who reads it.
    #[test]
    fn control_characters_are_replaced() {
        let cpu = &sample().machines[3].cpu;
        assert_eq!(cpu, "Some ?[31mCPU");
    }

    /// Only an advice is read, and of this schema.
    #[test]
    fn other_documents_fail() {
        let line = crate::json_line(&predicted(1.0));
        assert_eq!(Advice::parse(&line).unwrap(), predicted(1.0));
        let newer = line.replace(r#""schema":1"#, r#""schema":2"#);
        assert_eq!(Advice::parse(&newer).unwrap_err(), "its schema is 2, this program knows 1");
        assert!(
            Advice::parse(r#"{"schema":1,"state":"running"}"#).unwrap_err().contains("verdict")
        );
        for text in ["", "[]", "{", "error: cannot", r#"{"a":1}"#] {
            assert!(Advice::parse(text).is_err(), "{text}");
        }
    }
}
