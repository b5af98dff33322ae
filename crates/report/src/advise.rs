// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer of `turbolane advise`: is keeping wide code apart worth it here, and what to do.
//!
//! Each line of the text begins with its subject and ends in what it is based on: *table* (a CPU
//! file), *measured*, *scanned*, *simulated*.

mod narrower;

use serde::{Deserialize, Serialize};

use crate::SCHEMA;
use crate::doctor::Check;
use crate::sample::ThrottleReasons;
use crate::text::{duration, wrap};
pub use narrower::{Narrower, ThanLane};

/// Whether it is worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Worth {
    /// More is gained than is uncertain.
    Yes,
    /// Nothing is gained.
    No,
    /// What is known does not decide it.
    Unknown,
}

/// The verdict with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Verdict {
    /// Whether.
    pub worth: Worth,
    /// Why.
    pub why: String,
    /// What to do next; empty if there is nothing to do.
    pub next: String,
}

/// What a licence level does to the clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LevelClock {
    /// The level.
    pub license_level: u8,
    /// Clock of a core at this level while all cores are active.
    pub clock_khz: u32,
}

/// The CPU that is judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cpu {
    /// Its name.
    pub name: String,
    /// Where its clocks come from: "table", "machine file"; `null` if they are not known.
    pub basis: Option<String>,
    /// It is another CPU than this machine's.
    pub is_other: bool,
    /// All-core clocks by level; empty if not known.
    pub clocks: Vec<LevelClock>,
    /// How long a level is held after its last instruction.
    pub held_ns: Option<u64>,
    /// How much of the clock is lost at the worst level.
    pub worst_drop_pct: Option<f64>,
}

/// A service whose processes map wide code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Service {
    /// Unit, or name of the program outside of units.
    pub name: String,
    /// Its processes that could be looked at.
    pub processes: u32,
    /// CPU time that they have used so far.
    pub cpu_time_ns: u64,
    /// Objects with wide code that they map, the highest level first.
    pub objects: Vec<Object>,
}

/// A mapped file with wide code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Object {
    /// Its path.
    pub file: String,
    /// Highest level that its code can hold the clock at.
    pub sustained_level: u8,
    /// Functions of that level.
    pub functions: u64,
}

/// What was looked through for services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LookedAt {
    /// Processes.
    pub processes: u32,
    /// Processes that this user may not look at.
    pub refused: u32,
    /// Files that were scanned.
    pub files: u32,
}

/// A function that executes wide code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Found {
    /// Its name.
    pub function: String,
    /// Its file.
    pub file: String,
    /// The program.
    pub process: String,
    /// Level that its code can hold.
    pub sustained_level: u8,
    /// Samples in it over samples of busy CPUs.
    pub busy_pct: f64,
}

/// A program slowed down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Slowed {
    /// Its name.
    pub process: String,
    /// Share of its other code right after wide code on the same core.
    pub own_pct: f64,
}

/// What the simulator expects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Prediction {
    /// Wide cores that came out best.
    pub wide_cores: u32,
    /// What changes: "throughput" of a busy machine, else "work per CPU time".
    pub figure: String,
    /// Gain: the mean of all simulations with that many wide cores.
    pub gain_pct: f64,
    /// The lowest of them.
    pub least_pct: f64,
    /// The highest of them.
    pub most_pct: f64,
    /// Share of cycles at a lowered clock under the kernel's scheduling, the lowest of all
    /// simulations.
    pub reduced_least_pct: f64,
    /// The highest of them.
    pub reduced_most_pct: f64,
    /// Simulations that it is made of.
    pub runs: u32,
    /// Lengths of a wide section that were simulated.
    pub sections_ns: Vec<u64>,
    /// How those lengths are known.
    pub sections_by: String,
    /// What would be gained with narrower code instead; `null` if that was not simulated.
    #[serde(default)]
    pub narrower: Option<Narrower>,
}

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Advice {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// Is it worth it.
    pub verdict: Verdict,
    /// The CPU.
    pub cpu: Cpu,
    /// What kernel and user can do: checks of `turbolane doctor`; empty where a load was sampled.
    pub abilities: Vec<Check>,
    /// What was sampled; `null`: nothing.
    pub sampled: Option<String>,
    /// Samples of busy CPUs.
    pub busy_samples: u64,
    /// Services with wide code, the most important first; `null`: not looked for.
    pub services: Option<Vec<Service>>,
    /// What was looked at for them.
    pub looked_at: LookedAt,
    /// Who executes wide code.
    pub found: Vec<Found>,
    /// Who is slowed down.
    pub victims: Vec<Slowed>,
    /// Share of cycles that cores spent above level 0, by counters; `null` on CPUs without.
    pub reduced_pct: Option<f64>,
    /// What limited the clock while it was sampled; `null` on CPUs without throttle reasons.
    #[serde(default)]
    pub throttle: Option<ThrottleReasons>,
    /// What would be gained.
    pub prediction: Option<Prediction>,
    /// A command that keeps the wide code apart.
    pub run: Option<String>,
    /// What is to be known about it.
    pub run_note: String,
    /// A command that proves the gain.
    pub prove: Option<String>,
    /// How it is undone.
    pub undo: Option<String>,
    /// What could not be looked at.
    pub unread: Vec<String>,
}

/// Rows of a list in text; JSON has all.
const SHOWN: usize = 5;
/// Services shown.
const SERVICES_SHOWN: usize = 10;

impl Advice {
    /// An answer that says nothing but its verdict.
    pub fn new(cpu: Cpu, verdict: Verdict) -> Self {
        Advice {
            schema: SCHEMA,
            verdict,
            cpu,
            abilities: Vec::new(),
            sampled: None,
            busy_samples: 0,
            services: None,
            looked_at: LookedAt::default(),
            found: Vec::new(),
            victims: Vec::new(),
            reduced_pct: None,
            throttle: None,
            prediction: None,
            run: None,
            run_note: String::new(),
            prove: None,
            undo: None,
            unread: Vec::new(),
        }
    }

    /// As text of at most `width` columns; commands are never broken.
    pub fn text(&self, width: usize) -> String {
        let mut text = wrap("CPU      ", &self.cpu.text(), width);
        for check in &self.abilities {
            let next = match check.next.as_str() {
                "" => String::new(),
                next => format!(" ({next})"),
            };
            let says = format!("{}: {}: {}{next}", check.title, check.status.word(), check.seen);
            text += &wrap("KERNEL   ", &says, width);
        }
        if let Some(services) = &self.services {
            text += &self.services_text(services, width);
        }
        if let Some(sampled) = &self.sampled {
            text += &wrap("SAMPLED  ", &format!("{sampled} [measured]"), width);
            text += &self.found_text(width);
        }
        if let Some(prediction) = &self.prediction {
            if self.reduced_pct.is_none() {
                text += &wrap("VICTIMS  ", &prediction.reduced(), width);
            }
            text += &wrap("PREDICT  ", &prediction.text(), width);
            if let Some(narrower) = &prediction.narrower {
                text += &wrap("         ", &narrower.text(&prediction.figure), width);
            }
        }
        let commands = [("DO       ", &self.run), ("PROVE    ", &self.prove)];
        for (label, command) in commands {
            if let Some(command) = command {
                text += &format!("{label}{command}\n");
            }
            if label.starts_with("DO") && !self.run_note.is_empty() {
                let label = if command.is_some() { "         " } else { label };
                text += &wrap(label, &self.run_note, width);
            }
        }
        if let Some(undo) = &self.undo {
            text += &wrap("UNDO     ", undo, width);
        }
        for unread in self.unread.iter().take(SHOWN) {
            text += &wrap("NOT READ ", unread, width);
        }
        text + "\n" + &self.verdict.text(width)
    }

    fn found_text(&self, width: usize) -> String {
        let mut text = String::new();
        for found in self.found.iter().take(SHOWN) {
            let says = format!(
                "{}: {:.1} % of busy CPU time in {} (level {}) of {} [measured, scanned]",
                found.process, found.busy_pct, found.function, found.sustained_level, found.file
            );
            text += &wrap("FOUND    ", &says, width);
        }
        if self.found.len() > SHOWN {
            let more = format!("and {} more functions; --json has all", self.found.len() - SHOWN);
            text += &wrap("         ", &more, width);
        }
        for victim in self.victims.iter().take(SHOWN) {
            let says = format!(
                "{}: at least {:.0} % of its other code runs within 1 ms after wide code on the same core [measured]",
                victim.process, victim.own_pct
            );
            text += &wrap("VICTIMS  ", &says, width);
        }
        if let Some(reduced_pct) = self.reduced_pct {
            let says = format!(
                "cores spent {reduced_pct:.1} % of their cycles at a lowered clock [measured: licence counters]"
            );
            text += &wrap("VICTIMS  ", &says, width);
        }
        if let Some(throttle) = &self.throttle {
            text += &wrap("VICTIMS  ", &throttle.sentence(), width);
        }
        text
    }

    fn services_text(&self, services: &[Service], width: usize) -> String {
        let LookedAt { processes, refused, files } = self.looked_at;
        let refused = match refused {
            0 => String::new(),
            refused => {
                format!("; {refused} could not be looked at (root sees all: sudo turbolane advise)")
            }
        };
        let head = format!(
            "{} with wide code, of {processes} processes with {files} files{refused} [scanned: what code can do, not what runs]",
            services.len()
        );
        let mut text = wrap("SERVICES ", &head, width);
        for service in services.iter().take(SERVICES_SHOWN) {
            let objects: Vec<String> = service
                .objects
                .iter()
                .take(SHOWN)
                .map(|o| {
                    format!(
                        "{} ({} of level {})",
                        o.file,
                        count(o.functions, "function"),
                        o.sustained_level
                    )
                })
                .collect();
            let says = format!(
                "{}, {} of CPU time: {}",
                count(service.processes.into(), "process"),
                duration(service.cpu_time_ns),
                objects.join(", ")
            );
            text += &wrap(&format!("         {}: ", service.name), &says, width);
        }
        if services.len() > SERVICES_SHOWN {
            text +=
                &format!("         and {} more; --json has all\n", services.len() - SERVICES_SHOWN);
        }
        text
    }
}

/// A number and its noun, in the plural where it must be.
fn count(number: u64, noun: &str) -> String {
    let ending = match (number, noun.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{number} {noun}{ending}")
}

impl Verdict {
    /// A verdict.
    pub fn new(worth: Worth, why: impl Into<String>, next: impl Into<String>) -> Self {
        Verdict { worth, why: why.into(), next: next.into() }
    }

    fn text(&self, width: usize) -> String {
        let word = match self.worth {
            Worth::Yes => "YES",
            Worth::No => "NO",
            Worth::Unknown => "NOT KNOWN",
        };
        let mut text = wrap("Worth it: ", &format!("{word}: {}", self.why), width);
        if !self.next.is_empty() {
            text += &wrap("next:     ", &self.next, width);
        }
        text
    }
}

impl Cpu {
    fn text(&self) -> String {
        let name =
            if self.is_other { format!("if this ran on {}", self.name) } else { self.name.clone() };
        let Some(basis) = &self.basis else {
            return format!("{name}: its clocks by level are not known");
        };
        let last = self.clocks.len().saturating_sub(1);
        let clock = |(at, clock): (usize, &LevelClock)| {
            let unit = if at == last { " MHz" } else { "" };
            match clock.license_level {
                0 => format!("{}{unit}", clock.clock_khz / 1000),
                level => format!("{}{unit} (level {level})", clock.clock_khz / 1000),
            }
        };
        let clocks: Vec<String> = self.clocks.iter().enumerate().map(clock).collect();
        let held = self.held_ns.map_or(String::new(), |ns| format!(", held {}", duration(ns)));
        let drop = self
            .worst_drop_pct
            .map_or(String::new(), |pct| format!("; at stake at most {pct:.0} % of the clock"));
        format!("{name}: all cores {}{held}{drop} [{basis}]", clocks.join(" -> "))
    }
}

impl Prediction {
    fn reduced(&self) -> String {
        let (least, most) = (self.reduced_least_pct, self.reduced_most_pct);
        format!(
            "cores spend {least:.0}..{most:.0} % of their cycles at a lowered clock [simulated]"
        )
    }

    fn text(&self) -> String {
        let sections: Vec<String> = self.sections_ns.iter().map(|ns| duration(*ns)).collect();
        let cores = if self.wide_cores == 1 { "core" } else { "cores" };
        format!(
            "{} {:+.1} % ({:+.1}..{:+.1}) with {} wide {cores}; wide sections of {} ({}) [simulated, {} runs]",
            self.figure,
            self.gain_pct,
            self.least_pct,
            self.most_pct,
            self.wide_cores,
            sections.join(", "),
            self.sections_by,
            self.runs
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice() -> Advice {
        let cpu = Cpu {
            name: "Intel Xeon Gold 6130".into(),
            basis: Some("table".into()),
            is_other: false,
            clocks: vec![
                LevelClock { license_level: 0, clock_khz: 2_800_000 },
                LevelClock { license_level: 2, clock_khz: 1_900_000 },
            ],
            held_ns: Some(670_000),
            worst_drop_pct: Some(32.1),
        };
        let mut advice = Advice::new(cpu, Verdict::new(Worth::Yes, "it gains", ""));
        advice.sampled = Some("nginx.service, 30.0s".into());
        advice.run = Some("sudo turbolane run ".to_string() + &"--mark /a:b ".repeat(20));
        advice
    }

    /// Each line begins with its subject, clocks are in order, and a command stays in one line,
    /// however long.
    #[test]
    fn commands_are_not_broken() {
        let text = advice().text(60);
        let stake = "CPU      Intel Xeon Gold 6130: all cores 2800 -> 1900 MHz";
        assert!(text.starts_with(stake), "{text}");
        let command = text.lines().find(|line| line.starts_with("DO ")).unwrap();
        assert_eq!(command.matches("--mark").count(), 20);
        assert!(text.ends_with("Worth it: YES: it gains\n"), "{text}");
    }

    /// A service is a line with its objects; numbers agree with their nouns.
    #[test]
    fn services_are_listed() {
        let object = Object { file: "/l.so".into(), sustained_level: 2, functions: 1 };
        let service = Service {
            name: "a.service".into(),
            processes: 2,
            cpu_time_ns: 1_500_000_000,
            objects: vec![object],
        };
        let text = Advice { services: Some(vec![service]), ..advice() }.text(100);
        let line = "a.service: 2 processes, 1.50s of CPU time: /l.so (1 function of level 2)";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn json_round_trips() {
        let line = crate::json_line(&advice());
        assert_eq!(serde_json::from_str::<Advice>(&line).unwrap(), advice());
    }
}
