// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which wake-ups end a sleep, and when.
//!
//! Problem: a wake-up is recorded when the waker requests it. The task may still run then, just
//! before it sleeps. Mostly it notices and goes on running; that is no wake-up. Or it was past the
//! point where it would have noticed: it stops, and is runnable at once.
//!
//! ```text
//! asked        stops          runs again
//!   | runs ------+-- sleeps? ---+
//! ```
//!
//! Idea: the records of the CPU show whether it ran. If the kernel had taken it from its queue
//! already, it could not notice: it is woken when it stops. Otherwise it is open until the next
//! record of it after its stop. If that is another wake-up, then the first one was noticed, and the
//! stop a later one. If the task runs again without one, it was woken when it stopped.

use std::collections::BTreeMap;

use trace::{What, Why};

/// A wake-up of a task that ran.
#[derive(Clone, Copy, Debug)]
struct Early {
    waker: u32,
    /// It had left its queue, and so must stop.
    off: bool,
    /// When it has stopped to sleep.
    stopped_ns: Option<u64>,
}

/// What has been recorded so far, as far as it matters here.
#[derive(Default)]
pub(super) struct Wakes {
    /// The task that runs, by CPU; 0: none, or not known.
    running: Vec<u32>,
    /// By task: a few.
    early: BTreeMap<u32, Early>,
}

impl Wakes {
    /// The waker asks; `cpu`: where the task runs or ran last; `off`: it is on no queue. Returns
    /// what has happened by that.
    pub(super) fn asked(&mut self, tid: u32, waker: u32, cpu: u32, off: bool) -> Option<What> {
        if self.running.get(cpu as usize) == Some(&tid) {
            self.early.insert(tid, Early { waker, off, stopped_ns: None });
            return None;
        }
        self.forget(tid);
        Some(wake(waker, 0))
    }

    /// The task has stopped. Returns what happened to it at that moment.
    pub(super) fn stops(&mut self, tid: u32, at_ns: u64, why: Why) -> Option<What> {
        if self.early.is_empty() {
            return None;
        }
        let early = self.early.get_mut(&tid)?;
        let sleeps = matches!(why, Why::Sleeps | Why::Blocks);
        if sleeps && !early.off {
            early.stopped_ns = Some(at_ns);
            return None;
        }
        let Early { waker, .. } = self.forget(tid)?;
        sleeps.then(|| wake(waker, 0))
    }

    /// The task starts on the CPU. Returns what must have happened to it before.
    pub(super) fn starts(&mut self, tid: u32, at_ns: u64, cpu: u16) -> Option<What> {
        let cpu = usize::from(cpu);
        if cpu >= self.running.len() {
            self.running.resize(cpu + 1, 0);
        }
        self.running[cpu] = tid;
        let Early { waker, stopped_ns, .. } = self.forget(tid)?;
        let delay_ns = at_ns.saturating_sub(stopped_ns?);
        Some(wake(waker, u32::try_from(delay_ns).unwrap_or(u32::MAX)))
    }

    fn forget(&mut self, tid: u32) -> Option<Early> {
        // Nearly always.
        if self.early.is_empty() {
            return None;
        }
        self.early.remove(&tid)
    }
}

fn wake(waker: u32, delay_ns: u32) -> What {
    What::Wake { waker, delay_ns, new: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: u16 = 3;

    /// Task 7 runs on CPU 3.
    fn running() -> Wakes {
        let mut wakes = Wakes::default();
        assert_eq!(wakes.starts(7, 10, CPU), None);
        wakes
    }

    fn asked(wakes: &mut Wakes, off: bool) -> Option<What> {
        wakes.asked(7, 99, CPU.into(), off)
    }

    /// Who sleeps is woken when the waker asks, whatever the queue says: since 6.12 a sleeper may
    /// be left on it.
    #[test]
    fn a_sleeper_is_woken_at_once() {
        for off in [true, false] {
            let mut wakes = running();
            assert_eq!(wakes.stops(7, 20, Why::Sleeps), None);
            assert_eq!(wakes.starts(0, 20, CPU), None);
            assert_eq!(asked(&mut wakes, off), Some(wake(99, 0)));
            assert_eq!(wakes.starts(7, 40, CPU), None);
        }
        // Of one that was never seen nothing is known.
        assert_eq!(asked(&mut Wakes::default(), false), Some(wake(99, 0)));
    }

    /// Who has left its queue is woken by its stop.
    #[test]
    fn who_is_about_to_stop_is_woken_then() {
        for why in [Why::Sleeps, Why::Blocks] {
            let mut wakes = running();
            assert_eq!(asked(&mut wakes, true), None);
            assert_eq!(wakes.stops(7, 20, why), Some(wake(99, 0)));
            assert_eq!(wakes.starts(7, 40, CPU), None);
        }
    }

    /// Who noticed, or was preempted, or has ended, is not woken.
    #[test]
    fn who_goes_on_is_not_woken() {
        let mut wakes = running();
        assert_eq!(asked(&mut wakes, false), None);
        // Much later it sleeps, and then is woken by another, once.
        assert_eq!(wakes.stops(7, 20, Why::Sleeps), None);
        assert_eq!(wakes.starts(0, 20, CPU), None);
        assert_eq!(wakes.asked(7, 98, CPU.into(), true), Some(wake(98, 0)));
        assert_eq!(wakes.starts(7, 40, CPU), None);
        for why in [Why::Preempted, Why::Ends] {
            for off in [true, false] {
                assert_eq!(asked(&mut wakes, off), None);
                assert_eq!(wakes.stops(7, 50, why), None);
                assert_eq!(wakes.starts(0, 50, CPU), None);
                assert_eq!(wakes.starts(7, 60, CPU), None);
            }
        }
        assert!(wakes.early.is_empty());
    }

    /// Who runs again without another wake-up was woken when it stopped, and has waited since.
    #[test]
    fn who_runs_again_was_woken() {
        let mut wakes = running();
        assert_eq!(asked(&mut wakes, false), None);
        assert_eq!(wakes.stops(7, 20, Why::Blocks), None);
        assert_eq!(wakes.starts(8, 20, CPU), None);
        assert_eq!(wakes.starts(7, 45, CPU + 1), Some(wake(99, 25)));
        assert_eq!(wakes.stops(7, 50, Why::Sleeps), None);
        assert_eq!(wakes.starts(7, 20 + (1 << 33), CPU), None);
        assert_eq!(asked(&mut wakes, false), None);
        assert_eq!(wakes.stops(7, 20, Why::Blocks), None);
        assert_eq!(wakes.starts(7, 20 + (1 << 32), CPU), Some(wake(99, u32::MAX)));
        // Its stop was lost: when it began to wait is not known.
        assert_eq!(asked(&mut wakes, true), None);
        assert_eq!(wakes.starts(7, 60, CPU), None);
    }
}
