// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sections that are handed to helpers, with real masks on this machine: the lowest CPU is scalar,
//! all others are wide.

#[path = "../../hint/tests/common/mod.rs"]
mod common;

use common::{FakeDaemon, in_fork, in_process, sections_until};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::ThreadId;
use turbolane::page::{CPU_SCALAR_LEAVES, MODE_AFFINITY, MODE_SCX};
use turbolane::{Error, Ran, delegate, delegate_break_even_ns, wide_begin, wide_end};

/// The CPU of the calling thread.
fn cpu() -> u32 {
    // SAFETY: no arguments, no memory of ours.
    unsafe { libc::sched_getcpu() as u32 }
}

/// The CPUs of the calling thread's mask.
fn allowed() -> cpumodel::CpuSet {
    // SAFETY: no arguments, no memory of ours.
    hw::task::get_affinity(unsafe { libc::gettid() } as u32).unwrap()
}

fn me() -> ThreadId {
    std::thread::current().id()
}

/// The scalar CPU, where the calling thread stands now, and the daemon; `None` with one CPU only.
fn on_the_scalar_cpu(socket: &Path) -> Option<(u32, FakeDaemon)> {
    let cpus: Vec<usize> = allowed().iter().collect();
    let [scalar, _, ..] = cpus[..] else {
        eprintln!("skipped: one CPU");
        return None;
    };
    let daemon = FakeDaemon::start(socket, MODE_AFFINITY, 64).unwrap();
    daemon.set_cpus(|cpu| if cpu == scalar { 0 } else { 3 | CPU_SCALAR_LEAVES });
    common::await_served();
    let alone = || allowed().iter().eq([scalar]);
    sections_until("the thread narrows its mask", alone);
    Some((scalar as u32, daemon))
}

/// Waits until helpers of the level run: on a loaded machine the daemon's thread may need more than
/// their patience.
fn await_helpers(level: u32) {
    let is_handed_over = || delegate(level, 0, || ()).unwrap().1 == Ran::Delegated;
    sections_until("a section is handed over", is_handed_over);
}

/// A section of unknown length runs on a wide CPU, while its caller stays on its own; a short one
/// runs in place, a long one does not; levels that do not exist are refused.
#[test]
fn sections_run_where_it_pays() {
    in_process("sections_run_where_it_pays", |socket| {
        let Some((scalar, _daemon)) = on_the_scalar_cpu(socket) else { return };
        await_helpers(2);
        let ((thread, may_run, there), ran) = delegate(2, 0, || (me(), allowed(), cpu())).unwrap();
        assert_eq!(ran, Ran::Delegated);
        assert!(thread != me() && there != scalar, "it ran on CPU {there}");
        // Also if it was started on one of them by chance.
        assert!(!may_run.contains(scalar as usize), "it may run on {may_run}");
        assert_eq!(cpu(), scalar);
        let break_even_ns = delegate_break_even_ns(2).unwrap();
        assert!(break_even_ns > 0);
        assert_eq!(delegate(2, break_even_ns - 1, me).unwrap(), (me(), Ran::Here));
        assert_eq!(delegate(2, break_even_ns, cpu).unwrap().1, Ran::Delegated);
        assert_eq!(delegate(0, 0, me), Err(Error::InvalidLevel));
        assert_eq!(delegate(4, 0, me), Err(Error::InvalidLevel));
    });
}

/// Sections in a section, on the caller's side and on the helper's, run where they are.
#[test]
fn inner_sections_stay() {
    in_process("inner_sections_stay", |socket| {
        let Some(_setup) = on_the_scalar_cpu(socket) else { return };
        await_helpers(2);
        let outer = || (me(), delegate(1, 0, me).unwrap());
        let ((helper, inner), _) = delegate(2, 0, outer).unwrap();
        assert_eq!(inner, (helper, Ran::Here));
        wide_begin(1).unwrap();
        assert_eq!(delegate(2, 0, me).unwrap(), (me(), Ran::Here));
        wide_end().unwrap();
    });
}

/// A panic of a section is its caller's, wherever it ran; the next section is served.
#[test]
fn panics_are_the_callers() {
    in_process("panics_are_the_callers", |socket| {
        let Some(_setup) = on_the_scalar_cpu(socket) else { return };
        await_helpers(2);
        for expected_ns in [0, 1] {
            let panics = || delegate(2, expected_ns, || panic!("as it should"));
            let panic = std::panic::catch_unwind(panics).unwrap_err();
            assert_eq!(*panic.downcast::<&str>().unwrap(), "as it should");
            assert_eq!(delegate(2, 0, || 7).unwrap(), (7, Ran::Delegated));
        }
    });
}

/// Without a daemon, under sched_ext, and where no CPU is wide, sections run in place; so they do
/// when the daemon has ended, and are handed over again when the next one is there.
#[test]
fn without_a_wide_cpu_sections_run_in_place() {
    in_process("without_a_wide_cpu_sections_run_in_place", |socket| {
        assert_eq!(delegate(2, 0, me).unwrap(), (me(), Ran::Here));
        let Some((_, daemon)) = on_the_scalar_cpu(socket) else { return };
        daemon.page.header.mode.store(MODE_SCX, Relaxed);
        assert_eq!(delegate(2, 0, me).unwrap(), (me(), Ran::Here));
        assert_eq!(delegate_break_even_ns(2), None);
        daemon.page.header.mode.store(MODE_AFFINITY, Relaxed);
        daemon.set_cpus(|_| 0);
        assert_eq!(delegate(1, 0, me).unwrap(), (me(), Ran::Here));
        daemon.stop();
        assert_eq!(delegate(2, 0, me).unwrap(), (me(), Ran::Here));
        let Some(_setup) = on_the_scalar_cpu(socket) else { return };
        await_helpers(2);
    });
}

/// On a machine whose levels cost no clock, sections run in place.
#[test]
fn where_no_level_costs_clock_sections_run_in_place() {
    in_process("where_no_level_costs_clock_sections_run_in_place", |socket| {
        let Some((_, daemon)) = on_the_scalar_cpu(socket) else { return };
        daemon.page.header.lacks_q10[2].store(0, Relaxed);
        assert_eq!(delegate(2, 0, me).unwrap(), (me(), Ran::Here));
        assert_eq!(delegate_break_even_ns(2), None);
        await_helpers(1);
    });
}

/// Many threads that come and go have all their sections run, once each.
#[test]
fn threads_come_and_go() {
    in_process("threads_come_and_go", |socket| {
        let Some(_setup) = on_the_scalar_cpu(socket) else { return };
        await_helpers(1);
        let (run, delegated) = (AtomicU32::new(0), AtomicU32::new(0));
        for _ in 0..10 {
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        for _ in 0..20 {
                            let ran = delegate(1, 0, || run.fetch_add(1, Relaxed)).unwrap().1;
                            delegated.fetch_add(u32::from(ran == Ran::Delegated), Relaxed);
                        }
                    });
                }
            });
        }
        assert_eq!(run.load(Relaxed), 10 * 8 * 20);
        assert!(delegated.load(Relaxed) > 0);
    });
}

/// A forked child has no helper; it starts its own, and the parent keeps its.
#[test]
fn a_forked_child_has_helpers_of_its_own() {
    in_process("a_forked_child_has_helpers_of_its_own", |socket| {
        let Some(_setup) = on_the_scalar_cpu(socket) else { return };
        await_helpers(2);
        let helper = || delegate(2, 0, || (me(), std::process::id())).unwrap();
        assert_eq!(helper().1, Ran::Delegated);
        let in_child = || {
            let parent = delegate(2, 0, std::process::id).unwrap();
            await_helpers(2);
            parent.0 == std::process::id() && helper().0.1 == std::process::id()
        };
        assert!(in_fork(in_child));
        assert_eq!(helper().1, Ran::Delegated);
    });
}

/// The C function runs its section once with its argument, and says who ran it; it refuses a level
/// that does not exist and a missing section. Signals that the process takes are not the helper's
/// business.
#[test]
fn the_c_function_delegates() {
    unsafe extern "C" fn count(argument: *mut std::ffi::c_void) {
        // SAFETY: the argument is the counter below.
        unsafe { &*argument.cast::<AtomicU32>() }.fetch_add(1, Relaxed);
        // SAFETY: a set is numbers; the call fills it with this thread's.
        let blocked = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
            libc::sigismember(&set, libc::SIGTERM) == 1
        };
        // SAFETY: as above.
        unsafe { &*argument.cast::<AtomicU32>() }.fetch_add(u32::from(blocked) << 8, Relaxed);
    }
    in_process("the_c_function_delegates", |socket| {
        let ran = AtomicU32::new(0);
        let call = |level, expected_ns| {
            let argument = (&raw const ran).cast_mut().cast();
            // SAFETY: the section takes a counter, which may be used by any thread.
            unsafe { turbolane::tl_delegate(level, expected_ns, Some(count), argument) }
        };
        assert_eq!(call(2, 0), turbolane::TL_RAN_HERE);
        let Some(_setup) = on_the_scalar_cpu(socket) else { return };
        await_helpers(2);
        assert_eq!(call(2, 0), turbolane::TL_RAN_DELEGATED);
        assert_eq!(call(2, 1), turbolane::TL_RAN_HERE);
        assert_eq!(ran.load(Relaxed), 3 + (1 << 8), "three runs, one with signals blocked");
        assert_eq!(call(0, 0), -libc::EINVAL);
        // SAFETY: there is no section.
        let none = unsafe { turbolane::tl_delegate(2, 0, None, std::ptr::null_mut()) };
        assert_eq!(none, -libc::EINVAL);
        assert_eq!(turbolane::tl_delegate_break_even_ns(0), 0);
        assert!(turbolane::tl_delegate_break_even_ns(2) > 1);
        assert_eq!(ran.load(Relaxed), 3 + (1 << 8), "refused calls ran nothing");
    });
}
