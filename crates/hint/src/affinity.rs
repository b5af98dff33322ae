// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fallback for kernels without sched_ext: a thread keeps its wide and its scalar code apart by
//! changing its own affinity mask.
//!
//! Idea: where the scheduler would move the thread, the thread narrows its mask to those of its
//! CPUs that may run the section, and at the section's end to its scalar CPUs. What it started
//! with, its *original* mask, is always the frame: a narrowed mask is a part of it, and where that
//! part is empty the thread stays on the original mask.
//!
//! Masks belong to the user. If the current mask is not the one we set, another program changed it:
//! it is then the new original, and the daemon is asked for the slot again, since it reads the mask
//! there (it restores masks when everything ends, even by `kill -9`). To distinguish our masks from
//! others, the thread leaves their hashes in its slot *before* it takes them.
//!
//! Inheritance: new threads and forked children inherit the narrowed mask of their creator, which
//! they would take for their original. So the process remembers which narrowed masks belong to
//! which original (`Remembered`), and a thread that starts with such a mask first widens itself. (A
//! thread that its user pinned to exactly such a mask cannot be distinguished, and is widened too.)
//! Threads that never open a section keep what they inherited, until the daemon's end restores
//! them; so do programs started by `posix_spawn`. That, the cost (about 15 us per move), and that
//! other programs' tasks stay where they are, make this a fallback.

use crate::page::{Board, CPU_LEVEL, Mask, mask_hash};
use crate::scheduler::Link;
use crate::thread_local::these_masks;
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The thread's mask is as it should be, or cannot be changed.
    Done,
    /// The mask is neither the original nor ours; nothing was changed.
    NotOurs,
}

/// Takes the current mask as the original: right after registration, when no mask is ours.
pub(crate) fn enrol() {
    let masks = these_masks();
    masks.ours.set(None);
    if let Some(mask) = current() {
        masks.original.set(mask);
    }
}

/// Takes the mask for code of `level`, 0 = scalar.
pub(crate) fn settle(link: Link, level: u32) -> Settled {
    let masks = these_masks();
    let Some(current) = current() else {
        return Settled::Done;
    };
    let original = masks.original.get();
    if current != masks.ours.get().unwrap_or(original) {
        return Settled::NotOurs;
    }
    let target = part_for(link.board, &original, level).unwrap_or(original);
    if target == current {
        return Settled::Done;
    }
    let hash = mask_hash(&target);
    if let Some(narrowed) = link.slot.narrowed.get(level as usize)
        && narrowed.swap(hash, Relaxed) != hash
    {
        remember(hash, &original);
    }
    if apply(&target) {
        masks.ours.set(Some(target));
    }
    // Daemon: clear active, fence, restore masks. Here: set the mask, fence, look at active.
    // One of the two sees the other, so that no narrowed mask remains.
    fence(SeqCst);
    if !link.board.is_active() {
        restore();
    }
    Settled::Done
}

/// Takes the original mask, unless another program has changed ours.
pub(crate) fn restore() {
    let masks = these_masks();
    if let Some(ours) = masks.ours.take()
        && current() == Some(ours)
    {
        apply(&masks.original.get());
    }
}

/// In the child of a fork: takes back the mask that the parent narrowed, and opens the lock that
/// a thread of the parent may have held.
pub(crate) fn in_child() {
    REMEMBERED.is_locked.store(false, Relaxed);
    restore();
}

/// If the thread, not served yet, started with a mask that another thread of this process had
/// given itself, takes that thread's original mask.
pub(crate) fn shed_inherited() {
    if REMEMBERED.is_used.load(Relaxed)
        && let Some(original) = current().and_then(|mask| recall(mask_hash(&mask)))
    {
        apply(&original);
    }
}

/// The part of `original` that may run code of `level` (for 0: the scalar CPUs); `None` if empty.
fn part_for(page: &Board, original: &Mask, level: u32) -> Option<Mask> {
    let mut part = Mask::default();
    for cpu in cpus(original) {
        let flags = page.cpu_flags(cpu as u32).unwrap_or(0);
        let cpu_level = u32::from(flags & CPU_LEVEL);
        let is_fit = match level {
            0 => cpu_level == 0,
            level => cpu_level >= level,
        };
        if is_fit && let Some(word) = part.get_mut(cpu / 64) {
            *word |= 1 << (cpu % 64);
        }
    }
    (part != Mask::default()).then_some(part)
}

/// The CPUs of a mask, ascending.
pub(crate) fn cpus(mask: &Mask) -> impl Iterator<Item = usize> {
    let words = mask.iter().copied().enumerate();
    words.flat_map(|(i, word)| {
        (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * i + bit)
    })
}

/// How many CPUs that may run code of `level` the calling thread's original mask holds.
pub fn original_cpus(page: &Board, level: u32) -> usize {
    let part = part_for(page, &these_masks().original.get(), level);
    part.map_or(0, |part| cpus(&part).count())
}

/// True if the calling thread's mask holds a CPU of a level that serves it. Asks the kernel.
pub(crate) fn reaches(page: &Board, level: u32) -> bool {
    current().is_some_and(|mask| part_for(page, &mask, level).is_some())
}

/// The calling thread's mask; `None` on a machine with more CPUs than a mask holds.
pub(crate) fn current() -> Option<Mask> {
    let mut mask = Mask::default();
    // SAFETY: writes at most the given number of bytes to the local mask.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<Mask>(), mask.as_mut_ptr().cast()) };
    (result == 0).then_some(mask)
}

/// Sets the calling thread's mask; false if the kernel refused.
pub(crate) fn apply(mask: &Mask) -> bool {
    // SAFETY: reads the given number of bytes of the mask.
    unsafe { libc::sched_setaffinity(0, size_of::<Mask>(), mask.as_ptr().cast()) == 0 }
}

/// The narrowed masks of this process, most recent last: their hashes, and the originals they are
/// parts of. 16 are enough for 4 groups of threads with different originals; what is forgotten is
/// only not recognised when inherited.
struct Remembered {
    /// False while the list is empty: spares threads that are not served the look.
    is_used: AtomicBool,
    is_locked: AtomicBool,
    list: UnsafeCell<[(u64, Mask); 16]>,
}

// SAFETY: the list is accessed under the lock only.
unsafe impl Sync for Remembered {}

static REMEMBERED: Remembered = Remembered {
    is_used: AtomicBool::new(false),
    is_locked: AtomicBool::new(false),
    list: UnsafeCell::new([(0, [0; _]); 16]),
};

fn remember(hash: u64, original: &Mask) {
    REMEMBERED.is_used.store(true, Relaxed);
    REMEMBERED.with_list(|list| {
        // From its end on, each entry moves one place towards the beginning, over the oldest one or
        // over this hash's own.
        let mut moving = (hash, *original);
        for entry in list.iter_mut().rev() {
            core::mem::swap(entry, &mut moving);
            if moving.0 == hash {
                break;
            }
        }
    });
}

fn recall(hash: u64) -> Option<Mask> {
    REMEMBERED.with_list(|list| {
        let found = list.iter().find(|(known, _)| *known == hash)?;
        Some(found.1)
    })?
}

impl Remembered {
    /// Runs `f` on the list; `None` if the lock was not to be had. Waiting is bounded: a signal
    /// handler must not wait for the thread that it interrupted, nor a forked child for a thread
    /// that exists only in the parent. What is lost then is one entry or one look.
    fn with_list<T>(&self, f: impl FnOnce(&mut [(u64, Mask); 16]) -> T) -> Option<T> {
        const TRIES: usize = 1000;
        let is_free = || {
            let lock = &self.is_locked;
            let result = lock.compare_exchange_weak(false, true, Acquire, Relaxed);
            core::hint::spin_loop();
            result.is_ok()
        };
        if !(0..TRIES).any(|_| is_free()) {
            return None;
        }
        // SAFETY: the lock is held, so this is the only reference to the list.
        let result = f(unsafe { &mut *self.list.get() });
        self.is_locked.store(false, Release);
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn mask(cpus: &[usize]) -> Mask {
        let mut mask = Mask::default();
        for cpu in cpus {
            mask[cpu / 64] |= 1 << (cpu % 64);
        }
        mask
    }

    /// The most recent 16 narrowed masks are known, each with its original; older ones are not,
    /// and one that is used again counts as recent.
    #[test]
    fn remembers_the_recent_ones() {
        let list = |range: std::ops::RangeInclusive<u64>| {
            for hash in range {
                remember(hash, &mask(&[hash as usize]));
            }
        };
        list(1..=16);
        list(1..=1);
        list(17..=17);
        assert_eq!(recall(1), Some(mask(&[1])));
        assert_eq!(recall(2), None);
        assert_eq!(recall(3), Some(mask(&[3])));
        assert_eq!(recall(17), Some(mask(&[17])));
    }

    /// The CPUs of a mask are those that were put in, across words.
    #[test]
    fn cpus_of_a_mask() {
        let expected = [0, 1, 63, 64, 1023];
        assert_eq!(cpus(&mask(&expected)).collect::<Vec<_>>(), expected);
    }
}
