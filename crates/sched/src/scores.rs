// SPDX-License-Identifier: MIT OR Apache-2.0
//! Power scores as a source of levels (bpf/score.bpf.h): whether a run has them.
//!
//! They cost three counters of each CPU and some time at each switch, and they are guesses: left to
//! itself a run uses them only if there is no better source.

use hw::Facts;
use hw::license::license_counters;
use report::problem::Problem;

use crate::config::{Components, Config, Scores};
use crate::error::{Error, Result};
use crate::levels;

/// Whether nothing else that the run is given shows what is wide. Hints are always possible: a task
/// that gives some is not judged by its score.
fn nothing_else_tells(config: &Config) -> bool {
    config.marks.is_empty() && config.trap == Components::None
}

/// Whether the run is to have scores on a machine of which this is known, or why it cannot. What
/// keeps the counters from being opened is seen only then.
pub fn are_fed(config: &Config, facts: &Facts) -> std::result::Result<bool, Problem> {
    let counted = license_counters(&facts.cpu).0.counted().and_then(|()| {
        let why = "the kernel shows no core PMU, as in most virtual machines";
        facts.pmu.core.then_some(()).ok_or(why)
    });
    match (config.scores, counted) {
        (Scores::Off, _) => Ok(false),
        (Scores::Auto, counted) => Ok(counted.is_ok() && nothing_else_tells(config)),
        (Scores::On, Ok(())) => Ok(true),
        (Scores::On, Err(why)) => Err(refusal(why)),
    }
}

/// The counters for a run that has scores; `None` for one that does without.
pub(crate) fn counters(config: &Config, nr_cpus: usize) -> Result<Option<levels::Opened>> {
    let wanted = match config.scores {
        Scores::Off => false,
        Scores::Auto => nothing_else_tells(config),
        Scores::On => true,
    };
    if !wanted {
        return Ok(None);
    }
    match levels::open(nr_cpus) {
        Ok(counters) => Ok(Some(counters)),
        Err(_) if config.scores == Scores::Auto => Ok(None),
        Err(why) => Err(Error::Unsupported(refusal(why))),
    }
}

fn refusal(why: impl Into<String>) -> Problem {
    Problem::new(
        "cannot use --scores on",
        why,
        "leave it out, and identify wide code by hints, --mark or --trap",
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hw::Recorded;

    use super::*;
    use crate::config::Mark;

    /// Only where the CPU counts levels; and where they were asked for and are not counted, it is
    /// said why.
    #[test]
    fn scores_need_counters() {
        let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/machines");
        let fed = |machine: &str, scores| {
            let recorded = Recorded::open(&machines.join(machine)).unwrap();
            let config = Config { scores, ..Config::default() };
            are_fed(&config, &Facts::read(&recorded).unwrap()).map_err(|problem| problem.why)
        };
        for scores in [Scores::Auto, Scores::On] {
            assert_eq!(fed("skylake-sp", scores), Ok(true));
        }
        assert_eq!(fed("skylake-sp", Scores::Off), Ok(false));
        for (machine, words) in [
            ("alder-lake", "described"),
            ("epyc-genoa", "no counters"),
            ("sapphire-rapids-vm", "no counters"),
        ] {
            assert_eq!(fed(machine, Scores::Auto), Ok(false), "{machine}");
            let why = fed(machine, Scores::On).unwrap_err();
            assert!(why.contains(words), "{machine}: {why}");
        }
    }

    /// Left to itself a run has scores unless something better shows what is wide; asked for, it
    /// has them anyway.
    #[test]
    fn scores_give_way() {
        let mark: Mark = "/bin/true:main@2".parse().unwrap();
        let plain = Config::default();
        let marked = Config { marks: vec![mark], ..Config::default() };
        let trapped = Config { trap: Components::Avx512, ..Config::default() };
        assert_eq!([&plain, &marked, &trapped].map(nothing_else_tells), [true, false, false]);
        for config in [&marked, &trapped] {
            assert!(counters(config, 1).unwrap().is_none());
        }
    }
}
