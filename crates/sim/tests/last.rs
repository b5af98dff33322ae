// SPDX-License-Identifier: MIT OR Apache-2.0
//! Last system calls of sections (policy/last.h): their tasks leave the wide CPU to others, and
//! those that go on with wide code stay.

mod common;

use common::*;
use cpumodel::InsnClass;
use policy::Remigrate;
use sim::engine::{Engine, Outcome};
use sim::events::Quiet;
use sim::program::{Builder, Group, Step, Workload};
use sim::rng::Dist;
use sim::sched::lane::{Detect, Lane, Wide};

const CIPHER: u64 = 50_000;
const CALL: u64 = 150_000;

/// Servers on all CPUs, whose sections have a cipher and a system call, with so much scalar code in
/// between. There are two wide CPUs.
fn run_with(detect: Detect, remigrate: Remigrate, reads: bool) -> Outcome {
    // the wide CPUs have enough to do with writes, and time left with reads
    let scalar = if reads { 5_000_000 } else { 2_000_000 };
    let mut w = Workload::new();
    let heavy = w.code(InsnClass::Heavy512, 1.0);
    let call = |b: Builder| b.step(Step::Enter).work(0, Dist::Fixed(CALL)).step(Step::Exit);
    let b = Builder::new()
        .work(0, Dist::Uniform(scalar - 500_000, scalar + 500_000))
        .step(Step::WideBegin { level: 2 });
    let b = match reads {
        true => call(b).work(heavy, Dist::Fixed(CIPHER)),
        false => call(b.work(heavy, Dist::Fixed(CIPHER))),
    };
    let p = w.program(b.step(Step::WideEnd { rest_ns: 0 }).step(Step::Done).forever(0));
    w.group(Group::new("servers", 40, p));
    let mut config = lane(Wide::Cores(1));
    config.detect = detect;
    config.cfg.remigrate = remigrate.bits();
    let (platform, sys) = machine_of(platform(), 1);
    let sched = Lane::new(&sys, config);
    Engine::new(platform, sys, sched, Quiet, w, secs(1)).run().expect("a run that ends")
}

fn rounds(detect: Detect, remigrate: Remigrate, reads: bool) -> f64 {
    run_with(detect, remigrate, reads).group("servers").unwrap().completed as f64
}

const NONE: Remigrate = Remigrate {
    syscall_entry: false,
    syscall_return: false,
    context_switch: false,
    timeout: false,
    gap: false,
    last_syscall: false,
};
const LAST: Remigrate = Remigrate { last_syscall: true, ..NONE };
const ENTRY: Remigrate = Remigrate { syscall_entry: true, ..NONE };

/// A write at the end of a section: as fast as if each system call ended sections, which is faster
/// than without.
#[test]
fn who_writes_leaves() {
    for detect in [Detect::Hint, Detect::Mark] {
        let [none, last, entry] = [NONE, LAST, ENTRY].map(|ends| rounds(detect, ends, false));
        assert!(last > 1.02 * none, "{detect:?} {none} {last}");
        assert!(last > 0.995 * entry, "{detect:?} {last} {entry}");
    }
}

/// A read at the begin of one: as fast as without, where to end sections at system calls costs.
#[test]
fn who_reads_stays() {
    for detect in [Detect::Hint, Detect::Mark] {
        let [none, last, entry] = [NONE, LAST, ENTRY].map(|ends| rounds(detect, ends, true));
        assert!(last > 0.995 * none, "{detect:?} {none} {last}");
        assert!(last > 1.02 * entry, "{detect:?} {last} {entry}");
    }
}
