// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file that says which mutexes wait how.
//!
//! ```text
//!   # a comment
//!   report                            say at exit what was done
//!   address 0x7f00-0x7fff = glibc     mutexes there
//!   object libfoo.so = queue-spin     in the static data of a file whose name begins so ("main": the program)
//!   creator libbar = queue-block      set up by pthread_mutex_init from there
//!   contended 100 = queue-spin        once 100 acquisitions have waited for it
//!   all = block
//!   barriers = owner                  boost those for whom a barrier waits ("delegate": by another core)
//!   after 200us                       for "owner" and "delegate": how long at most a section is waited for
//!                                     before it is boosted
//!   server 7                          for "delegate": the CPU that writes P-states
//!   machine /tmp/machine              for tests: its P-states are files below this folder
//! ```
//!
//! The first line that fits a mutex counts; one that none fits is left to glibc.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::rules::{Condition, Rule, Strategy};

/// TURBO 7: sections of 600,000 cycles of 3.1 GHz are as fast boosted as they are otherwise.
const AFTER: Duration = Duration::from_micros(194);

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// In their order.
    pub rules: Vec<Rule>,
    /// Whether, and by whom, those are boosted for whom a barrier waits.
    pub barriers: Strategy,
    /// Whether to say at exit what was done.
    pub report: bool,
    /// How long at most a section is waited for before it is boosted.
    pub after: Duration,
    /// The CPU that writes P-states for others; `None`: any.
    pub server: Option<u32>,
    /// The folder below which the machine's files are.
    pub machine: PathBuf,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            rules: Vec::new(),
            barriers: Strategy::Glibc,
            report: false,
            after: AFTER,
            server: None,
            machine: "/".into(),
        }
    }
}

/// Why the file makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Line, from 1; 0 if it is about no line.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// Reads the file's text.
pub fn parse(text: &str) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    for (line, number) in text.lines().zip(1..) {
        let line = line.split('#').next().unwrap_or_default().trim();
        match line {
            "" => {}
            "report" => config.report = true,
            _ => setting(line, &mut config).map_err(|what| ConfigError { line: number, what })?,
        }
    }
    if config.rules.is_empty() && config.barriers == Strategy::Glibc {
        let what = "there is no rule; \"all = block\" is one";
        return Err(ConfigError { line: 0, what: what.into() });
    }
    Ok(config)
}

/// A line that is a setting or a rule.
fn setting(line: &str, config: &mut Config) -> Result<(), String> {
    match line.split_once(' ').filter(|_| !line.contains('=')) {
        Some(("after", time)) => {
            let time = time.trim();
            let number = time.strip_suffix("us").and_then(|us| us.parse().ok());
            let refusal = || format!("\"{time}\" is no time; write after 200us");
            config.after = Duration::from_micros(number.ok_or_else(refusal)?);
        }
        Some(("server", cpu)) => {
            let cpu = cpu.trim();
            let number = cpu.parse().map_err(|_| format!("server \"{cpu}\" is not a CPU's number"));
            config.server = Some(number?);
        }
        Some(("machine", folder)) => config.machine = folder.trim().into(),
        _ => match line.split_once('=') {
            Some((which, how)) if which.trim() == "barriers" => config.barriers = barriers(how)?,
            _ => config.rules.push(rule(line)?),
        },
    }
    Ok(())
}

/// What barriers can have.
fn barriers(how: &str) -> Result<Strategy, String> {
    match strategy(how)? {
        known @ (Strategy::Glibc | Strategy::Owner | Strategy::Delegate) => Ok(known),
        _ => Err(format!(
            "\"{}\" is a strategy for mutexes only; barriers can have glibc, owner or delegate",
            how.trim()
        )),
    }
}

fn strategy(how: &str) -> Result<Strategy, String> {
    let how = how.trim();
    let known = Strategy::ALL.iter().find(|(name, _)| *name == how);
    known.map(|(_, strategy)| *strategy).ok_or_else(|| {
        let known = Strategy::ALL.map(|(name, _)| name).join(", ");
        format!("strategy \"{how}\" is not known; the strategies are {known}")
    })
}

fn rule(line: &str) -> Result<Rule, String> {
    let Some((which, how)) = line.split_once('=') else {
        return Err(format!("\"{line}\" has no \"=\"; a rule is: WHICH = STRATEGY"));
    };
    Ok(Rule { condition: condition(which)?, strategy: strategy(how)? })
}

fn condition(which: &str) -> Result<Condition, String> {
    let words: Vec<&str> = which.split_whitespace().collect();
    match words.as_slice() {
        ["all"] => Ok(Condition::All),
        ["object", name] => Ok(Condition::Object((*name).into())),
        ["creator", name] => Ok(Condition::Creator((*name).into())),
        ["contended", least] => least.parse().map(Condition::Contended).map_err(|_| {
            format!(
                "\"{least}\" is not a number; contended wants how many acquisitions have waited"
            )
        }),
        ["address", range] => address(range)
            .ok_or_else(|| format!("\"{range}\" is not a range; write address 0x1000-0x2000")),
        _ => Err(format!(
            "\"{}\" says nothing about mutexes; known: all, address FROM-TO, object NAME, creator NAME, \
             contended N",
            which.trim()
        )),
    }
}

fn address(range: &str) -> Option<Condition> {
    let (from, to) = range.split_once('-')?;
    let number = |text: &str| usize::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let (from, to) = (number(from)?, number(to)?);
    (from < to).then_some(Condition::Address(from..to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_read() {
        let text = "# locks\nreport\naddress 0x10-0x20 = glibc\nobject libfoo.so = queue-spin # why\n\
                    creator libbar = queue-block\ncontended 100 = spin\n\nall = block\n";
        let config = parse(text).unwrap();
        assert!(config.report);
        assert_eq!(config.rules.len(), 5);
        assert_eq!(config.rules[0].condition, Condition::Address(0x10..0x20));
        assert_eq!(config.rules[3].strategy, Strategy::Spin);
        let config = parse("all = delegate\nafter 50us\nserver 7\nmachine /tmp/x\n").unwrap();
        assert_eq!(config.after, Duration::from_micros(50));
        assert_eq!((config.server, config.machine), (Some(7), "/tmp/x".into()));
        assert_eq!(config.rules[0].strategy, Strategy::Delegate);
    }

    #[test]
    fn barriers_are_a_rule() {
        let config = parse("barriers = owner\n").unwrap();
        assert_eq!((config.barriers, config.rules.len()), (Strategy::Owner, 0));
        assert_eq!(parse("barriers=delegate\nall = spin").unwrap().barriers, Strategy::Delegate);
    }

    #[test]
    fn nonsense_is_refused_with_its_line_fails() {
        let refused = |text: &str| parse(text).unwrap_err().to_string();
        assert!(refused("all = block\nall = quick\n").starts_with("line 2: strategy \"quick\""));
        assert!(refused("all\n").contains("has no \"=\""));
        assert!(refused("some = spin").contains("says nothing"));
        assert!(refused("address 20-10 = spin").contains("not a range"));
        assert!(refused("address 0x20-0x10 = spin").contains("not a range"));
        assert!(refused("contended x = spin").contains("not a number"));
        assert!(refused("report\n").contains("no rule"));
        assert!(refused("after 5\nall = owner").contains("write after 200us"));
        assert!(refused("barriers = spin").contains("glibc, owner or delegate"));
        assert!(refused("barriers = quick").contains("is not known"));
        assert!(refused("server x\nall = owner").contains("not a CPU's number"));
    }
}
