// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user's rules, put where bpf/rules.bpf.h finds them: tables of names and of control groups.
//!
//! Groups come and go. The kernel reports each new one by a counter; when that has changed, the
//! groups of the rules are looked for again, at most every [`PAUSE`]. A change of the rules writes
//! what is new before it removes what is old, so that no task is without its rule meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ptr;
use std::time::{Duration, Instant};

use hw::cgroups::{GroupId, unified_root};
use libbpf_rs::{Link, MapCore, MapFlags};
use policy::Rule;
use report::lane::ScopeRule;
use report::problem::Problem;

use super::Scheduler;
use super::call::visit_tasks;
use crate::config::{Scope, Selector};
use crate::error::{Error, Result};
use crate::scope::{RULES_MAX, find, rule_text};

/// Least time between two searches for groups: containers come in dozens.
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes of the kernel's name of a task.
const NAME_BYTES: usize = 16;
/// The user whose slices have units of the system.
const ROOT: u32 = 0;

/// The rules in force.
#[derive(Default)]
pub(super) struct Rules {
    scope: Scope,
    /// What is in the table of groups.
    groups: BTreeMap<GroupId, Entry>,
    /// Why not all of the rules are in the tables.
    incomplete: Option<String>,
    /// The kernel's counter of new groups at the last search, and when that was.
    searched: Option<(u32, Instant)>,
    /// Two searches found as many groups made.
    is_settled: bool,
    /// What reports new groups and changed names.
    links: Vec<Link>,
}

/// `struct tl_rule_entry` of bpf/lane.h.
type Entry = [u8; 8];

fn entry(rule: Rule, number: usize) -> Entry {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&rule.number().to_ne_bytes());
    bytes[4..].copy_from_slice(&(number as u32).to_ne_bytes());
    bytes
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::failed("cannot put the rules of wide and scalar tasks into force", error)
}

fn no_groups() -> Error {
    Error::Unsupported(Problem::new(
        "cannot follow rules for units and control groups",
        "this machine has no unified hierarchy of control groups in /sys/fs/cgroup",
        "boot with systemd.unified_cgroup_hierarchy=1, or name tasks by comm:NAME",
    ))
}

impl Scheduler {
    /// From now on these are the rules. Running tasks follow within a tick, others when they are
    /// queued or start. After an error some of them may be in force, until this succeeds.
    pub fn set_scope(&mut self, scope: &Scope) -> Result<()> {
        if *scope == self.rules.scope && self.rules.incomplete.is_none() {
            return Ok(());
        }
        self.rules.scope = scope.clone();
        let done = self.put_rules();
        self.renew_rules();
        self.note_failure(&done);
        done
    }

    /// Looks for the groups of the rules, if groups were made since the last time. What fails is
    /// in the status, and is tried again.
    pub fn follow_groups(&mut self) {
        if self.rules.scope.is_empty() {
            return;
        }
        let (made, is_incomplete) = (self.groups_made(), self.rules.incomplete.is_some());
        let is_due = is_incomplete || !self.rules.is_settled;
        let is_time =
            |(seen, at): (u32, Instant)| (seen != made || is_due) && at.elapsed() >= PAUSE;
        if !self.rules.searched.is_none_or(is_time) {
            return;
        }
        let searched = match is_incomplete {
            true => self.put_rules().map(|()| true),
            false => self.search_groups(),
        };
        if !matches!(searched, Ok(false)) {
            self.renew_rules();
        }
        self.note_failure(&searched);
    }

    fn note_failure<T>(&mut self, done: &Result<T>) {
        self.rules.incomplete = done.as_ref().err().map(|error| error.problem().why.clone());
    }

    fn put_rules(&mut self) -> Result<()> {
        self.watch_rules()?;
        self.set_names()?;
        self.search_groups().map(drop)
    }

    /// The rules, with how many tasks each one applies to.
    pub fn scope_rules(&self) -> Vec<ScopeRule> {
        if self.rules.scope.is_empty() {
            return Vec::new();
        }
        let counts = self.count_tasks().ok();
        let rule = |(number, (selector, rule)): (usize, (&Selector, Rule))| ScopeRule {
            selector: selector.to_string(),
            treated: match &self.rules.incomplete {
                None => rule_text(rule),
                Some(why) => format!("{} (not everywhere: {why})", rule_text(rule)),
            },
            tasks: counts.and_then(|counts| Some(u64::from(*counts.get(number)?))),
        };
        self.rules.scope.rules().enumerate().map(rule).collect()
    }

    fn count_tasks(&self) -> io::Result<[u32; RULES_MAX]> {
        let counts = (&raw const self.bss().rule_tasks).cast_mut();
        // SAFETY: a field of the mapped section, written by the program that runs below only.
        unsafe { ptr::write_volatile(counts, [0; RULES_MAX]) };
        visit_tasks(&self.skel.progs.tl_count_rules)?;
        // SAFETY: as above.
        Ok(unsafe { ptr::read_volatile(counts) })
    }

    /// Has the kernel report what rules depend on, as long as there are any.
    fn watch_rules(&mut self) -> Result<()> {
        if self.rules.scope.is_empty() {
            self.rules.links.clear();
        } else if self.rules.links.is_empty() {
            let progs = &self.skel.progs;
            // both or none
            let group_made = progs.tl_group_made.attach().map_err(failed)?;
            let renamed = progs.tl_task_renamed.attach().map_err(failed)?;
            self.rules.links = vec![group_made, renamed];
        }
        Ok(())
    }

    fn set_names(&mut self) -> Result<()> {
        let map = &self.skel.maps.name_rules;
        let mut due = BTreeSet::new();
        for (number, (selector, rule)) in self.rules.scope.rules().enumerate() {
            let Selector::Name(name) = selector else { continue };
            let mut key = [0; NAME_BYTES];
            key[..name.len()].copy_from_slice(name.as_bytes());
            map.update(&key, &entry(rule, number), MapFlags::ANY).map_err(failed)?;
            due.insert(key.to_vec());
        }
        for key in map.keys().filter(|key| !due.contains(key)).collect::<Vec<_>>() {
            map.delete(&key).map_err(failed)?;
        }
        Ok(())
    }

    /// Gives the groups their rules, as they are now; whether anything has changed.
    fn search_groups(&mut self) -> Result<bool> {
        // Before the search: a group that is made meanwhile is looked for again. And once more in
        // any case, because the kernel counts a group before it shows its folder.
        let made = self.groups_made();
        self.rules.is_settled = self.rules.searched.is_some_and(|(seen, _)| seen == made);
        self.rules.searched = Some((made, Instant::now()));
        let due: BTreeMap<GroupId, Entry> = match unified_root() {
            Some(root) => {
                let found = find(&root, ROOT, &self.rules.scope).map_err(failed)?;
                found
                    .into_values()
                    .map(|group| (group.id, entry(group.rule, group.number)))
                    .collect()
            }
            None if self.rules.scope.names_groups() => return Err(no_groups()),
            None => BTreeMap::new(),
        };
        let (map, groups) = (&self.skel.maps.group_rules, &mut self.rules.groups);
        let is_other = due != *groups;
        for (id, entry) in &due {
            if groups.get(id) != Some(entry) {
                map.update(&id.to_ne_bytes(), entry, MapFlags::ANY).map_err(failed)?;
                groups.insert(*id, *entry);
            }
        }
        let gone: Vec<GroupId> =
            groups.keys().filter(|id| !due.contains_key(id)).copied().collect();
        for id in gone {
            map.delete(&id.to_ne_bytes()).map_err(failed)?;
            groups.remove(&id);
        }
        Ok(is_other)
    }

    /// Tasks look again.
    fn renew_rules(&mut self) {
        let generation = &raw mut self.bss_mut().rules_generation;
        // SAFETY: a field of the mapped section, a word that only this process writes. Never 0.
        unsafe {
            let next = ptr::read_volatile(generation).wrapping_add(1);
            ptr::write_volatile(generation, next.max(1));
        }
    }

    fn groups_made(&self) -> u32 {
        // SAFETY: a field of the mapped section, which the kernel writes.
        unsafe { ptr::read_volatile(&raw const self.bss().groups_made) }
    }
}
