// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C of a command that makes many runs: it prints what the finished runs gave, labelled as
//! partial, instead of losing them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether a signal has asked this command to end.
#[derive(Default)]
pub(crate) struct Interrupt {
    seen: Arc<AtomicBool>,
}

impl Interrupt {
    /// From now on the first signal is noted. The second one ends the program at once, for a run
    /// that takes too long.
    pub(crate) fn watch() -> Self {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM] {
            // In this order, since both act on each signal. If one cannot be registered, the signal
            // ends the program as it always does.
            _ = flag::register_conditional_default(signal, Arc::clone(&interrupt.seen))
                .and_then(|_| flag::register(signal, Arc::clone(&interrupt.seen)));
        }
        interrupt
    }

    /// Whether one has come.
    pub(crate) fn is_seen(&self) -> bool {
        self.seen.load(Ordering::Relaxed)
    }

    /// Acts like a signal.
    #[cfg(test)]
    pub(crate) fn raise(&self) {
        self.seen.store(true, Ordering::Relaxed);
    }
}
