// SPDX-License-Identifier: MIT OR Apache-2.0
//! DVFS policies as `--dvfs` takes them.
//!
//! ```text
//!   hardware | fixed:TIME | break-even | random | average | share | hints[:TIME] | switches[:TIME] | oracle
//! ```
//!
//! A time is written with its unit, or `never`.

use std::str::FromStr;

use cpumodel::did_you_mean;
use dvfs::Spec;
use sched::parse::{ParseError, duration_ns};

/// Names of the policies.
const NAMES: [&str; 9] = [
    "hardware",
    "fixed",
    "break-even",
    "random",
    "average",
    "share",
    "hints",
    "switches",
    "oracle",
];

/// What `--dvfs` accepts, for messages.
const CHOICES: &str = "choose from hardware, fixed:TIME, break-even, random, average, share, \
                       hints[:TIME], switches[:TIME] and oracle, joined by commas";

/// A policy under the name that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DvfsPolicy {
    /// As it was written.
    pub name: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The machine's own timeout, for all wide code or without hints.
    Hardware,
    HardwareSwitches,
    Spec(Spec),
}

impl DvfsPolicy {
    /// What it means on a machine with this timeout.
    pub(super) fn spec(&self, relax_ns: u64) -> Spec {
        match self.kind {
            Kind::Hardware => Spec::Fixed(relax_ns),
            Kind::HardwareSwitches => Spec::Switches(relax_ns),
            Kind::Spec(spec) => spec,
        }
    }
}

impl FromStr for DvfsPolicy {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (word, time) = match text.split_once(':') {
            Some((word, time)) => (word, Some(time_ns(time)?)),
            None => (text, None),
        };
        let kind = match (word, time) {
            ("hardware", None) => Kind::Hardware,
            ("fixed", Some(time_ns)) => Kind::Spec(Spec::Fixed(time_ns)),
            ("break-even", None) => Kind::Spec(Spec::BreakEven),
            ("random", None) => Kind::Spec(Spec::Random),
            ("average", None) => Kind::Spec(Spec::Average),
            ("share", None) => Kind::Spec(Spec::Share),
            ("hints", time) => Kind::Spec(Spec::Hints(time.unwrap_or(u64::MAX))),
            ("switches", None) => Kind::HardwareSwitches,
            ("switches", Some(time_ns)) => Kind::Spec(Spec::Switches(time_ns)),
            ("oracle", None) => Kind::Spec(Spec::Oracle),
            ("fixed", None) => {
                return Err(refuse("fixed has no time".into(), "write it as fixed:670us"));
            }
            _ => {
                let near = did_you_mean(word, NAMES.into_iter().filter(|name| *name != word));
                let why = format!("\"{text}\" is not a DVFS policy");
                return Err(refuse(why, &(near + CHOICES)));
            }
        };
        Ok(DvfsPolicy { name: text.into(), kind })
    }
}

fn time_ns(text: &str) -> Result<u64, ParseError> {
    if text == "never" { Ok(u64::MAX) } else { duration_ns(text) }
}

fn refuse(why: String, next: &str) -> ParseError {
    ParseError { why, next: next.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every form is read and keeps its name; the hardware's timeout is the machine's.
    #[test]
    fn policies_are_read() {
        for (text, spec) in [
            ("hardware", Spec::Fixed(7)),
            ("fixed:670us", Spec::Fixed(670_000)),
            ("fixed:never", Spec::Fixed(u64::MAX)),
            ("break-even", Spec::BreakEven),
            ("random", Spec::Random),
            ("average", Spec::Average),
            ("share", Spec::Share),
            ("hints", Spec::Hints(u64::MAX)),
            ("hints:2ms", Spec::Hints(2_000_000)),
            ("switches", Spec::Switches(7)),
            ("switches:1us", Spec::Switches(1_000)),
            ("oracle", Spec::Oracle),
        ] {
            let policy: DvfsPolicy = text.parse().unwrap();
            assert_eq!((policy.name.as_str(), policy.spec(7)), (text, spec));
        }
    }

    /// The error for a mistake says what would be right.
    #[test]
    fn mistakes_are_explained() {
        for (text, why, next) in [
            ("fixed", "no time", "fixed:670us"),
            ("fixed:5", "no unit", "5us"),
            ("oracle:5us", "not a DVFS policy", "choose from"),
            ("best", "not a DVFS policy", "break-even"),
            ("", "not a DVFS policy", "share"),
        ] {
            let error = text.parse::<DvfsPolicy>().unwrap_err();
            assert!(error.why.contains(why) && error.next.contains(next), "{text}: {error}");
        }
    }
}
