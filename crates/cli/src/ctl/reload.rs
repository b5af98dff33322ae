// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane ctl reload`: a running scheduler gets the settings of a file, without a gap.
//!
//! **Problem.** A service is configured by a file. To restart it for a new slice would give the
//! machine back to the kernel's own scheduler for seconds, void the hints of all programs until
//! they have connected again, and lose what was learned.
//!
//! **Idea.** Compare the file with what runs, and change what differs. All or nothing: nothing is
//! changed where something differs that is fixed while it runs, or a change or a mark is refused.
//!
//! **Limits.** `metrics` and `ignore-cgroup-limits` are read at the start alone, and not compared.

use std::collections::BTreeSet;
use std::path::Path;

use report::ctl::{Change, Reply, Request};
use report::problem::Problem;
use report::settings::Setting;
use sched::config::{Config, Mode};
use sched::settings::SETTINGS;

use super::absolute;
use crate::client::{Client, unexpected};
use crate::failure::Failure;
use crate::run::settings::{read, with_listed_marks};

/// The key of [`Config::mode`].
const MODE: &str = "mode";

/// What has to change for a run to be as a file says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    settings: Vec<Differs>,
    /// What differs and cannot be changed, `KEY = VALUE` of the file.
    fixed: Vec<String>,
    add: Vec<String>,
    remove: Vec<String>,
}

/// A setting that is to have another value.
#[derive(Debug, PartialEq, Eq)]
struct Differs {
    key: &'static str,
    now: String,
    then: String,
}

impl Plan {
    /// In words, a line each.
    fn lines(&self) -> Vec<String> {
        let settings = self
            .settings
            .iter()
            .map(|Differs { key, now, then }| format!("{key}: {now} -> {then}"));
        let added = self.add.iter().map(|mark| format!("mark added: {mark}"));
        let removed = self.remove.iter().map(|mark| format!("mark removed: {mark}"));
        settings.chain(added).chain(removed).collect()
    }

    /// The changes of settings, each to one of its two values.
    fn changes(&self, to: fn(&Differs) -> &String) -> Vec<Change> {
        let change =
            |setting: &Differs| Change { key: setting.key.into(), value: to(setting).clone() };
        self.settings.iter().map(change).collect()
    }
}

/// Compares what runs, its settings and marks, with what is wanted; `marks` are as the run has
/// them.
fn plan(running: &[Setting], marks: &[String], wanted: &Config, wanted_marks: &[String]) -> Plan {
    let mut plan = Plan::default();
    for setting in SETTINGS {
        let then = setting.get(wanted);
        match running.iter().find(|now| now.key == setting.key) {
            Some(now) if now.value != then && now.live => {
                plan.settings.push(Differs { key: setting.key, now: now.value.clone(), then });
            }
            // Which mode it is was decided at the start: the run is as the file says.
            Some(_) if setting.key == MODE && wanted.mode == Mode::Auto => {}
            Some(now) if now.value != then => plan.fixed.push(format!("{} = {then}", setting.key)),
            _ => {}
        }
    }
    let (now, then) = (as_set(marks), as_set(wanted_marks));
    let only = |these: &BTreeSet<&String>, others: &BTreeSet<&String>| {
        these.difference(others).map(|mark| (*mark).clone()).collect::<Vec<String>>()
    };
    (plan.add, plan.remove) = (only(&then, &now), only(&now, &then));
    plan
}

fn as_set(marks: &[String]) -> BTreeSet<&String> {
    marks.iter().collect()
}

/// Makes the run as the file says; what has changed, a line each.
pub(super) fn reload(client: &mut Client, file: &Path) -> Result<Vec<String>, Failure> {
    let wanted = with_listed_marks(&read(file)?)?;
    let marks: Vec<String> = wanted.marks.iter().cloned().map(absolute).collect();
    let running = match client.ask(&Request::Get { keys: Vec::new() })? {
        Reply::Settings(settings) => settings,
        other => return Err(unexpected(&other)),
    };
    let status = match client.ask(&Request::Status)? {
        Reply::Status(status) => status,
        other => return Err(unexpected(&other)),
    };
    let plan = plan(&running, &status.marks, &wanted, &marks);
    if !plan.fixed.is_empty() {
        return Err(Failure::failed(Problem::new(
            format!("cannot reload {}", file.display()),
            format!("fixed while it runs: {}; nothing was changed", plan.fixed.join(", ")),
            "restart it: systemctl restart turbolane",
        )));
    }
    apply(client, &plan)?;
    Ok(plan.lines())
}

/// Settings first: whether a mark is refused may depend on them (`force-single-step`). What was
/// done before a refusal is taken back.
fn apply(client: &mut Client, plan: &Plan) -> Result<(), Failure> {
    set(client, plan.changes(|setting| &setting.then))?;
    for (done, mark) in plan.add.iter().enumerate() {
        if let Err(failure) = client.ask(&Request::MarkAdd { mark: mark.clone() }) {
            // Of several failures the first is the one to report.
            for mark in &plan.add[..done] {
                _ = client.ask(&Request::MarkRemove { mark: mark.clone() });
            }
            _ = set(client, plan.changes(|setting| &setting.now));
            return Err(failure);
        }
    }
    for mark in &plan.remove {
        client.ask(&Request::MarkRemove { mark: mark.clone() })?;
    }
    Ok(())
}

/// All of these changes, or none.
fn set(client: &mut Client, changes: Vec<Change>) -> Result<(), Failure> {
    if changes.is_empty() {
        return Ok(());
    }
    client.ask(&Request::Set { changes }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(config: &Config) -> Vec<Setting> {
        let row = |setting: &sched::settings::Setting| Setting {
            key: setting.key.into(),
            value: setting.get(config),
            meaning: setting.meaning.into(),
            live: setting.live,
        };
        SETTINGS.iter().map(row).collect()
    }

    fn marks(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    /// What is as it was is left alone; what is not mentioned any more gets its default.
    #[test]
    fn only_differences_change() {
        let usual = Config::default();
        let slow = Config { slice_ns: 9_000_000, tiers: true, ..usual.clone() };
        let same = plan(&running(&slow), &marks(&["a:f@1"]), &slow, &marks(&["a:f@1"]));
        assert_eq!(same, Plan::default());
        let back = plan(&running(&slow), &[], &Config { tiers: true, ..usual }, &[]);
        let change = |value: &str| [Change { key: "slice".into(), value: value.into() }];
        assert_eq!(back.changes(|setting| &setting.then), change("5ms"));
        assert_eq!(back.changes(|setting| &setting.now), change("9ms"), "to take it back");
        assert_eq!(back.lines(), ["slice: 9ms -> 5ms"]);
    }

    /// A setting that is fixed while it runs is no change, but a reason to refuse all.
    #[test]
    fn what_is_fixed_is_named() {
        let wanted = Config { slice_ns: 9_000_000, ..Config::default() };
        let mut now = running(&wanted);
        now.iter_mut().find(|setting| setting.key == "scores").unwrap().value = "on".into();
        let plan = plan(&now, &[], &wanted, &[]);
        assert_eq!((plan.fixed, plan.settings), (marks(&["scores = auto"]), Vec::new()));
    }

    /// A file that leaves the mode to the run fits whichever it has; one that names another does
    /// not.
    #[test]
    fn any_mode_is_automatic() {
        let now = running(&Config { mode: Mode::Scx, ..Config::default() });
        assert!(SETTINGS.iter().any(|setting| setting.key == MODE));
        let wanted = |mode| Config { mode, slice_ns: 9_000_000, ..Config::default() };
        let automatic = plan(&now, &[], &wanted(Mode::Auto), &[]);
        assert_eq!(automatic.fixed, marks(&[]));
        assert_eq!(automatic.lines(), ["slice: 5ms -> 9ms"]);
        assert_eq!(plan(&now, &[], &wanted(Mode::Affinity), &[]).fixed, ["mode = affinity"]);
    }

    /// Marks are compared as a set.
    #[test]
    fn marks_come_and_go() {
        let now = running(&Config::default());
        let wanted = marks(&["c:h@2", "a:f@1", "c:h@2"]);
        let plan = plan(&now, &marks(&["a:f@1", "b:g@1"]), &Config::default(), &wanted);
        assert_eq!(plan.lines(), ["mark added: c:h@2", "mark removed: b:g@1"]);
        assert_eq!((plan.add, plan.remove), (marks(&["c:h@2"]), marks(&["b:g@1"])));
    }
}
