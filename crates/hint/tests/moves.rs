// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a thread gives up its CPU: counted by a `sched_yield` of this program's own, which the
//! library, linked in, calls in libc's place.

mod common;

use common::{FakeDaemon, in_process};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use turbolane_hint::page::{CPU_SCALAR_LEAVES, MODE_SCX};
use turbolane_hint::{Error, WideSection, scalar_for, wide_begin, wide_end};

static YIELDS: AtomicU32 = AtomicU32::new(0);
/// At this yield all CPUs become fit, as if the scheduler had moved the thread; 0: never.
static FIT_AT: AtomicU32 = AtomicU32::new(0);
static PAGE: std::sync::OnceLock<common::Pages> = std::sync::OnceLock::new();

#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> i32 {
    let count = YIELDS.fetch_add(1, Relaxed) + 1;
    if count == FIT_AT.load(Relaxed) {
        PAGE.get().unwrap().cpu.iter().for_each(|flags| flags.store(3, Relaxed));
    }
    0
}

/// How often `body` yields; the page's CPUs become fit at yield number `fit_at`.
fn yields(fit_at: u32, body: impl FnOnce()) -> u32 {
    YIELDS.store(0, Relaxed);
    FIT_AT.store(fit_at, Relaxed);
    body();
    YIELDS.load(Relaxed)
}

fn section(level: u32) {
    wide_begin(level).unwrap();
    wide_end().unwrap();
}

fn start(socket: &Path) -> FakeDaemon {
    let daemon = FakeDaemon::start(socket, MODE_SCX, 8).unwrap();
    PAGE.set(daemon.page).unwrap();
    daemon.make_all_fit();
    common::await_served();
    daemon.set_cpus(|_| 0);
    daemon
}

/// On a CPU that may run the section nothing moves; at a lower level it yields, and once it has
/// been moved it yields no more.
#[test]
fn yields_until_fit() {
    in_process("yields_until_fit", |socket| {
        let daemon = start(socket);
        daemon.set_cpus(|_| 2);
        assert_eq!(yields(0, || section(1)), 0);
        assert_eq!(yields(0, || section(2)), 0);
        assert_eq!(yields(1, || section(3)), 1);
        daemon.set_cpus(|_| 0);
        assert_eq!(yields(2, || section(1)), 2);
    });
}

/// A thread that cannot be helped yields three times, then not again for 63 sections.
#[test]
fn resigns_where_no_cpu_is_fit() {
    in_process("resigns_where_no_cpu_is_fit", |socket| {
        let _daemon = start(socket);
        assert_eq!(yields(0, || section(1)), 3);
        assert_eq!(yields(0, || (0..63).for_each(|_| section(1))), 0);
        assert_eq!(yields(0, || section(1)), 3);
    });
}

/// Only a section that raises the level has to move; only the end of the outermost one leaves.
#[test]
fn nested_sections_move_as_little_as_possible() {
    in_process("nested_sections_move_as_little_as_possible", |socket| {
        let daemon = start(socket);
        daemon.set_cpus(|_| 2 | CPU_SCALAR_LEAVES);
        let outer = WideSection::enter(1).unwrap();
        assert_eq!(yields(0, || section(1)), 0);
        assert_eq!(yields(0, || section(2)), 0);
        assert_eq!(yields(1, || wide_begin(3).unwrap()), 1);
        daemon.set_cpus(|_| 2 | CPU_SCALAR_LEAVES);
        assert_eq!(yields(0, || wide_end().unwrap()), 0, "back to level 1, stays");
        assert_eq!(yields(0, || drop(outer)), 1, "scalar now, leaves");
    });
}

/// A scalar thread leaves a wide CPU only if it was asked to, and only while a scheduler runs.
#[test]
fn scalar_leaves_when_asked() {
    in_process("scalar_leaves_when_asked", |socket| {
        let daemon = start(socket);
        daemon.set_cpus(|_| 3);
        assert_eq!(yields(0, || section(1)), 0);
        daemon.set_cpus(|_| 3 | CPU_SCALAR_LEAVES);
        assert_eq!(yields(0, || section(1)), 1);
        daemon.page.header.active.store(0, Relaxed);
        assert_eq!(yields(0, || section(1)), 0);
    });
}

/// A short scalar phase that is announced is spent where the thread is: no yield, and the slot
/// still says its level, until when, and that this is of the last section. A long one, an unknown
/// one and one inside of another section are ends like any other; where the daemon knows no rests
/// all are.
#[test]
fn short_phases_are_rests() {
    in_process("short_phases_are_rests", |socket| {
        let daemon = start(socket);
        daemon.set_cpus(|_| 3 | CPU_SCALAR_LEAVES);
        let slot = || daemon.page.slot.iter().find(|slot| slot.tid.load(Relaxed) != 0).unwrap();
        let rests = || {
            let number = slot().seq.load(Relaxed);
            slot().want.load(Relaxed) == 2 && slot().rest_seq.load(Relaxed) == number
        };
        let section_then = |phase_ns| {
            wide_begin(2).unwrap();
            scalar_for(phase_ns).unwrap();
        };
        assert_eq!(yields(0, || section_then(5_000)), 1, "the daemon knows no rests");
        daemon.page.header.rest_below_ns.store(10_000, Relaxed);
        for _ in 0..3 {
            assert_eq!(yields(0, || section_then(9_999)), 0);
            assert!(rests() && slot().rest_until_ns.load(Relaxed) > 0);
            assert_eq!(scalar_for(1), Err(Error::NotOpen), "the section is closed");
        }
        wide_begin(2).unwrap();
        assert!(!rests(), "the next section voids the rest");
        assert_eq!(yields(0, || section_then(5_000)), 0, "an inner section");
        assert!(!rests(), "still in the outer one");
        assert_eq!(yields(0, || scalar_for(0).unwrap()), 1);
        assert_eq!(slot().want.load(Relaxed), 0);
        assert_eq!(yields(0, || section_then(10_000)), 1, "as long as the way there and back");
        assert_eq!(slot().want.load(Relaxed), 0);
        daemon.page.header.active.store(0, Relaxed);
        section_then(5_000);
        assert!(!rests(), "nobody looks");
    });
}
