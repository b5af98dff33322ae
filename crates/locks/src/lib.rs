// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks that choose the clock of their holders and of their waiters (TURBO 5 to 9).
//!
//! Problem: all threads that wait for a lock wait for one core, and it runs no faster than any
//! other. If the waiters slept, or spun slowly, and the owner ran at its turbo, the section would
//! be over sooner and cost less energy; but each method for that costs time itself, and pays only
//! for long sections.
//!
//! Idea: three choices that do not know of each other, and a fourth on top.
//!
//! ```text
//!   who is next          Futex (any)   Ticket, Mcs (first come, first served)
//!                        Barging (a queue that a running thread may pass)             RawLock
//!   how to wait          Spin, Block, Sleep                                           Wait
//!   what else happens    Plain, Owner (boost and slow), MoveHolder, ... yours         Decoration
//!   who sets the clock   NoFrequency, OtherCore (another core), ... yours             CpuFrequency
//! ```
//!
//! `Mutex<T, Decorated<Mcs<Spin>, Owner<F>>>` is TURBO's "owner", with `OtherCore<F>` its
//! "delegate", with `MoveHolder` or a [`Server`] its "migrate", `Mutex<T, Mcs<Sleep>>` its "futex".
//! [`Hybrid`] measures the sections and chooses. Without a decoration a lock is as short as if
//! there were none.
//!
//! ```
//! use locks::{Mcs, Mutex, Spin};
//! static HITS: Mutex<u64, Mcs<Spin>> = Mutex::new(Mcs::new(Spin), 0);
//! *HITS.lock() += 1;
//! assert_eq!(*HITS.lock(), 1);
//! ```
//!
//! After a fork, a lock that the forking thread held is the child's to release, boosted or not; a
//! boost stays the parent's. Threads that waited are not in the child: of the locks with a queue,
//! [`Ticket`] and [`Mcs`] then stay taken there.
//!
//! The raw locks are compiled a second time in `tests/loom`, where a model checker runs through all
//! orders in which two or three threads can meet. So their files use `crate::sync` and nothing of
//! `std`.

mod barging;
mod barrier;
mod bell;
mod decorate;
mod estimate;
mod frequency;
mod futex;
mod hybrid;
mod mcs;
mod migrate;
mod mutex;
mod other_core;
mod owner;
mod placed;
mod raw;
mod rwdata;
mod rwlock;
mod slot;
mod sync;
pub mod sys;
mod ticket;
mod wait;

pub use barging::Barging;
pub use barrier::Barrier;
pub use decorate::{Decorated, Decoration, Plain};
pub use estimate::{Cost, Costs, Estimate, Strategy};
pub use frequency::{CpuFrequency, NoFrequency, Recorder, Request};
pub use futex::Futex;
pub use hybrid::{Hybrid, HybridLock, Learned, Mode, Undo};
pub use mcs::Mcs;
pub use migrate::{MoveHolder, Server};
pub use mutex::{Guard, Mutex};
pub use other_core::OtherCore;
pub use owner::Owner;
pub use raw::RawLock;
pub use rwdata::{ReadGuard, RwLock, WriteGuard};
pub use rwlock::RawRwLock;
pub use ticket::Ticket;
pub use wait::{Block, Sleep, Spin, Wait};
