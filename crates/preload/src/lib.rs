// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other locks for unmodified programs: `LD_PRELOAD=libturbolane_preload.so TURBOLANE_LOCKS=FILE
//! CMD`.
//!
//! Problem: whether a program would gain from spinning or queueing waiters is a question that one
//! wants answered before its source is changed. But a pthread mutex is more than a lock: condition
//! variables release and take it inside glibc, other types count or check their owner, robust ones
//! are known to the kernel.
//!
//! Idea: glibc's mutex stays the lock. Only *how a thread waits for it* is ours:
//!
//! ```text
//!   pthread_mutex_lock(m)     trylock(m) succeeds: done, as ever
//!                             else wait in front of it: spin, or queue in a lock of ours (one per
//!                             mutex) whose head alone tries for m; and leave the queue with m in hand
//!   pthread_mutex_unlock(m), pthread_cond_wait and its kind           glibc's; a boost ends there
//!   timed locks, trylock, all others                                  glibc's, untouched
//! ```
//!
//! So whatever glibc does with the mutex stays right, and at any moment the program could go on
//! without us. A mutex of any other type than the plain one (recursive, error-checking, robust,
//! shared between processes, with priorities) is not ours at all.
//!
//! Two strategies change nothing about the waiting, but boost threads that make others wait for
//! long ([`boost`]): the holder of a mutex, or those for whom a barrier waits ([`barriers`]).
//!
//! Limits: a thread that arrives may take the mutex before the queue's head, so the queue is fair
//! among those who wait only. No waiting strategy changes what happens inside of glibc: a thread
//! that returns from a condition variable waits as glibc does. At most [`table::SLOTS`] mutexes
//! have a strategy, the others keep glibc's.
//!
//! Without `TURBOLANE_LOCKS`, or with a file that makes no sense (which is said on stderr, once),
//! every call goes to glibc. After `fork` the child's queues are empty, as its other threads are
//! gone.
//!
//! `config` is the file's grammar, `rules` which mutex gets what, `table` what is known of a mutex,
//! `glibc` the real functions and what can be seen of a mutex, `objects` whose an address is,
//! `interpose` the functions in glibc's place.

mod barriers;
mod boost;
mod config;
mod glibc;
mod holder;
mod interpose;
mod objects;
mod patience;
mod rules;
mod table;

pub use config::{ConfigError, parse};
pub use rules::{Condition, Rule, Strategy};
