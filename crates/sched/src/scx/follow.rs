// SPDX-License-Identifier: MIT OR Apache-2.0
//! Marks whose file is replaced while they are watched.
//!
//! **Problem.** A package manager replaces a library under its name. The kernel watches the file
//! that was there before: programs that start now execute another one, unseen. And a lane that
//! places its probes anew, after a pause, must not place them where the function was in the old
//! file: there may be the middle of an instruction.
//!
//! **Idea.** Each look compares the version of each marked file with the one of the look before. In
//! a new version the function is looked up again, by its name, and watched there as well. Programs
//! that were started before go on in the old file: its probes stay until the next replacement. What
//! is not found is *lost*, and reported as that; the next version is looked at again.
//!
//! **Limits.** A file that is written to in place, instead of being replaced, has its probes placed
//! anew only at the next look; whoever writes to a file that programs execute has broken them
//! already. Calls in the moment until that look are not seen. A mark by its offset has no name to
//! be found by, and is lost.

use std::collections::HashMap;
use std::path::Path;

use super::Scheduler;
use super::probes::{MarkChange, Probes, Watched, attach};
use crate::bpf::MainProgs;
use crate::config::{Mark, MarkSite};
use crate::marks::{FileVersion, MarkError, MarkRules, ResolvedMark};

impl Scheduler {
    /// Looks whether marked files were replaced, and watches their functions where they are now.
    pub fn follow_marks(&mut self, rules: MarkRules) {
        self.probes.follow_files(&self.skel.progs, rules);
    }

    /// What became of marks since this was asked before.
    pub fn take_mark_changes(&mut self) -> Vec<MarkChange> {
        std::mem::take(&mut self.probes.changes)
    }

    /// Marks that are not watched in their files as these are now, with the reasons.
    pub fn lost_marks(&self) -> impl Iterator<Item = (&Mark, &str)> {
        self.probes
            .marks
            .iter()
            .filter_map(|watched| Some((&watched.mark, &**watched.lost.as_ref()?)))
    }

    /// Adds a mark that has no place in its file now: it is looked for again.
    pub fn add_lost_mark(&mut self, mark: &Mark, why: String) {
        let lost = Some(why.clone());
        self.probes.changes.push(MarkChange { mark: mark.clone(), lost });
        self.probes.marks.push(Watched {
            mark: mark.clone(),
            site: None,
            links: Vec::new(),
            before: Vec::new(),
            seen: FileVersion::now(&mark.file).ok(),
            lost: Some(why),
        });
    }
}

impl Probes {
    pub(super) fn follow_files(&mut self, progs: &MainProgs<'_>, rules: MarkRules) {
        let mut versions: HashMap<&Path, Option<FileVersion>> = HashMap::new();
        let mut changed = Vec::new();
        for (index, watched) in self.marks.iter().enumerate() {
            let file = watched.mark.file.as_path();
            let now = versions.entry(file).or_insert_with(|| FileVersion::now(file).ok());
            if *now != watched.seen {
                changed.push((index, *now));
            }
        }
        let marks: Vec<Mark> =
            changed.iter().map(|&(index, _)| self.marks[index].mark.clone()).collect();
        if marks.is_empty() {
            return;
        }
        let found = rules.sites(&marks);
        for ((index, now), found) in changed.into_iter().zip(found) {
            let watched = &mut self.marks[index];
            let progs = (!self.are_lifted).then_some(progs);
            let change = match watched.accepted(found, now) {
                Ok(site) => watched.move_to(site, progs),
                Err(why) => {
                    let old = watched.site.as_ref().map(|site| site.version);
                    if old.zip(now).is_some_and(|(old, now)| old.is_same_file(now)) {
                        // Written to: the function is there no more.
                        watched.links.clear();
                    }
                    watched.seen = now;
                    Some(watched.lose(why))
                }
            };
            self.changes.extend(change);
        }
    }
}

impl Watched {
    /// The place to watch in the file as it is now; else why there is none.
    fn accepted(
        &self,
        found: Result<ResolvedMark, MarkError>,
        now: Option<FileVersion>,
    ) -> Result<ResolvedMark, String> {
        if now.is_none() {
            return Err("its file is gone".into());
        }
        let found = found.map_err(|error| error.to_string())?;
        let is_as_it_was = self.site.as_ref().is_some_and(|old| {
            old.version.is_same_file(found.version) && old.instruction == found.instruction
        });
        match self.mark.site {
            // A build id shows that it is the same again.
            MarkSite::Offset(_) if !is_as_it_was && self.mark.build_id.is_none() => {
                Err("its file was replaced, and an offset is a place in the one before".into())
            }
            _ => Ok(found),
        }
    }

    /// It was found there, in a new version of its file; it is watched if programs are given. What
    /// became of it, if that is news.
    fn move_to(&mut self, site: ResolvedMark, progs: Option<&MainProgs<'_>>) -> Option<MarkChange> {
        self.seen = Some(site.version);
        let old = self.site.replace(site.clone());
        let is_same_file = old.as_ref().is_some_and(|old| old.version.is_same_file(site.version));
        let is_same_place = old.is_some_and(|old| is_same_file && old.offset == site.offset);
        if is_same_place && self.lost.is_none() {
            return None;
        }
        if is_same_file {
            // Written to, or back again: what was watched is there no more, or would be twice.
            self.links.clear();
        } else if !self.links.is_empty() {
            self.before = std::mem::take(&mut self.links);
        }
        self.lost = None;
        let failure = progs.and_then(|progs| self.attach(progs));
        failure.or_else(|| Some(MarkChange { mark: self.mark.clone(), lost: None }))
    }

    /// Watches it where it is. The failure, if there is one.
    pub(super) fn attach(&mut self, progs: &MainProgs<'_>) -> Option<MarkChange> {
        match attach(progs, self.site.as_ref()?) {
            Ok(links) => {
                self.links = links;
                None
            }
            Err(error) => {
                // Whatever the file is at the next look, it is tried again.
                self.seen = None;
                Some(self.lose(error.into_problem().why))
            }
        }
    }

    fn lose(&mut self, why: String) -> MarkChange {
        self.lost = Some(why.clone());
        MarkChange { mark: self.mark.clone(), lost: Some(why) }
    }
}
