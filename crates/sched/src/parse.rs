// SPDX-License-Identifier: MIT OR Apache-2.0
//! How settings are written: one syntax for the command line, for `turbolane ctl`, and for
//! what these print back. For every setting `parse(print(x)) == x`.
//!
//! | setting | syntax |
//! |---|---|
//! | wide CPUs | `auto`; `N`: that many complete cores, 0 for none; a list with a comma or dash: `2-3,6`; `cpu:3`: the one CPU 3 |
//! | re-migration | words joined by commas: `hint`, `uprobe-return`, `syscall-entry`, `syscall-return`, `context-switch`, `timeout:50ms` |
//! | mark | `FILE:FUNCTION` or `FILE:+0xOFFSET`, then `@LEVEL` (1 to 3) if it is not 1, then `,min-argN=VALUE` if calls with a smaller argument N (1 to 6) do not count, then `,build-id=ID` if an offset is for one build |
//! | mode | `scx`, `affinity`, `auto` |
//! | unclassified | `default`, `scalar` |
//! | trap | `none`, `avx512`, `avx`, `amx` |
//! | goal | `none`; the path of a file; `command:` and a shell command |
//! | goal kind | `higher`, `lower`, `counter` |
//! | trap mode | `count`, `grace`, `steer` |
//! | duration | a number and its unit: `500us`, `1.5ms`; units ns, us, ms, s, min, h; a bare number is refused |
//!
//! A bare number is a count of cores and not a CPU, since a count is what people tune; a list
//! that holds one CPU is therefore written with `cpu:`, which every list may carry.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::config::{
    BuildId, Components, Goal, GoalKind, Mark, MarkSite, MinArg, Mode, Remigrate, Scores, TrapMode,
    Unclassified, WideCpus,
};
use cpumodel::did_you_mean;

/// Why a text is no setting. Printed as "why; next": the caller says which setting it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}; {next}")]
pub struct ParseError {
    /// What is wrong with the text.
    pub why: String,
    /// What to write instead.
    pub next: String,
}

fn refuse<T>(why: impl Into<String>, next: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError { why: why.into(), next: next.into() })
}

/// Longer ones, that are read and not written.
const LONG_UNITS: [(&str, u64); 2] = [("h", 3_600_000_000_000), ("min", 60_000_000_000)];

/// Units of a duration with their length, ns; the longest first.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Reads a duration such as `5ms`, `1.5s` or `1h`; returns ns.
pub fn duration_ns(text: &str) -> Result<u64, ParseError> {
    let next = || format!("write it as {}", duration_example(text));
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    if number.is_empty() {
        return refuse(format!("\"{text}\" is not a duration"), next());
    }
    if unit.is_empty() {
        return refuse(format!("\"{text}\" has no unit"), next());
    }
    let mut units = UNITS.iter().chain(&LONG_UNITS);
    let Some(&(_, unit_ns)) = units.find(|(name, _)| *name == unit.trim_start()) else {
        return refuse(format!("\"{unit}\" is not a unit of time"), "use ns, us, ms, s, min or h");
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    match scale(whole, fraction, unit_ns) {
        Some(ns) => Ok(ns),
        None if number.matches('.').count() > 1 || whole.is_empty() || fraction.is_empty() => {
            refuse(format!("\"{number}\" is not a number"), next())
        }
        None => refuse(
            format!("\"{text}\" is too long or finer than a nanosecond"),
            "use an integer number of ns below 500 years",
        ),
    }
}

/// Reads a duration of at least this; `why` a shorter one makes no sense.
pub fn duration_at_least(text: &str, least: Duration, why: &str) -> Result<Duration, ParseError> {
    match Duration::from_nanos(duration_ns(text)?) {
        duration if duration >= least => Ok(duration),
        _ => refuse(why, "choose a longer one"),
    }
}

/// `whole.fraction` units of `unit_ns` each, exactly; `None` if that is no whole number of ns.
fn scale(whole: &str, fraction: &str, unit_ns: u64) -> Option<u64> {
    let digits = u32::try_from(fraction.len()).ok().filter(|&digits| digits <= 9)?;
    let parts_ns = fraction.parse::<u64>().ok()?.checked_mul(unit_ns)?;
    let denominator = 10u64.pow(digits);
    if !parts_ns.is_multiple_of(denominator) {
        return None;
    }
    whole.parse::<u64>().ok()?.checked_mul(unit_ns)?.checked_add(parts_ns / denominator)
}

/// What someone who wrote `text` may have meant.
fn duration_example(text: &str) -> String {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("{text}us, {text}ms or {text}s")
    } else {
        "500us, 5ms or 1s".to_string()
    }
}

/// A duration as [`duration_ns`] reads it, in the longest unit that needs no fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationText(
    /// The duration, ns.
    pub u64,
);

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DurationText(ns) = *self;
        let (name, unit_ns) = UNITS
            .into_iter()
            .find(|(_, unit_ns)| ns > 0 && ns.is_multiple_of(*unit_ns))
            .unwrap_or(("ns", 1));
        write!(f, "{}{name}", ns / unit_ns)
    }
}

impl FromStr for WideCpus {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let next = "write auto, a number of cores (2), a list of CPUs (2-3,6) or one CPU (cpu:3)";
        if text == "auto" {
            return Ok(WideCpus::Auto);
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return match text.parse::<usize>() {
                Ok(cores) if cores <= cpumodel::MAX_CPUS => Ok(WideCpus::Cores(cores)),
                _ => refuse(format!("{text} cores are more than any machine has"), next),
            };
        }
        match text.strip_prefix("cpu:").unwrap_or(text).parse::<cpumodel::CpuSet>() {
            Ok(cpus) if cpus.is_empty() => refuse("the set of wide CPUs is empty", next),
            Ok(cpus) => Ok(WideCpus::List(cpus)),
            Err(error) => refuse(error.to_string(), next),
        }
    }
}

impl fmt::Display for WideCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WideCpus::Auto => f.write_str("auto"),
            WideCpus::Cores(cores) => write!(f, "{cores}"),
            WideCpus::List(cpus) if cpus.len() == 1 => write!(f, "cpu:{cpus}"),
            WideCpus::List(cpus) => write!(f, "{cpus}"),
        }
    }
}

impl FromStr for Remigrate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut ends = Remigrate::default();
        for word in text.split(',').map(str::trim) {
            match word.split_once(':') {
                Some(("timeout", value)) => {
                    let timeout_ns = duration_ns(value)?;
                    if timeout_ns == 0 {
                        return refuse(
                            "a timeout of 0 ends a wide period before it starts",
                            "give it some time, such as timeout:50ms",
                        );
                    }
                    if ends.timeout_ns.is_some_and(|known| known != timeout_ns) {
                        return refuse("two different timeouts are given", "keep one of them");
                    }
                    ends.timeout_ns = Some(timeout_ns);
                }
                None => set_end(&mut ends, word)?,
                Some(_) => return unknown_end(word),
            }
        }
        Ok(ends)
    }
}

fn set_end(ends: &mut Remigrate, word: &str) -> Result<(), ParseError> {
    match word {
        // Always on: an explicit end closes the period that its begin opened.
        "hint" | "uprobe-return" => {}
        "syscall-entry" => ends.syscall_entry = true,
        "syscall-return" => ends.syscall_return = true,
        "context-switch" => ends.context_switch = true,
        "gap" => ends.gap = true,
        "last-syscall" => ends.last_syscall = true,
        "timeout" => return refuse("timeout has no duration", "write it as timeout:50ms"),
        _ => return unknown_end(word),
    }
    Ok(())
}

fn unknown_end<T>(word: &str) -> Result<T, ParseError> {
    refuse(
        format!("\"{word}\" does not end a wide period"),
        "choose from hint, uprobe-return, gap, last-syscall, syscall-entry, syscall-return, \
         context-switch and timeout:DURATION, joined by commas",
    )
}

impl fmt::Display for Remigrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hint,uprobe-return")?;
        for (on, word) in [
            (self.gap, "gap"),
            (self.last_syscall, "last-syscall"),
            (self.syscall_entry, "syscall-entry"),
            (self.syscall_return, "syscall-return"),
            (self.context_switch, "context-switch"),
        ] {
            if on {
                write!(f, ",{word}")?;
            }
        }
        match self.timeout_ns {
            Some(timeout_ns) => write!(f, ",timeout:{}", DurationText(timeout_ns)),
            None => Ok(()),
        }
    }
}

/// What a goal begins with that is a command.
const COMMAND: &str = "command:";

impl FromStr for Goal {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let next = "write the path of a file that holds a number, or command: and a command that \
             prints one";
        match (text.strip_prefix(COMMAND), text) {
            (_, "") => refuse("a goal is the figure of an application, and none is named", next),
            (Some(command), _) if command.trim().is_empty() => {
                refuse(format!("\"{text}\" names no command"), next)
            }
            (Some(command), _) => Ok(Goal::Command(command.into())),
            (None, "none") => Ok(Goal::None),
            (None, path) => Ok(Goal::File(PathBuf::from(path))),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::None => f.write_str("none"),
            Goal::File(path) => write!(f, "{}", path.display()),
            Goal::Command(command) => write!(f, "{COMMAND}{command}"),
        }
    }
}

/// Highest licence level that a mark can name (AMX).
const MAX_LEVEL: u32 = 3;
/// Level of a mark that names none.
const DEFAULT_LEVEL: u32 = 1;

impl FromStr for Mark {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let next = "write FILE:FUNCTION or FILE:+0xOFFSET, followed by @1, @2 or @3 for the level";
        let Some((file, site)) = split_file(text) else {
            return refuse(format!("\"{text}\" names no function"), next);
        };
        let (site, options) = match site.split_once(',') {
            None => (site, MarkOptions::default()),
            Some((site, options)) => (site, options.parse()?),
        };
        let (site, level) = match site.rsplit_once('@') {
            None => (site, DEFAULT_LEVEL),
            Some((site, level)) => match level.parse() {
                Ok(level @ 1..=MAX_LEVEL) => (site, level),
                _ => return refuse(format!("\"{level}\" is not a licence level"), next),
            },
        };
        if file.is_empty() || site.is_empty() {
            let missing = if file.is_empty() { "file" } else { "function" };
            return refuse(format!("\"{text}\" names no {missing}"), next);
        }
        let (site, MarkOptions { filter, build_id }) = (parse_site(site)?, options);
        if build_id.is_some() && matches!(site, MarkSite::Symbol(_)) {
            return refuse(
                "build-id is for marks by offset; a name finds its function in each build",
                "leave it out",
            );
        }
        Ok(Mark { file: PathBuf::from(file), site, level, filter, build_id })
    }
}

/// What follows a mark's level.
#[derive(Default)]
struct MarkOptions {
    filter: Option<MinArg>,
    build_id: Option<BuildId>,
}

impl FromStr for MarkOptions {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut options = MarkOptions::default();
        for option in text.split(',') {
            let is_again = match option.strip_prefix("build-id=") {
                Some(digits) => options.build_id.replace(build_id(digits)?).is_some(),
                None => options.filter.replace(option.parse()?).is_some(),
            };
            if is_again {
                return refuse(format!("\"{text}\" has an option twice"), "write it once");
            }
        }
        Ok(options)
    }
}

fn build_id(digits: &str) -> Result<BuildId, ParseError> {
    BuildId::of_digits(digits).map_or_else(
        || {
            let least = BuildId::LEAST_DIGITS;
            refuse(
                format!("\"{digits}\" is not the beginning of a build id"),
                format!("write its first {least} hexadecimal digits or more (`readelf -n FILE`)"),
            )
        },
        Ok,
    )
}

impl FromStr for MinArg {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let next = "write ,min-arg3=64 to ignore calls whose third argument is below 64, or \
                    ,build-id=ID for the build that an offset is for";
        let words = text.strip_prefix("min-arg").and_then(|rest| rest.split_once('='));
        let Some((arg, least)) = words else {
            return refuse(format!("\"{text}\" is not an option of a mark"), next);
        };
        let arg = match arg.parse() {
            Ok(arg @ 1..=policy::MARK_ARGS) => arg,
            _ => {
                let why = format!("\"{arg}\" is not the number of an argument in a register");
                return refuse(why, format!("write min-arg1 to min-arg{}", policy::MARK_ARGS));
            }
        };
        match least.parse() {
            Ok(0) => refuse("min-arg with a value of 0 ignores no call", "leave it out"),
            Ok(least) => Ok(MinArg { arg, least }),
            Err(_) => refuse(
                format!("\"{least}\" is not the value of an argument"),
                format!("write a number from 1 to {}", u32::MAX),
            ),
        }
    }
}

/// Splits at the last single colon, so that a name such as `ns::function` stays whole.
fn split_file(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let alone = |at: usize| {
        bytes[at] == b':' && bytes.get(at + 1) != Some(&b':') && (at == 0 || bytes[at - 1] != b':')
    };
    let at = (0..bytes.len()).rev().find(|&at| alone(at))?;
    Some((&text[..at], &text[at + 1..]))
}

impl MarkSite {
    /// The site of a function by its name; `None` if a mark, or a line of a list of marks, would
    /// read the name as something else: a comma begins the option, `@` the level.
    pub fn of_name(name: &str) -> Option<MarkSite> {
        let is_plain = !name.starts_with('+') && !name.contains([':', '@', ',', '#', ' ']);
        (is_plain && !name.is_empty()).then(|| MarkSite::Symbol(name.to_owned()))
    }
}

fn parse_site(site: &str) -> Result<MarkSite, ParseError> {
    let Some(offset) = site.strip_prefix('+') else {
        return Ok(MarkSite::Symbol(site.to_string()));
    };
    match offset.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16)) {
        Some(Ok(offset)) => Ok(MarkSite::Offset(offset)),
        _ => refuse(
            format!("\"{site}\" is not a file offset"),
            "write it in hexadecimal, as in FILE:+0x1234",
        ),
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", Path::display(&self.file), self.site)?;
        if self.level != DEFAULT_LEVEL {
            write!(f, "@{}", self.level)?;
        }
        self.filter.map_or(Ok(()), |filter| write!(f, ",{filter}"))?;
        self.build_id.as_ref().map_or(Ok(()), |id| write!(f, ",build-id={}", id.digits()))
    }
}

impl fmt::Display for MinArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "min-arg{}={}", self.arg, self.least)
    }
}

impl fmt::Display for MarkSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MarkSite::Symbol(name) => f.write_str(name),
            MarkSite::Offset(offset) => write!(f, "+{offset:#x}"),
        }
    }
}

/// Defines both directions of a setting that is one of a few words.
macro_rules! words {
    ($type:ident: $($word:literal => $variant:ident),+) => {
        impl FromStr for $type {
            type Err = ParseError;

            fn from_str(text: &str) -> Result<Self, ParseError> {
                match text {
                    $($word => Ok($type::$variant),)+
                    _ => refuse(
                        format!("\"{text}\" is not one of its values"),
                        did_you_mean(text, [$($word),+].into_iter())
                            + concat!("choose from:" $(, " ", $word)+),
                    ),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($type::$variant => $word),+ })
            }
        }
    };
}

words!(Mode: "scx" => Scx, "affinity" => Affinity, "auto" => Auto);
words!(Components: "none" => None, "avx512" => Avx512, "avx" => Avx, "amx" => Amx);
words!(Scores: "auto" => Auto, "on" => On, "off" => Off);
words!(TrapMode: "count" => Count, "grace" => Grace, "steer" => Steer);
words!(GoalKind: "higher" => Higher, "lower" => Lower, "counter" => Counter);
words!(Unclassified: "default" => Default, "scalar" => Scalar);

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
