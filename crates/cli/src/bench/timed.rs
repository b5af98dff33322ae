// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a section takes with its lock, without the wait: the A + CS + R of TURBO 5.
//!
//! ```text
//!   waiting()   free     acquired()           releasing() unlock released()
//!   |--entry--|..wait..|----exit----|--section--|---------release---------|
//! ```
//!
//! A decoration around another one that stamps these moments. The exit begins when the thread
//! before releases the lock, or when this one came, if that is later: handing over and waking up
//! belong to it. Sums are written under the lock, or after it by an atomic addition, and may be
//! read at any time.

use std::sync::atomic::{AtomicU64, Ordering};

use locks::Decoration;
use locks::sys::ticks;

/// Measures another decoration.
pub(super) struct Timed<D> {
    inner: D,
    /// When the last holder released, and the present one's section began.
    released: AtomicU64,
    begun: AtomicU64,
    sections: AtomicU64,
    taken: AtomicU64,
    after: AtomicU64,
}

/// Sums until now.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    /// Sections that were executed.
    pub(super) sections: u64,
    /// What they and their locks took, without waits.
    pub(super) ticks: u64,
}

impl<D> Timed<D> {
    pub(super) fn new(inner: D) -> Self {
        let [released, begun, sections, taken, after] = [0; 5].map(AtomicU64::new);
        Timed { inner, released, begun, sections, taken, after }
    }

    pub(super) fn sums(&self) -> Sums {
        let [sections, taken, after] =
            [&self.sections, &self.taken, &self.after].map(|sum| sum.load(Ordering::Relaxed));
        Sums { sections, ticks: taken + after }
    }
}

/// Adds to a sum that only the holder of the lock writes.
fn add(sum: &AtomicU64, ticks: u64) {
    sum.store(sum.load(Ordering::Relaxed) + ticks, Ordering::Relaxed);
}

impl<D: Decoration> Decoration for Timed<D> {
    /// With the ticks of the entry, and when it ended.
    type Waited = (D::Waited, u64, u64);
    /// With when the lock was released.
    type Held = (D::Held, u64);

    fn waiting(&self) -> Self::Waited {
        let begun = ticks();
        let waited = self.inner.waiting();
        let came = ticks();
        (waited, came - begun, came)
    }

    fn acquired(&self, waited: Option<Self::Waited>) {
        let (waited, entry, came) = match waited {
            Some((waited, entry, came)) => (Some(waited), entry, came),
            None => (None, 0, ticks()),
        };
        let free = self.released.load(Ordering::Relaxed).max(came);
        self.inner.acquired(waited);
        let begun = ticks();
        self.begun.store(begun, Ordering::Relaxed);
        // the counter of another core may be a little late
        add(&self.taken, entry + begun.saturating_sub(free));
    }

    fn waited(&self, (waited, ..): Self::Waited) {
        self.inner.waited(waited);
    }

    fn releasing(&self) -> Self::Held {
        let held = self.inner.releasing();
        let now = ticks();
        add(&self.taken, now.saturating_sub(self.begun.load(Ordering::Relaxed)));
        add(&self.sections, 1);
        self.released.store(now, Ordering::Relaxed);
        (held, now)
    }

    fn released(&self, (held, released): Self::Held) {
        self.inner.released(held);
        self.after.fetch_add(ticks() - released, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use locks::{Decorated, Mcs, RawLock, Spin};

    use super::*;

    /// Notes that somebody waits.
    #[derive(Default)]
    struct Notes(AtomicBool);

    impl Decoration for Notes {
        type Waited = ();
        type Held = ();

        fn waiting(&self) {
            self.0.store(true, Ordering::Relaxed);
        }
        fn acquired(&self, _waited: Option<()>) {}
        fn waited(&self, _waited: ()) {}
        fn releasing(&self) {}
        fn released(&self, _held: ()) {}
    }

    /// Ticks of a section of a lock, from before it to after it.
    fn section(lock: &impl RawLock, inside: impl FnOnce()) -> u64 {
        let begun = ticks();
        lock.lock();
        inside();
        // SAFETY: acquired above.
        unsafe { lock.unlock() };
        ticks() - begun
    }

    /// The second of two sections waits for the first: what both took from end to end is counted
    /// but for that wait.
    #[test]
    fn waits_do_not_count() {
        let lock = Decorated::new(Mcs::new(Spin), Timed::new(Notes::default()));
        let mut waited = 0;
        let both = std::thread::scope(|scope| {
            let mut second = None;
            let first = section(&lock, || {
                second = Some(scope.spawn(|| section(&lock, || {})));
                while !lock.decoration().inner.0.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                let begun = ticks();
                std::thread::sleep(Duration::from_millis(50));
                waited = ticks() - begun;
            });
            first + second.map_or(0, |second| second.join().unwrap())
        });
        let sums = lock.decoration().sums();
        assert_eq!(sums.sections, 2);
        assert!(sums.ticks > waited, "the first section counts");
        // it came to wait a little after it said so
        assert!(sums.ticks + waited / 2 < both, "{} of {both}, {waited} waited", sums.ticks);
    }
}
