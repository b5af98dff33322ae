// SPDX-License-Identifier: MIT OR Apache-2.0
//! The uprobes of marked functions, and the probes at the end of the kernel's uprobe handling,
//! where a task that has become wide leaves its CPU (bpf/leave.bpf.h).

use std::fmt::Display;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts, UprobeOpts, libbpf_sys as sys};

use crate::bpf::MainProgs;
use crate::config::Mark;
use crate::error::{Error, Result};
use crate::marks::{FileVersion, MarkRules, ResolvedMark};

/// The kernel's functions that run uprobe programs.
pub(super) const UPROBE_DONE: [&str; 3] =
    ["uprobe_notify_resume", "__x64_sys_uretprobe", "__x64_sys_uprobe"];

/// What became of a mark whose file was replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkChange {
    /// The mark.
    pub mark: Mark,
    /// Why it is not watched in the file as it is now; `None`: it is.
    pub lost: Option<String>,
}

/// The probes of the marks; they detach when dropped.
#[derive(Default)]
pub(super) struct Probes {
    pub(super) marks: Vec<Watched>,
    /// None is watched until they are set again.
    pub(super) are_lifted: bool,
    /// At the end of the kernel's uprobe handling; none before the first mark.
    done: Vec<Link>,
    pub(super) changes: Vec<MarkChange>,
}

/// A mark, and what watches it.
pub(super) struct Watched {
    pub(super) mark: Mark,
    /// Where it is in its file; nothing if no version had it that we have seen.
    pub(super) site: Option<ResolvedMark>,
    pub(super) links: Vec<Link>,
    /// Those of the version before, which programs that were started before still execute.
    pub(super) before: Vec<Link>,
    /// The file at the last look; nothing if there was none.
    pub(super) seen: Option<FileVersion>,
    /// Why it is not watched in the file as it is now.
    pub(super) lost: Option<String>,
}

impl Probes {
    /// Watch a marked function from now on.
    pub(super) fn add(&mut self, progs: &MainProgs<'_>, mark: &ResolvedMark) -> Result<()> {
        self.watch_end(progs)?;
        self.marks.push(Watched {
            mark: mark.mark.clone(),
            links: attach(progs, mark)?,
            before: Vec::new(),
            seen: Some(mark.version),
            lost: None,
            site: Some(mark.clone()),
        });
        Ok(())
    }

    /// Watch none of them, until they are set again.
    pub(super) fn lift(&mut self) {
        self.are_lifted = true;
        for watched in &mut self.marks {
            watched.links.clear();
            watched.before.clear();
        }
        self.done.clear();
    }

    /// Watch those again that were lifted, where they are in their files now.
    pub(super) fn set(&mut self, progs: &MainProgs<'_>, rules: MarkRules) -> Result<()> {
        self.follow_files(progs, rules);
        self.are_lifted = false;
        if !self.marks.is_empty() {
            self.watch_end(progs)?;
        }
        self.marks.iter_mut().filter(|watched| watched.links.is_empty()).for_each(|watched| {
            if watched.lost.is_none() {
                self.changes.extend(watched.attach(progs));
            }
        });
        Ok(())
    }

    /// Stop watching these; returns how many there were.
    pub(super) fn remove(&mut self, marks: &[Mark]) -> usize {
        let before = self.marks.len();
        self.marks.retain(|watched| !marks.contains(&watched.mark));
        before - self.marks.len()
    }

    /// Where the marks are.
    pub(super) fn sites(&self) -> impl Iterator<Item = &ResolvedMark> {
        self.marks.iter().filter_map(|watched| watched.site.as_ref())
    }

    /// Detach all.
    pub(super) fn clear(&mut self) {
        self.marks.clear();
        self.done.clear();
    }

    /// Watch the end of the kernel's uprobe handling; see bpf/leave.bpf.h for the two methods.
    pub(super) fn watch_end(&mut self, progs: &MainProgs<'_>) -> Result<()> {
        if !self.done.is_empty() {
            return Ok(());
        }
        if progs.tl_look_bell.autoload() {
            let done = [
                (&progs.tl_uprobe_done, UPROBE_DONE[0]),
                (&progs.tl_uretprobe_syscall_done, UPROBE_DONE[1]),
                (&progs.tl_uprobe_syscall_done, UPROBE_DONE[2]),
            ];
            let here = done.iter().filter(|(program, _)| program.autoload());
            let functions: Vec<&str> = here.map(|(_, function)| *function).collect();
            let bell = progs.tl_look_bell.attach();
            let over = progs.tl_uprobe_over.attach_kprobe_multi(true, functions);
            if let (Ok(bell), Ok(over)) = (bell, over) {
                self.done.extend([over, bell]);
                return Ok(());
            }
        }
        for program in
            [&progs.tl_uprobe_done, &progs.tl_uretprobe_syscall_done, &progs.tl_uprobe_syscall_done]
        {
            if program.autoload() {
                let link = program
                    .attach()
                    .map_err(|e| Error::failed("cannot watch the end of uprobes", e))?;
                self.done.push(link);
            }
        }
        Ok(())
    }
}

/// How often the kernel has left out a program of ours at a marked function.
pub(super) fn missed(progs: &MainProgs<'_>) -> u64 {
    let here = [
        &progs.tl_mark_session,
        &progs.tl_mark_enter,
        &progs.tl_mark_return,
        &progs.tl_uprobe_over,
        &progs.tl_look_bell,
        &progs.tl_uprobe_done,
        &progs.tl_uretprobe_syscall_done,
        &progs.tl_uprobe_syscall_done,
    ];
    here.iter().filter(|program| program.autoload()).map(|program| misses(program.as_fd())).sum()
}

/// Places the probes of a mark, in the version of its file in which it was found and in no other: a
/// breakpoint at a place of another version may be in the middle of an instruction.
pub(super) fn attach(progs: &MainProgs<'_>, mark: &ResolvedMark) -> Result<Vec<Link>> {
    let (_open, path) = mark.open().map_err(|e| not_placed(mark, e))?;
    if progs.tl_mark_session.autoload() {
        return Ok(vec![attach_session(&progs.tl_mark_session, mark, &path)?]);
    }
    let enter = attach_probe(&progs.tl_mark_enter, mark, &path, false)?;
    Ok(vec![attach_probe(&progs.tl_mark_return, mark, &path, true)?, enter])
}

fn attach_session(program: &ProgramMut<'_>, mark: &ResolvedMark, path: &Path) -> Result<Link> {
    let opts = UprobeMultiOpts {
        offsets: vec![mark.offset as usize],
        cookies: vec![mark.rule().0],
        session: true,
        ..Default::default()
    };
    let placed = program.attach_uprobe_multi_with_opts(-1, path, "", opts);
    placed.map_err(|e| not_placed(mark, format!("{e:#}")))
}

fn attach_probe(
    program: &ProgramMut<'_>,
    mark: &ResolvedMark,
    path: &Path,
    retprobe: bool,
) -> Result<Link> {
    let opts = UprobeOpts { cookie: mark.rule().0, retprobe, ..Default::default() };
    let placed = program.attach_uprobe_with_opts(-1, path, mark.offset as usize, opts);
    placed.map_err(|e| not_placed(mark, format!("{e:#}")))
}

fn not_placed(mark: &ResolvedMark, error: impl Display) -> Error {
    let place = format!("{}+{:#x}", mark.path.display(), mark.offset);
    let name = mark.symbol.as_deref().unwrap_or("no symbol");
    Error::failed(format!("cannot place a probe at {place} ({name})"), error)
}

/// How often the kernel has left out this program; 0 where it does not say so.
fn misses(program: BorrowedFd<'_>) -> u64 {
    let mut info = sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the descriptor is a program's, and the kernel writes no more than `size` bytes.
    let err =
        unsafe { sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size) };
    if err == 0 { info.recursion_misses } else { 0 }
}
