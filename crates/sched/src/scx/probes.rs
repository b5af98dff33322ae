// SPDX-License-Identifier: MIT OR Apache-2.0
//! The uprobes of marked functions, and the probes at the end of the kernel's uprobe handling,
//! where a task that has become wide leaves its CPU (bpf/leave.bpf.h).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts, UprobeOpts, libbpf_sys as sys};

use crate::bpf::MainProgs;
use crate::error::{Error, Result};
use crate::marks::ResolvedMark;

/// The kernel's functions that run uprobe programs.
pub(super) const UPROBE_DONE: [&str; 3] =
    ["uprobe_notify_resume", "__x64_sys_uretprobe", "__x64_sys_uprobe"];

/// The probes of the marks; they detach when dropped.
#[derive(Default)]
pub(super) struct Probes {
    /// With their links: none while they are lifted.
    marks: Vec<(ResolvedMark, Vec<Link>)>,
    /// At the end of the kernel's uprobe handling; none before the first mark.
    done: Vec<Link>,
}

impl Probes {
    /// Watch a marked function from now on.
    pub(super) fn add(&mut self, progs: &MainProgs<'_>, mark: &ResolvedMark) -> Result<()> {
        if self.done.is_empty() {
            self.watch_end(progs)?;
        }
        self.marks.push((mark.clone(), attach(progs, mark)?));
        Ok(())
    }

    /// Watch none of them, until they are set again.
    pub(super) fn lift(&mut self) {
        self.marks.iter_mut().for_each(|(_, links)| links.clear());
        self.done.clear();
    }

    /// Watch those again that were lifted.
    pub(super) fn set(&mut self, progs: &MainProgs<'_>) -> Result<()> {
        if self.done.is_empty() && !self.marks.is_empty() {
            self.watch_end(progs)?;
        }
        for (mark, links) in self.marks.iter_mut().filter(|(_, links)| links.is_empty()) {
            *links = attach(progs, mark)?;
        }
        Ok(())
    }

    /// Stop watching the marks for which `matches` holds; returns how many there were.
    pub(super) fn remove(&mut self, matches: impl Fn(&ResolvedMark) -> bool) -> usize {
        let before = self.marks.len();
        self.marks.retain(|(mark, _)| !matches(mark));
        before - self.marks.len()
    }

    /// The marks that are watched.
    pub(super) fn marks(&self) -> impl Iterator<Item = &ResolvedMark> {
        self.marks.iter().map(|(mark, _)| mark)
    }

    /// Detach all.
    pub(super) fn clear(&mut self) {
        self.marks.clear();
        self.done.clear();
    }

    /// Watch the end of the kernel's uprobe handling; see bpf/leave.bpf.h for the two methods.
    fn watch_end(&mut self, progs: &MainProgs<'_>) -> Result<()> {
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

fn attach(progs: &MainProgs<'_>, mark: &ResolvedMark) -> Result<Vec<Link>> {
    if progs.tl_mark_session.autoload() {
        return Ok(vec![attach_session(&progs.tl_mark_session, mark)?]);
    }
    let enter = attach_probe(&progs.tl_mark_enter, mark, false)?;
    Ok(vec![attach_probe(&progs.tl_mark_return, mark, true)?, enter])
}

fn attach_session(program: &ProgramMut<'_>, mark: &ResolvedMark) -> Result<Link> {
    let opts = UprobeMultiOpts {
        offsets: vec![mark.offset as usize],
        cookies: vec![mark.rule().0],
        session: true,
        ..Default::default()
    };
    let placed = program.attach_uprobe_multi_with_opts(-1, &mark.path, "", opts);
    placed.map_err(|e| not_placed(mark, &e))
}

fn attach_probe(program: &ProgramMut<'_>, mark: &ResolvedMark, retprobe: bool) -> Result<Link> {
    let opts = UprobeOpts { cookie: mark.rule().0, retprobe, ..Default::default() };
    let placed = program.attach_uprobe_with_opts(-1, &mark.path, mark.offset as usize, opts);
    placed.map_err(|e| not_placed(mark, &e))
}

fn not_placed(mark: &ResolvedMark, error: &libbpf_rs::Error) -> Error {
    let place = format!("{}+{:#x}", mark.path.display(), mark.offset);
    let name = mark.symbol.as_deref().unwrap_or("no symbol");
    Error::failed(format!("cannot place a probe at {place} ({name})"), format!("{error:#}"))
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
