// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a run by name, so that `turbolane ctl` can read and change them.
//!
//! Each setting is one row of [`SETTINGS`]: its name, which is the flag of `turbolane run`
//! without the dashes, what it means, and how its value is written and read. Marks are not in
//! the table: they are added and removed one by one, each with its own errors.

use crate::config::Config;
use crate::parse::{DurationText, ParseError, duration_ns};
use crate::scope::{self, LEAVE_ALONE, SCALAR_TASKS, WIDE_TASKS};
use cpumodel::did_you_mean;

/// One setting.
pub struct Setting {
    /// Its name: the flag without the dashes.
    pub key: &'static str,
    /// What it means, with what the values mean.
    pub meaning: &'static str,
    /// It can be changed while the scheduler runs.
    pub live: bool,
    get: fn(&Config) -> String,
    set: fn(&mut Config, &str) -> Result<(), ParseError>,
}

impl Setting {
    /// The value in `config`, in the syntax that the flag takes.
    pub fn get(&self, config: &Config) -> String {
        (self.get)(config)
    }

    /// Reads `value` into `config`; on a refusal `config` is as it was.
    pub fn set(&self, config: &mut Config, value: &str) -> Result<(), ParseError> {
        (self.set)(config, value)
    }
}

/// Shortest time slice: below it the machine does little but switch (a switch costs 1 to 2 us).
const MIN_SLICE_NS: u64 = 100_000;
/// Longest time slice: the kernel's watchdog wants every task to run within its timeout.
const MAX_SLICE_NS: u64 = 1_000_000_000;

/// Shortest and longest period of an application's figure: a decision takes 40 to 100 of them.
const MIN_GOAL_NS: u64 = 100_000_000;
const MAX_GOAL_NS: u64 = 60_000_000_000;

/// All settings, in the order in which they are shown.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "wide-cpus",
        meaning: "CPUs that wide code runs on: a list (2-3,6 or cpu:3), a number of cores, \
            or auto for as many as the load needs (one in affinity mode)",
        live: true,
        get: |config| config.wide_cpus.to_string(),
        set: |config, value| value.parse().map(|wide_cpus| config.wide_cpus = wide_cpus),
    },
    Setting {
        key: "tiers",
        meaning: "wide CPUs split by licence level where that pays (true) or one class for all (false)",
        live: true,
        get: |config| config.tiers.to_string(),
        set: |config, value| boolean(value).map(|tiers| config.tiers = tiers),
    },
    Setting {
        key: "remigrate",
        meaning: "what ends a wide period: hint and uprobe-return always, and any of \
            syscall-entry, syscall-return, context-switch, timeout:DURATION, last-syscall (the system \
            call after which a section ends; each task learns which call that is), gap (a task stays \
            on its CPU after a section for at most rest-below, unless its scalar code is known to \
            last longer)",
        live: true,
        get: |config| config.remigrate.to_string(),
        set: |config, value| value.parse().map(|remigrate| config.remigrate = remigrate),
    },
    Setting {
        key: "slice",
        meaning: "time that a scalar or unclassified task may run before others get their turn",
        live: true,
        get: |config| DurationText(config.slice_ns).to_string(),
        set: |config, value| slice(value).map(|slice_ns| config.slice_ns = slice_ns),
    },
    Setting {
        key: "slice-wide",
        meaning: "the same for wide tasks",
        live: true,
        get: |config| DurationText(config.slice_wide_ns).to_string(),
        set: |config, value| slice(value).map(|slice_ns| config.slice_wide_ns = slice_ns),
    },
    Setting {
        key: "wide-timeout",
        meaning: "longest time that a task without an open section stays wide after its last event: \
            the fallback if no heuristic applies (after traps each task learns a shorter one); \
            0ms is forever",
        live: true,
        get: |config| DurationText(config.wide_timeout_ns).to_string(),
        set: |config, value| duration_ns(value).map(|ns| config.wide_timeout_ns = ns),
    },
    Setting {
        key: "rest-below",
        meaning: "a thread that announces a scalar phase shorter than this (tl_scalar_for) stays on its \
            CPU; with 0ms it always moves",
        live: true,
        get: |config| DurationText(config.rest_below_ns).to_string(),
        set: |config, value| duration_ns(value).map(|ns| config.rest_below_ns = ns),
    },
    Setting {
        key: "unclassified",
        meaning: "type of tasks that nothing has classified: default (they share all CPUs) or scalar \
            (they are kept off wide CPUs that have wide work)",
        live: true,
        get: |config| config.unclassified.to_string(),
        set: |config, value| value.parse().map(|kind| config.unclassified = kind),
    },
    Setting {
        key: WIDE_TASKS,
        meaning: "tasks that are wide all the time, whatever they do: unit:NAME, cgroup:/PATH or comm:NAME, \
            each followed by @LEVEL (1 to 3; default 2), with commas between them; or none. A name (comm) \
            counts only for tasks of no unit or group that is named here or below",
        live: true,
        get: |config| config.scope.wide.to_string(),
        set: |config, value| value.parse().map(|wide| config.scope.wide = wide),
    },
    Setting {
        key: SCALAR_TASKS,
        meaning: "tasks that are scalar all the time, whatever they do: unit:NAME or cgroup:/PATH",
        live: true,
        get: |config| config.scope.scalar.to_string(),
        set: |config, value| value.parse().map(|scalar| config.scope.scalar = scalar),
    },
    Setting {
        key: LEAVE_ALONE,
        meaning: "tasks that share all CPUs as tasks without wide code do, whatever they do: \
            unit:NAME or cgroup:/PATH",
        live: true,
        get: |config| config.scope.alone.to_string(),
        set: |config, value| value.parse().map(|alone| config.scope.alone = alone),
    },
    Setting {
        key: "trap",
        meaning: "what scalar CPUs withhold so that its use traps: none, avx512, avx or amx",
        live: false,
        get: |config| config.trap.to_string(),
        set: |config, value| value.parse().map(|trap| config.trap = trap),
    },
    Setting {
        key: "trap-mode",
        meaning: "what happens when an instruction traps: count (it is only counted), grace (heavy code \
            moves, light code may stay for a while) or steer (every task that traps moves)",
        live: true,
        get: |config| config.trap_mode.to_string(),
        set: |config, value| value.parse().map(|mode| config.trap_mode = mode),
    },
    Setting {
        key: "trap-level",
        meaning: "lowest licence level at which a trapped instruction counts as wide, 1 to 3",
        live: true,
        get: |config| config.trap_level.to_string(),
        set: |config, value| level(value).map(|level| config.trap_level = level),
    },
    Setting {
        key: "scores",
        meaning: "identify wide tasks by power scores from licence counters: on, off, or auto (on if \
            the CPU has the counters and neither marks nor traps are used)",
        live: false,
        get: |config| config.scores.to_string(),
        set: |config, value| value.parse().map(|scores| config.scores = scores),
    },
    Setting {
        key: "goal",
        meaning: "an application's own figure that decides whether wide code is separated, in place of \
            the scheduler's estimate: none, the path of a file that holds a number, or command: and \
            a command that prints one",
        live: false,
        get: |config| config.goal.to_string(),
        set: |config, value| value.parse().map(|goal| config.goal = goal),
    },
    Setting {
        key: "goal-kind",
        meaning: "what that figure means: higher (is better), lower (is better), or counter (a running \
            total, where faster growth is better)",
        live: false,
        get: |config| config.goal_kind.to_string(),
        set: |config, value| value.parse().map(|kind| config.goal_kind = kind),
    },
    Setting {
        key: "goal-every",
        meaning: "how often that figure is read; it should be about no more than this time",
        live: false,
        get: |config| DurationText(config.goal_every_ns).to_string(),
        set: |config, value| goal_every(value).map(|ns| config.goal_every_ns = ns),
    },
    Setting {
        key: "force-single-step",
        meaning: "accept marks that the kernel must single-step, about 4.6 us per call (true), or \
            refuse them (false)",
        live: true,
        get: |config| config.force_single_step.to_string(),
        set: |config, value| boolean(value).map(|force| config.force_single_step = force),
    },
    Setting {
        key: "mode",
        meaning: "scx: the sched_ext scheduler; affinity: masks of hinted threads; auto: scx if \
            the kernel has it",
        live: false,
        get: |config| config.mode.to_string(),
        set: |config, value| value.parse().map(|mode| config.mode = mode),
    },
];

/// The setting of that name.
pub fn setting(key: &str) -> Result<&'static Setting, ParseError> {
    SETTINGS
        .iter()
        .find(|setting| setting.key == key)
        .ok_or_else(|| unknown(key, SETTINGS.iter().map(|setting| setting.key)))
}

/// The refusal of a name that is none of `keys`.
pub(crate) fn unknown<'a>(key: &str, keys: impl Iterator<Item = &'a str>) -> ParseError {
    let keys: Vec<&str> = keys.collect();
    let near = did_you_mean(key, keys.iter().copied());
    ParseError {
        why: format!("there is no setting \"{key}\""),
        next: format!("{near}choose from: {}", keys.join(" ")),
    }
}

/// A copy of `config` with all `changes` (name, value) made, or the first refusal. Settings that
/// cannot change while the scheduler runs are refused.
pub fn changed<'a>(
    config: &Config,
    changes: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Config, ParseError> {
    let mut changed = config.clone();
    for (key, value) in changes {
        let setting = setting(key)?;
        if !setting.live {
            return Err(ParseError {
                why: format!("{key} cannot be changed while the scheduler runs"),
                next: format!("stop it and start it again with --{key} {value}"),
            });
        }
        setting.set(&mut changed, value)?;
    }
    scope::check(&changed.scope)?;
    Ok(changed)
}

/// Reads a time slice; returns ns.
pub fn slice(value: &str) -> Result<u64, ParseError> {
    duration_within(value, "slice", MIN_SLICE_NS, MAX_SLICE_NS)
}

/// Reads a period of an application's figure; returns ns.
pub fn goal_every(value: &str) -> Result<u64, ParseError> {
    duration_within(value, "period", MIN_GOAL_NS, MAX_GOAL_NS)
}

/// Reads a duration of at least and at most so many ns.
fn duration_within(value: &str, what: &str, least: u64, most: u64) -> Result<u64, ParseError> {
    let ns = duration_ns(value)?;
    if (least..=most).contains(&ns) {
        return Ok(ns);
    }
    Err(ParseError {
        why: format!("a {what} of {} is out of range", DurationText(ns)),
        next: format!("choose from {} to {}", DurationText(least), DurationText(most)),
    })
}

/// Reads a licence level.
pub fn level(value: &str) -> Result<u32, ParseError> {
    match value.parse() {
        Ok(level @ 1..=3) => Ok(level),
        _ => Err(ParseError {
            why: format!("\"{value}\" is not a licence level"),
            next: "write 1, 2 or 3".into(),
        }),
    }
}

/// Reads a switch.
pub fn boolean(value: &str) -> Result<bool, ParseError> {
    value.parse().map_err(|_| ParseError {
        why: format!("\"{value}\" is neither true nor false"),
        next: "write true or false".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a setting prints it also reads, and another value really changes it.
    #[test]
    fn every_setting_round_trips() {
        let others = [
            ("wide-cpus", "2"),
            ("tiers", "true"),
            ("remigrate", "hint,uprobe-return,syscall-entry"),
            ("slice", "3ms"),
            ("slice-wide", "20ms"),
            ("wide-timeout", "0ns"),
            ("rest-below", "2ms"),
            ("unclassified", "scalar"),
            ("wide-tasks", "unit:a.service,comm:b@1"),
            ("scalar-tasks", "cgroup:/c"),
            ("leave-alone", "unit:d.slice,cgroup:/e"),
            ("trap", "avx512"),
            ("trap-mode", "steer"),
            ("trap-level", "1"),
            ("scores", "off"),
            ("goal", "command:echo 1"),
            ("goal-kind", "counter"),
            ("goal-every", "250ms"),
            ("force-single-step", "true"),
            ("mode", "affinity"),
        ];
        assert_eq!(others.len(), SETTINGS.len());
        for (key, other) in others {
            let setting = setting(key).unwrap();
            let mut config = Config::default();
            let before = setting.get(&config);
            setting.set(&mut config, &before).unwrap();
            assert_eq!(setting.get(&config), before);
            setting.set(&mut config, other).unwrap();
            assert_eq!(setting.get(&config), other);
            assert_ne!(before, other, "{key}");
        }
    }

    /// One refusal refuses all changes, with its reason.
    #[test]
    fn bad_changes_fail() {
        let refusal = |changes: &[(&str, &str)]| {
            changed(&Config::default(), changes.iter().copied()).unwrap_err().to_string()
        };
        assert_eq!(
            refusal(&[("slice", "3ms"), ("tiers", "yes")]),
            "\"yes\" is neither true nor false; write true or false"
        );
        assert!(
            refusal(&[("colour", "red")])
                .starts_with("there is no setting \"colour\"; choose from: wide-cpus tiers")
        );
        assert!(refusal(&[("mode", "scx")]).contains("start it again with --mode scx"));
        assert!(refusal(&[("slice", "5")]).contains("has no unit"));
        assert_eq!(
            refusal(&[("trap-level", "4")]),
            "\"4\" is not a licence level; write 1, 2 or 3"
        );
        assert_eq!(
            refusal(&[("wide-tasks", "unit:a"), ("leave-alone", "unit:a")]),
            "unit:a.service is named twice, in wide-tasks and in leave-alone; remove one of the two"
        );
        assert_eq!(
            refusal(&[("slice", "1us")]),
            "a slice of 1us is out of range; choose from 100us to 1s"
        );
    }

    /// Several changes arrive together.
    #[test]
    fn good_changes_arrive() {
        let config =
            changed(&Config::default(), [("slice", "3ms"), ("unclassified", "scalar")]).unwrap();
        assert_eq!(config.slice_ns, 3_000_000);
        assert_eq!(config.unclassified, crate::config::Unclassified::Scalar);
    }
}
