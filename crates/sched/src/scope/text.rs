// SPDX-License-Identifier: MIT OR Apache-2.0
//! How selectors are written: `unit:nginx.service`, `cgroup:/batch.slice`, `comm:x265`, those of
//! wide tasks with an optional `@LEVEL`; several with commas between them, or `none`.

use std::fmt::{self, Display};
use std::str::FromStr;

use super::{SCALAR_TASKS, WIDE_TASKS};
use crate::config::{Selector, Selectors, WideSelectors};
use crate::parse::ParseError;

/// Longest name of a task, bytes: the kernel's `TASK_COMM_LEN` without its zero.
const NAME_BYTES: usize = 15;
/// `TL_RULE_DEPTH` of bpf/rules.bpf.h: levels of groups that can have rules.
const DEPTH: usize = 32;
/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";
/// No selectors.
const NONE: &str = "none";
/// The level of wide tasks, if none is written: heavy AVX-512.
const LEVEL: u8 = 2;
/// Endings of units that have control groups.
const UNITS: [&str; 6] = [".service", ".scope", ".slice", ".socket", ".mount", ".swap"];

fn refuse<T>(why: impl Into<String>, next: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError { why: why.into(), next: next.into() })
}

impl Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Unit(name) => write!(f, "unit:{name}"),
            // A name that ends like a level is not one.
            Selector::Group(path) if level_of(path).1.is_some() => write!(f, "cgroup:{path}/"),
            Selector::Group(path) => write!(f, "cgroup:{path}"),
            Selector::Name(name) => write!(f, "comm:{name}"),
        }
    }
}

impl FromStr for Selector {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (kind, name) = text.split_once(':').unwrap_or(("", text));
        if name.contains([',', '\0', '\n']) {
            return refuse(
                format!(
                    "\"{text}\" contains a comma, which separates names, or an invalid character"
                ),
                "name the slice or the control group above it",
            );
        }
        match (kind, name) {
            ("unit" | "cgroup" | "comm", "") => {
                refuse(format!("\"{text}\" names nothing"), format!("write {kind}:NAME"))
            }
            ("unit", name) if name.contains('/') => refuse(
                format!("\"{name}\" is a path, not a unit"),
                format!("write cgroup:{name} for a control group"),
            ),
            ("unit", name) => Ok(Selector::Unit(unit(name))),
            ("cgroup", path) => group(path),
            ("comm", name) if name.len() > NAME_BYTES => {
                let end = (0..=NAME_BYTES).rev().find(|at| name.is_char_boundary(*at));
                refuse(
                    format!("\"{name}\" is longer than a task's name, {NAME_BYTES} bytes"),
                    format!("write comm:{}, as ps -L -o comm shows it", &name[..end.unwrap_or(0)]),
                )
            }
            ("comm", name) => Ok(Selector::Name(name.into())),
            _ => refuse(
                format!("\"{text}\" names neither a unit, a control group nor a task"),
                "write unit:NAME.service, cgroup:/PATH or comm:NAME",
            ),
        }
    }
}

/// The name with its ending, as systemctl takes it.
fn unit(name: &str) -> String {
    match has_ending(name) {
        true => name.into(),
        false => format!("{name}.service"),
    }
}

fn has_ending(unit: &str) -> bool {
    UNITS.iter().any(|ending| unit.ends_with(ending))
}

fn group(path: &str) -> Result<Selector, ParseError> {
    let below = path.strip_prefix(MOUNT).unwrap_or(path);
    let names: Vec<&str> = below.split('/').filter(|name| !name.is_empty()).collect();
    if !below.starts_with('/') || names.iter().any(|name| [".", ".."].contains(name)) {
        return refuse(
            format!("\"{path}\" is not the path of a control group"),
            "write it from the root of the groups, as /proc/PID/cgroup shows it: cgroup:/batch.slice",
        );
    }
    if names.len() >= DEPTH {
        return refuse(
            format!("\"{path}\" is more than {} groups deep", DEPTH - 1),
            "name a group above it",
        );
    }
    Ok(Selector::Group(format!("/{}", names.join("/"))))
}

/// A selector of wide tasks, with its level.
pub(super) fn wide(text: &str) -> Result<(Selector, u8), ParseError> {
    match level_of(text) {
        (selector, None) => Ok((selector.parse()?, LEVEL)),
        (selector, Some(number))
            if selector.strip_prefix("unit:").is_some_and(|name| !has_ending(name)) =>
        {
            refuse(
                format!("\"{text}\" may be a unit with a level, or an instance of a unit"),
                format!(
                    "write {selector}.service@{number} for a level, {text}.service for an instance"
                ),
            )
        }
        (selector, Some(level @ 1..=3)) => Ok((selector.parse()?, level)),
        (_, Some(level)) => {
            refuse(format!("\"{level}\" is not a licence level"), "write @1, @2 or @3 at the end")
        }
    }
}

/// A selector without a level, and not by name.
pub(super) fn other(text: &str) -> Result<Selector, ParseError> {
    let is_level = |text| matches!(level_of(text), (_, Some(_)));
    if is_level(text) {
        return refuse(
            format!("\"{text}\" has a level, which only wide tasks have"),
            "leave it out; an instance of a unit has its ending: unit:NAME@1.service",
        );
    }
    match text.parse()? {
        Selector::Name(name) => refuse(
            format!(
                "\"comm:{name}\" would let any user keep wide code on scalar CPUs, by giving a \
                 program this name"
            ),
            format!("name a unit or a control group; comm: is for {WIDE_TASKS} only"),
        ),
        selector => Ok(selector),
    }
}

fn level_of(text: &str) -> (&str, Option<u8>) {
    match text.rsplit_once('@').map(|(selector, level)| (selector, level.parse())) {
        Some((selector, Ok(level))) => (selector, Some(level)),
        _ => (text, None),
    }
}

/// The texts of a list.
fn items(text: &str) -> impl Iterator<Item = &str> {
    let text = if text.trim() == NONE { "" } else { text };
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// A list as [`items`] reads it.
fn list(f: &mut fmt::Formatter<'_>, mut items: impl Iterator<Item = String>) -> fmt::Result {
    let Some(first) = items.next() else { return f.write_str(NONE) };
    f.write_str(&first)?;
    items.try_for_each(|item| write!(f, ",{item}"))
}

impl Display for Selectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self.0.iter().map(Selector::to_string))
    }
}

impl FromStr for Selectors {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        items(text).map(other).collect::<Result<_, _>>().map(Selectors)
    }
}

impl Display for WideSelectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let item = |(selector, level): &(Selector, u8)| match *level {
            LEVEL if level_of(&selector.to_string()).1.is_none() => selector.to_string(),
            level => format!("{selector}@{level}"),
        };
        list(f, self.0.iter().map(item))
    }
}

impl FromStr for WideSelectors {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        items(text).map(wide).collect::<Result<_, _>>().map(WideSelectors)
    }
}

/// Whether a setting is a list of selectors.
pub(crate) fn is_list(key: &str) -> bool {
    [WIDE_TASKS, SCALAR_TASKS, super::LEAVE_ALONE].contains(&key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::Scope;
    use crate::scope::check;

    fn refusal(text: &str) -> String {
        text.parse::<WideSelectors>().unwrap_err().to_string()
    }

    /// Units get their ending, paths one form, and levels are of wide tasks.
    #[test]
    fn selectors_are_read() {
        let wide: WideSelectors =
            "unit:nginx, unit:a.socket,unit:a@1.service@3,cgroup:/sys/fs/cgroup/b//c/@1,comm:x265"
                .parse()
                .unwrap();
        let expected =
            "unit:nginx.service,unit:a.socket,unit:a@1.service@3,cgroup:/b/c@1,comm:x265";
        assert_eq!(wide.to_string(), expected);
        let levels: Vec<u8> = wide.0.iter().map(|(_, level)| *level).collect();
        assert_eq!(levels, [2, 2, 3, 1, 2]);
        let scalar: Selectors = "cgroup:/,unit:user.slice,unit:getty@tty1.service".parse().unwrap();
        assert_eq!(scalar.to_string(), "cgroup:/,unit:user.slice,unit:getty@tty1.service");
        for text in ["none", "", " none "] {
            assert_eq!(text.parse::<Selectors>().unwrap().to_string(), "none", "{text:?}");
        }
    }

    /// What selects nothing is refused with what to write.
    #[test]
    fn bad_selectors_fail() {
        for (text, expected) in [
            ("nginx", "\"nginx\" names neither a unit, a control group nor a task; write unit:"),
            ("pid:7", "\"pid:7\" names neither"),
            ("unit:", "\"unit:\" names nothing; write unit:NAME"),
            ("unit:/a", "\"/a\" is a path, not a unit; write cgroup:/a"),
            ("cgroup:a", "\"a\" is not the path of a control group"),
            ("cgroup:/a/../b", "\"/a/../b\" is not the path"),
            (
                "comm:0123456789abcdef",
                "\"0123456789abcdef\" is longer than a task's name, 15 bytes",
            ),
            ("comm:x@4", "\"4\" is not a licence level"),
            (
                "unit:a@2",
                "\"unit:a@2\" may be a unit with a level, or an instance of a unit; write \
                 unit:a.service@2 for a level, unit:a@2.service for",
            ),
        ] {
            let found = refusal(text);
            assert!(found.starts_with(expected), "{text}: {found}");
        }
        let other = |text: &str| text.parse::<Selectors>().unwrap_err().to_string();
        let deep = |levels: usize| format!("cgroup:{}", "/g".repeat(levels)).parse::<Selectors>();
        assert!(deep(31).is_ok() && deep(32).unwrap_err().why.contains("31 groups deep"));
        assert!(other("unit:a@2").contains("has a level"));
        assert!(other("comm:x265").contains("would let any user"));
    }

    /// A selector has one rule.
    #[test]
    fn contradictions_fail() {
        let scope = |wide: &str, scalar: &str, alone: &str| Scope {
            wide: wide.parse().unwrap(),
            scalar: scalar.parse().unwrap(),
            alone: alone.parse().unwrap(),
        };
        assert!(check(&scope("unit:a,comm:a,cgroup:/a", "unit:b", "cgroup:/b")).is_ok());
        let why = |scope: Scope| check(&scope).unwrap_err().why;
        assert_eq!(
            why(scope("unit:a", "unit:a.service", "none")),
            "unit:a.service is named twice, in wide-tasks and in scalar-tasks"
        );
        assert!(why(scope("none", "cgroup:/a", "cgroup:/a/")).contains("leave-alone"));
        assert!(why(scope("comm:a@1,comm:a", "none", "none")).contains("wide-tasks and in wide"));
        let many: Vec<String> = (0..129).map(|n| format!("comm:a{n}")).collect();
        assert!(why(scope(&many.join(","), "none", "none")).contains("too many"));
    }

    proptest! {
        /// What is written is read again.
        #[test]
        fn selectors_round_trip(
            names in proptest::collection::vec("[a-z@1-9.]{1,9}", 0..5), level in 1u8..=3,
        ) {
            let places = names.iter().flat_map(|name| {
                [Selector::Unit(unit(name)), Selector::Group(format!("/n{name}"))]
            });
            let tasks = names.iter().map(|name| Selector::Name(name.clone()));
            let wide = places.clone().chain(tasks).map(|selector| (selector, level));
            let wide = WideSelectors(wide.collect());
            prop_assert_eq!(wide.to_string().parse::<WideSelectors>().unwrap(), wide);
            let scalar = Selectors(places.collect());
            prop_assert_eq!(scalar.to_string().parse::<Selectors>().unwrap(), scalar);
        }

        /// No text makes the reader panic.
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z:@,/é.0-9]{0,40}") {
            _ = text.parse::<WideSelectors>();
            _ = text.parse::<Selectors>();
        }
    }
}
