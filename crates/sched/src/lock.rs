// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mutex whose data are still used after a thread has panicked with it: a run must give the
//! machine back whatever became of one of its threads.

use std::sync::{Mutex, MutexGuard};

/// Waits for it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
