// SPDX-License-Identifier: MIT OR Apache-2.0
//! The models can fail: each finds a fault that is planted into what the locks are made of.

use std::process::Command;

use crate::barging::Barging;
use crate::futex::Futex;
use crate::mcs::Mcs;
use crate::models::{answers, counts, meetings, reads_and_writes};
use crate::sync::Mutant::{LostWake, WeakAcquire, WeakRelease};
use crate::sync::plant;
use crate::ticket::Ticket;
use crate::wait::{Sleep, Spin};

/// Models by name, and whether their waiters sleep.
const MODELS: [(&str, bool, fn()); 11] = [
    ("futex, spin", false, || counts(2, || Futex::new(Spin))),
    ("futex, sleep", true, || counts(2, || Futex::new(Sleep))),
    ("ticket, spin", false, || counts(2, || Ticket::new(Spin))),
    ("ticket, sleep", true, || counts(2, || Ticket::new(Sleep))),
    ("mcs, spin", false, || counts(2, || Mcs::new(Spin))),
    ("mcs, sleep", true, || counts(2, || Mcs::new(Sleep))),
    ("barging, spin", false, || counts(2, || Barging::new(Spin))),
    ("barging, sleep", true, || counts(2, || Barging::new(Sleep))),
    ("readers and a writer", true, reads_and_writes::<Sleep>),
    ("barrier", true, meetings::<Sleep>),
    ("server", true, || answers(1)),
];

/// Set for the child that runs one model with one fault.
const PLANTED: &str = "LOOMTESTS_PLANTED";

/// The child: runs the model that the environment names. A deadlock aborts it, because loom panics
/// while it takes the model apart; so it is a process of its own.
#[test]
#[ignore = "run by the others, with a fault to plant"]
fn planted() {
    let planted = std::env::var(PLANTED).expect("a number of a model and one of a fault");
    let (model, fault) = planted.split_once(' ').expect("two numbers");
    let faults = [None, Some(WeakRelease), Some(WeakAcquire), Some(LostWake)];
    plant(faults[fault.parse::<usize>().unwrap()]);
    MODELS[model.parse::<usize>().unwrap()].2();
}

/// Whether the model fails with the fault, and passes without.
fn finds(model: usize, fault: usize) -> bool {
    let passes = |fault: usize| {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "mutants::planted", "--ignored"])
            .env(PLANTED, format!("{model} {fault}"))
            .env("RUST_BACKTRACE", "0")
            .output()
            .unwrap();
        child.status.success() && String::from_utf8_lossy(&child.stdout).contains("1 passed")
    };
    passes(0) && !passes(fault)
}

#[test]
fn a_release_that_publishes_nothing_fails() {
    for (index, (name, ..)) in MODELS.iter().enumerate() {
        assert!(finds(index, 1), "{name} does not notice");
    }
}

#[test]
fn an_acquire_that_sees_nothing_fails() {
    for (index, (name, ..)) in MODELS.iter().enumerate() {
        assert!(finds(index, 2), "{name} does not notice");
    }
}

#[test]
fn a_lost_wake_up_fails() {
    for (index, (name, ..)) in MODELS.iter().enumerate().filter(|(_, (_, sleeps, _))| *sleeps) {
        assert!(finds(index, 3), "{name} does not notice");
    }
}
