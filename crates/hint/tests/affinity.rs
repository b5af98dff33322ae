// SPDX-License-Identifier: MIT OR Apache-2.0
//! Affinity mode, with real masks on this machine: the lowest CPU is scalar, all others are wide.

mod common;

use common::{FakeDaemon, in_fork, in_process, sections_until};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use turbolane_hint::page::{CPU_SCALAR_LEAVES, MODE_AFFINITY, Mask, mask_hash};
use turbolane_hint::{Status, wide_begin, wide_end, wide_status};

fn current() -> Mask {
    let mut mask = Mask::default();
    let bytes = size_of::<Mask>();
    // SAFETY: writes at most the given number of bytes to the local mask.
    assert_eq!(unsafe { libc::sched_getaffinity(0, bytes, mask.as_mut_ptr().cast()) }, 0);
    mask
}

fn set(mask: &Mask) {
    let bytes = size_of::<Mask>();
    // SAFETY: reads the given number of bytes of the mask.
    assert_eq!(unsafe { libc::sched_setaffinity(0, bytes, mask.as_ptr().cast()) }, 0);
}

struct Setup {
    daemon: FakeDaemon,
    original: Mask,
    scalar: Mask,
    wide: Mask,
}

impl Setup {
    /// The calling thread's mask has been narrowed to the scalar CPU. `None` with one CPU only.
    fn new(socket: &Path) -> Option<Setup> {
        let original = current();
        let lowest_word = original.iter().position(|word| *word != 0).unwrap();
        let mut scalar = Mask::default();
        scalar[lowest_word] = 1 << original[lowest_word].trailing_zeros();
        let wide: Mask = std::array::from_fn(|i| original[i] & !scalar[i]);
        if wide == Mask::default() {
            eprintln!("skipped: one CPU");
            return None;
        }
        let daemon = FakeDaemon::start(socket, MODE_AFFINITY, 64).unwrap();
        daemon.set_cpus(|cpu| match scalar[cpu / 64] >> (cpu % 64) & 1 {
            1 => 0,
            _ => 3 | CPU_SCALAR_LEAVES,
        });
        common::await_served();
        assert_eq!(wide_status(), Status::Affinity);
        // With the original mask the kernel may carry the thread to the scalar CPU by itself.
        sections_until("the thread narrows its mask", || current() == scalar);
        Some(Setup { daemon, original, scalar, wide })
    }

    fn requests(&self) -> usize {
        self.daemon.requests.lock().unwrap().len()
    }
}

/// A section runs on the wide CPUs, what follows on the scalar one; both masks are announced.
#[test]
fn masks_follow_the_sections() {
    in_process("masks_follow_the_sections", |socket| {
        let Some(setup) = Setup::new(socket) else { return };
        wide_begin(1).unwrap();
        assert_eq!(current(), setup.wide);
        wide_begin(3).unwrap();
        wide_end().unwrap();
        assert_eq!(current(), setup.wide);
        wide_end().unwrap();
        assert_eq!(current(), setup.scalar);
        let narrowed = |level: usize| setup.daemon.page.slot[0].narrowed[level].load(Relaxed);
        assert_eq!(narrowed(0), mask_hash(&setup.scalar));
        assert_eq!(narrowed(1), mask_hash(&setup.wide));
        assert_eq!(setup.requests(), 1);
    });
}

/// Where no CPU is fit, or none is scalar, the thread has its original mask.
#[test]
fn no_fit_cpu_means_the_original_mask() {
    in_process("no_fit_cpu_means_the_original_mask", |socket| {
        let Some(setup) = Setup::new(socket) else { return };
        setup.daemon.set_cpus(|_| 0);
        wide_begin(1).unwrap();
        assert_eq!(current(), setup.original);
        setup.daemon.set_cpus(|_| 3 | CPU_SCALAR_LEAVES);
        wide_end().unwrap();
        assert_eq!(current(), setup.original);
    });
}

/// A mask that somebody else has set is the thread's own from then on: the daemon is told, and
/// sections stay within it.
#[test]
fn mask_set_by_the_user_is_respected() {
    in_process("mask_set_by_the_user_is_respected", |socket| {
        let Some(setup) = Setup::new(socket) else { return };
        set(&setup.wide);
        sections_until("the change is noticed", || setup.requests() == 2);
        for _ in 0..3 {
            wide_begin(2).unwrap();
            assert_eq!(current(), setup.wide);
            wide_end().unwrap();
            assert_eq!(current(), setup.wide, "has no scalar CPU to go to");
        }
        assert_eq!(setup.requests(), 2);
    });
}

/// When the scheduler is gone, the next begin or end brings the original mask back, unless it is
/// not ours any more.
#[test]
fn original_mask_comes_back() {
    in_process("original_mask_comes_back", |socket| {
        let Some(setup) = Setup::new(socket) else { return };
        setup.daemon.page.header.active.store(0, Relaxed);
        wide_begin(1).unwrap();
        assert_eq!(current(), setup.original);
        wide_end().unwrap();

        setup.daemon.page.header.active.store(1, Relaxed);
        sections_until("the thread narrows its mask again", || current() == setup.scalar);
        setup.daemon.page.header.active.store(0, Relaxed);
        set(&setup.wide);
        wide_begin(1).unwrap();
        assert_eq!(current(), setup.wide);
    });
}

/// What a narrowed thread creates, threads and forked children, does not stay confined.
#[test]
fn inherited_masks_are_shed() {
    in_process("inherited_masks_are_shed", |socket| {
        let Some(setup) = Setup::new(socket) else { return };
        let (original, scalar, wide) = (setup.original, setup.scalar, setup.wide);
        std::thread::spawn(move || {
            assert_eq!(current(), scalar, "inherited");
            wide_status();
            assert_eq!(current(), original);
            sections_until("it narrows its mask", || current() == scalar);
            wide_begin(1).unwrap();
            assert_eq!(current(), wide);
        })
        .join()
        .unwrap();
        assert!(in_fork(|| current() == original));
        assert_eq!(current(), scalar, "the parent's mask is as it was");
    });
}
