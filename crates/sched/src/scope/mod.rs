// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scope: which tasks the user has classified, as wide, as scalar, or as none of the lane's
//! business.
//!
//! A *selector* names tasks: a systemd unit, a control group with all below it, or the name of a
//! task. policy/rule.h says what follows from a rule, and which one counts. A selector has one
//! rule, and units and groups come before names.
//!
//! **Security.** Any user chooses the names of their tasks, so only wide code can be selected by
//! name. A unit is looked for only in groups that belong to root: below its own group, a user can
//! make one of any name (groups.rs).

mod groups;
mod text;

pub(crate) use groups::find;
pub(crate) use text::is_list;

/// Rules that there can be: `TL_RULES_MAX` of bpf/lane.h.
pub const RULES_MAX: usize = 128;

use policy::Rule;

use crate::config::{Scope, Selector};
use crate::parse::ParseError;

/// Refuses rules that contradict each other, and too many.
pub fn check(scope: &Scope) -> Result<(), ParseError> {
    let mut seen: Vec<(&Selector, Rule)> = Vec::new();
    for (selector, rule) in scope.rules() {
        if let Some((_, first)) = seen.iter().find(|(other, _)| *other == selector) {
            return Err(ParseError {
                why: format!(
                    "{selector} is named twice, in {} and in {}",
                    key_of(*first),
                    key_of(rule)
                ),
                next: "remove one of the two".into(),
            });
        }
        seen.push((selector, rule));
    }
    if seen.len() > RULES_MAX {
        return Err(ParseError {
            why: format!("{} units, groups and names are too many", seen.len()),
            next: format!("name at most {RULES_MAX}, such as slices instead of their units"),
        });
    }
    Ok(())
}

/// The settings that name selectors.
pub const WIDE_TASKS: &str = "wide-tasks";
/// See [`WIDE_TASKS`].
pub const SCALAR_TASKS: &str = "scalar-tasks";
/// See [`WIDE_TASKS`].
pub const LEAVE_ALONE: &str = "leave-alone";

/// The setting that a rule is from.
fn key_of(rule: Rule) -> &'static str {
    match rule {
        Rule::Scalar => SCALAR_TASKS,
        Rule::Alone => LEAVE_ALONE,
        Rule::Wide(_) | Rule::None => WIDE_TASKS,
    }
}

/// A rule in words, for people.
pub(crate) fn rule_text(rule: Rule) -> String {
    match rule {
        Rule::Wide(level) => format!("wide, level {level}"),
        Rule::Scalar => "scalar".into(),
        Rule::Alone => "left alone".into(),
        Rule::None => "none".into(),
    }
}
