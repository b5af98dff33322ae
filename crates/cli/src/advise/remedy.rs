// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command that keeps the found wide code apart, with what this machine has today.
//!
//! Best first: marks of the functions that were sampled; of a function that the kernel would have
//! to single-step, a mark of the caller that most of its sampled call chains have, if that can be
//! probed; else the trap module, if it is installed; else the marks all the same, single-stepped.
//!
//! Limits: callers are known from frame pointers. A file of another mount namespace may have a path
//! that is another file's here; its functions are not marked, since the build ids differ.

use std::collections::BTreeMap;

use hw::Facts;
use report::sample::Offender;
use sched::config::{BuildId, Components, Mark, MarkSite};
use sched::marks::{Emulation, MarkError, resolve};
use sched::obstacles;

use crate::sample::{Observed, Stacks};
use crate::target::Target;

/// Marks on a command line at most.
const MARKS_MAX: usize = 8;
/// A caller must be in this share of the call chains.
const CALLER_FRAC: f64 = 0.8;
/// Marks must reach this share of the wide samples, else the trap is better.
const ENOUGH_FRAC: f64 = 0.9;

/// Call chains of samples.
pub(super) struct Chains<'a> {
    pub observed: &'a Observed,
    pub stacks: &'a Stacks,
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Remedy {
    /// Options of `turbolane run`, without the number of wide CPUs.
    pub options: Vec<String>,
    /// The same for the simulator: mark or trap.
    pub detect: &'static str,
    /// What is to be known about it.
    pub note: String,
    /// Nothing can run here.
    pub is_blocked: bool,
}

/// The remedy for these functions.
pub(super) fn remedy(
    offenders: &[&Offender],
    chains: Option<&Chains<'_>>,
    facts: &Facts,
) -> Remedy {
    let blocked = obstacles::of_scx(&facts.kernel).map(|obstacle| obstacle.problem);
    let mut remedy = detection(offenders, chains, facts);
    if let Some(problem) = blocked {
        remedy.is_blocked = true;
        remedy.note = format!("not on this kernel: {}; {}", problem.why, problem.next);
    }
    remedy
}

fn detection(offenders: &[&Offender], chains: Option<&Chains<'_>>, facts: &Facts) -> Remedy {
    let emulation = Emulation::of(&facts.kernel.release);
    let all: u64 = offenders.iter().map(|offender| offender.samples).sum();
    let (mut marks, mut refused) = (Vec::new(), Vec::new());
    let (mut marked, mut climbed) = (0, 0);
    for offender in offenders {
        let found = match function_mark(offender, chains, emulation) {
            Ok(mark) => Some(mark),
            Err(error) => {
                let caller = chains.and_then(|chains| caller_mark(offender, chains, emulation));
                climbed += usize::from(caller.is_some());
                if caller.is_none() {
                    refused.push((*offender, error));
                }
                caller
            }
        };
        let Some(mark) = found.map(|mark| mark.to_string()) else { continue };
        if marks.contains(&mark) || marks.len() < MARKS_MAX {
            marked += offender.samples;
            if !marks.contains(&mark) {
                marks.push(mark);
            }
        }
    }
    if marked as f64 >= ENOUGH_FRAC * all as f64 {
        return by_marks(&marks, marked, all, climbed);
    }
    let trap = trap(offenders);
    let why = refused.first().map_or("too many functions".into(), |(_, error)| error.to_string());
    match obstacles::of_trap(trap, facts) {
        None => by_trap(trap, &why),
        Some(problem) => single_stepped(offenders, chains, emulation, &problem.why),
    }
}

fn by_marks(marks: &[String], marked: u64, all: u64, climbed: usize) -> Remedy {
    let share = format!(
        "{:.0} % of the wide samples are reached",
        100.0 * marked as f64 / all.max(1) as f64
    );
    let note = match climbed {
        0 => share,
        _ => format!(
            "{share}; {climbed} functions are marked through a caller, whose scalar code moves too"
        ),
    };
    let options = marks.iter().flat_map(|mark| ["--mark".to_owned(), quoted(mark)]).collect();
    Remedy { options, detect: "mark", note, is_blocked: false }
}

fn by_trap(trap: Components, why: &str) -> Remedy {
    let mut options = vec!["--trap".to_owned(), trap.to_string()];
    if trap == Components::Avx {
        options.extend(["--trap-level".to_owned(), "1".to_owned()]);
    }
    let note = format!("by the trap module, since marks do not reach it: {why}");
    Remedy {
        options,
        detect: if trap == Components::Avx { "trap-avx" } else { "trap" },
        note,
        is_blocked: false,
    }
}

/// Marks that the kernel single-steps: they work on every kernel, and cost.
fn single_stepped(
    offenders: &[&Offender],
    chains: Option<&Chains<'_>>,
    emulation: Emulation,
    no_trap: &str,
) -> Remedy {
    let marks: Vec<String> = offenders
        .iter()
        .filter_map(|offender| offset_mark(offender, chains))
        .filter(|mark| resolve(mark, emulation, true).is_ok())
        .map(|mark| mark.to_string())
        .take(MARKS_MAX)
        .collect();
    let mut options: Vec<String> =
        marks.iter().flat_map(|mark| ["--mark".to_owned(), quoted(mark)]).collect();
    options.push("--force-single-step".into());
    let note = match marks.is_empty() {
        true => {
            format!(
                "neither marks nor traps can find this code: its files are not here, or show no functions, and {no_trap}"
            )
        }
        false => format!("single-stepped, about 4.6 us per call; better by --trap, but {no_trap}"),
    };
    Remedy { options, detect: "mark", note, is_blocked: marks.is_empty() }
}

/// What must be withheld so that such code traps.
fn trap(offenders: &[&Offender]) -> Components {
    match offenders.iter().map(|offender| offender.sustained_level).max() {
        Some(3) => Components::Amx,
        Some(2) => Components::Avx512,
        _ => Components::Avx,
    }
}

/// The mark by offset, for the build that was sampled, if that is known: the file of that path may
/// be another one, of another container or version.
fn offset_mark(offender: &Offender, chains: Option<&Chains<'_>>) -> Option<Mark> {
    let site = MarkSite::Offset(offender.file_offset?);
    let build_id = build_of(&offender.file, chains);
    Some(Mark { build_id, ..mark(&offender.file, site, offender.sustained_level) })
}

fn build_of(file: &str, chains: Option<&Chains<'_>>) -> Option<BuildId> {
    BuildId::short(chains?.observed.build_id(file)?)
}

fn mark(file: &str, site: MarkSite, level: u8) -> Mark {
    Mark { file: file.into(), site, level: level.into(), filter: None, build_id: None }
}

/// The mark of a function: by its name, if that leads to the same place.
fn function_mark(
    offender: &Offender,
    chains: Option<&Chains<'_>>,
    emulation: Emulation,
) -> Result<Mark, MarkError> {
    let Some(by_offset) = offset_mark(offender, chains) else {
        let by_name = MarkSite::Symbol(offender.function.clone());
        let by_name = mark(&offender.file, by_name, offender.sustained_level);
        return resolve(&by_name, emulation, false).map(|_| by_name);
    };
    let found = resolve(&by_offset, emulation, false)?;
    let named = found
        .symbol
        .and_then(|name| MarkSite::of_name(&name))
        .map(|site| mark(&offender.file, site, offender.sustained_level));
    let is_same = |named: &Mark| {
        resolve(named, emulation, false).is_ok_and(|same| same.entry_offset == found.entry_offset)
    };
    Ok(named.filter(is_same).unwrap_or(by_offset))
}

/// The mark of the innermost caller that can be probed and is in most of the call chains.
fn caller_mark(offender: &Offender, chains: &Chains<'_>, emulation: Emulation) -> Option<Mark> {
    let callers = chains.observed.callers(chains.stacks, &offender.file, offender.file_offset?);
    let all: u64 = callers.iter().map(|(_, samples)| samples).sum();
    let mut by_mark: BTreeMap<String, (Mark, u64, usize)> = BTreeMap::new();
    for (chain, samples) in &callers {
        for (depth, &(file, offset)) in chain.iter().enumerate() {
            let inside = mark(file, MarkSite::Offset(offset), offender.sustained_level);
            let inside = Mark { build_id: build_of(file, Some(chains)), ..inside };
            let Some(mark) = enclosing(file, &inside, emulation) else { continue };
            let entry = by_mark.entry(mark.to_string()).or_insert((mark, 0, depth));
            entry.1 += samples;
            entry.2 = entry.2.min(depth);
        }
    }
    let enough = by_mark.into_values().filter(|found| found.1 as f64 >= CALLER_FRAC * all as f64);
    enough.min_by_key(|found| found.2).map(|found| found.0)
}

/// The mark of the function around a place, if it has a name and can be probed.
fn enclosing(file: &str, place: &Mark, emulation: Emulation) -> Option<Mark> {
    // A place that is none in a symbol may be an entry, so only this error leads on.
    let inside = resolve(place, emulation, false);
    let Err(MarkError::NotAnEntry { function, .. }) = inside else { return None };
    let found = mark(file, MarkSite::of_name(&function)?, place.level as u8);
    resolve(&found, emulation, false).is_ok().then_some(found)
}

/// For a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@=%,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A load that a user has to supply.
const LOAD: &str = "LOAD (a command that loads it, and prints how fast it was)";

/// The command lines of a remedy: what to run, what proves it, and how it is undone.
///
/// A load that already ran, on a machine whose services systemd manages, goes on after this
/// terminal: its lane is a service. Where the kernel counts cycles, it proves the gain itself.
pub(super) fn commands(
    remedy: &Remedy,
    wide_cores: u32,
    target: Option<&Target>,
    has_systemd: bool,
    counts: bool,
) -> [String; 3] {
    let options = format!("--wide-cpus {wide_cores} {}", remedy.options.join(" "));
    let lines = |run: String, verify: String, undo: &str| {
        [format!("sudo turbolane {run}"), format!("sudo turbolane verify {verify}"), undo.into()]
    };
    // What runs anyway is compared with its lane paused; a command brings its lane along.
    let load = match target {
        Some(Target::Command(words)) => {
            let words: Vec<String> =
                words.iter().map(|word| quoted(&word.to_string_lossy())).collect();
            let words = words.join(" ");
            let verify = format!("--run {} -- {words}", quoted(&options));
            let undo = "nothing is left when the command ends";
            return lines(format!("run {options} -- {words}"), verify, undo);
        }
        Some(Target::Unit(unit)) if counts => format!("--unit {}", quoted(unit)),
        Some(Target::Group(path)) if counts => format!("--cgroup {}", quoted(path)),
        _ => format!("-- {LOAD}"),
    };
    let verify = format!("--live {load}");
    if target.is_some() && has_systemd {
        return lines(format!("enable {options}"), verify, "sudo turbolane disable");
    }
    lines(format!("run {options}"), verify, "Ctrl-C: nothing is left")
}

/// What switches wide code off.
pub(super) struct SwitchOff {
    /// A command, if there is one.
    pub run: Option<String>,
    /// What is to be known about it.
    pub note: String,
    /// A command that compares.
    pub prove: Option<String>,
    /// How it is undone.
    pub undo: String,
}

/// How the wide code of a load is switched off by these environment variables. They count when a
/// program starts, and nothing here restarts one.
pub(super) fn switch_off(variables: &[String], target: Option<&Target>) -> SwitchOff {
    let words: Vec<String> = variables.iter().map(|variable| quoted(variable)).collect();
    let words = words.join(" ");
    match target {
        Some(Target::Command(command)) => {
            let command: Vec<String> =
                command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
            let (plain, run) = (command.join(" "), format!("env {words} {}", command.join(" ")));
            let prove = format!("turbolane verify --a {} --b {}", quoted(&plain), quoted(&run));
            SwitchOff {
                run: Some(run),
                note: "the variable switches the code off".into(),
                prove: Some(prove),
                undo: "nothing is left when the command ends".into(),
            }
        }
        // a scope or a slice starts no program
        Some(Target::Unit(unit)) if unit.ends_with(".service") => {
            let file = format!("/etc/systemd/system/{unit}.d/turbolane-narrow.conf");
            let lines: String =
                variables.iter().map(|set| format!("Environment=\"{set}\"\\n")).collect();
            let (printed, file) = (quoted(&format!("[Service]\\n{lines}")), quoted(&file));
            SwitchOff {
                run: Some(format!("printf {printed} | sudo install -D -m 644 /dev/stdin {file}")),
                note: format!(
                    "it replaces what the unit sets of the same name. Then, when {unit} may restart: \
                     sudo systemctl daemon-reload && sudo systemctl restart {}. Measure the load \
                     before and after",
                    quoted(unit)
                ),
                prove: None,
                undo: format!("sudo rm {file}, then reload and restart likewise"),
            }
        }
        _ => SwitchOff {
            run: None,
            note: format!(
                "start the programs of the lines FOUND with {words} in their environment; measure \
                 the load before and after"
            ),
            prove: None,
            undo: "start them without it".into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hw::Recorded;

    use super::*;

    fn facts() -> Facts {
        let machines = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/machines");
        Facts::read(&Recorded::open(&Path::new(machines).join("skylake-sp")).unwrap()).unwrap()
    }

    fn offender(file: &str, sustained_level: u8) -> Offender {
        Offender {
            function: "f".into(),
            file: file.into(),
            file_offset: Some(0x1000),
            process: "p".into(),
            license_level: 2,
            sustained_level,
            samples: 10,
        }
    }

    /// Without a file there is no mark, and without the module no trap: nothing is proposed that
    /// would be refused.
    #[test]
    fn what_cannot_be_marked_is_not_proposed() {
        let gone = offender("/no/such/file", 2);
        let found = remedy(&[&gone], None, &facts());
        assert!(found.is_blocked && !found.note.is_empty(), "{found:?}");
    }

    /// What is withheld depends on the level, and words are quoted for a shell.
    #[test]
    fn options_are_for_the_level() {
        let trap_of = |level| trap(&[&offender("/a", level), &offender("/a", 1)]);
        let all = [Components::Avx, Components::Avx512, Components::Amx];
        assert_eq!([1, 2, 3].map(trap_of), all);
        assert_eq!(quoted("/lib/a.so:f@2"), "/lib/a.so:f@2");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    /// The command that is asked about is the one that is run.
    #[test]
    fn commands_are_whole() {
        let remedy = by_trap(Components::Avx, "why");
        let target = Target::Command(["./a b", "-x"].map(Into::into).into());
        let [run, prove, _] = commands(&remedy, 2, Some(&target), true, true);
        assert_eq!(run, "sudo turbolane run --wide-cpus 2 --trap avx --trap-level 1 -- './a b' -x");
        let options = "'--wide-cpus 2 --trap avx --trap-level 1'";
        assert_eq!(prove, format!("sudo turbolane verify --run {options} -- './a b' -x"));
    }

    /// What runs already gets a service where there is systemd, with the options of the run;
    /// samples of another machine do not, and a command never does.
    #[test]
    fn services_get_a_service() {
        let remedy = by_trap(Components::Avx512, "why");
        let targets = [
            (Target::Unit("nginx.service".into()), "--unit nginx.service"),
            (Target::Pids(vec![1]), "-- LOAD"),
            (Target::Group("/a b".into()), "--cgroup '/a b'"),
        ];
        for (target, load) in targets {
            for (counts, load) in [(true, load), (false, "-- LOAD")] {
                let [_, prove, _] = commands(&remedy, 2, Some(&target), true, counts);
                let expected = format!("sudo turbolane verify --live {load}");
                assert!(prove.starts_with(&expected), "{prove}");
            }
            let [run, _, undo] = commands(&remedy, 2, Some(&target), true, true);
            assert_eq!(run, "sudo turbolane enable --wide-cpus 2 --trap avx512");
            assert_eq!(undo, "sudo turbolane disable");
            let [run, _, undo] = commands(&remedy, 2, Some(&target), false, true);
            assert_eq!(run, "sudo turbolane run --wide-cpus 2 --trap avx512");
            assert!(undo.starts_with("Ctrl-C"));
        }
        let [run, ..] = commands(&remedy, 2, None, true, true);
        assert!(run.starts_with("sudo turbolane run "));
    }

    /// A setting reaches a command by its environment, a service by a drop-in file that nothing
    /// restarts it for, and other programs by a sentence; each is a word for the shell.
    #[test]
    fn settings_are_for_the_target() {
        let set = ["OPENSSL_ia32cap=:~0xc0230000".to_owned()];
        let command = Target::Command(["./a", "-x"].map(Into::into).into());
        let found = switch_off(&set, Some(&command));
        assert_eq!(found.run.unwrap(), "env 'OPENSSL_ia32cap=:~0xc0230000' ./a -x");
        let prove =
            r"turbolane verify --a './a -x' --b 'env '\''OPENSSL_ia32cap=:~0xc0230000'\'' ./a -x'";
        assert_eq!(found.prove.unwrap(), prove);
        let found = switch_off(&set, Some(&Target::Unit("nginx.service".into())));
        let run =
            r#"printf '[Service]\nEnvironment="OPENSSL_ia32cap=:~0xc0230000"\n' | sudo install "#;
        assert!(found.run.as_ref().unwrap().starts_with(run), "{:?}", found.run);
        assert!(!found.run.unwrap().contains("restart") && found.note.contains("restart"));
        let scope = switch_off(&set, Some(&Target::Unit("docker-1.scope".into())));
        assert!(scope.run.is_none() && !scope.note.contains("systemctl"), "{}", scope.note);
        let found = switch_off(&set, Some(&Target::Pids(vec![1])));
        assert!(found.run.is_none() && found.note.contains("'OPENSSL_ia32cap="));
    }
}
