// SPDX-License-Identifier: MIT OR Apache-2.0
//! The raw locks of `crates/locks`, and the words between a client and its server, under loom: a
//! model checker that runs through the orders in which threads can meet, and through the old values
//! that weakly ordered loads may return.
//!
//! The locks' own files are compiled here, unchanged; only `sync`, what they are made of, is
//! another one: loom's atomics, a futex made of loom's parts, and pauses that yield. `mutants`
//! turns one thing in it wrong at a time, and demands that the models notice.
//!
//! `arrivals` is a model of steps that cannot be compiled here, those of the BPF scheduler around
//! idle CPUs.

#![cfg(test)]
// a model's waiter does not spin: `round < SPIN_ROUNDS` compares with 0 here
#![allow(clippy::absurd_extreme_comparisons)]

mod arrivals;
mod futex_model;
mod models;
mod mutants;
mod sync;

#[path = "../../../crates/locks/src/barging.rs"]
mod barging;
#[path = "../../../crates/locks/src/barrier.rs"]
mod barrier;
#[path = "../../../crates/locks/src/bell.rs"]
mod bell;
#[path = "../../../crates/locks/src/futex.rs"]
mod futex;
#[path = "../../../crates/locks/src/mcs.rs"]
mod mcs;
#[path = "../../../crates/locks/src/raw.rs"]
mod raw;
#[path = "../../../crates/locks/src/rwlock.rs"]
#[expect(dead_code, reason = "not all of it is modelled")]
mod rwlock;
#[path = "../../../crates/locks/src/slot.rs"]
mod slot;
#[path = "../../../crates/locks/src/ticket.rs"]
mod ticket;
#[path = "../../../crates/locks/src/wait.rs"]
mod wait;
