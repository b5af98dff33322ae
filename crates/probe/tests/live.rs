// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPU that the tests run on, described as one that has less.

use std::collections::BTreeSet;

use hw::Recorded;
use probe::{KERNELS, Live, Machine, Need, Order, ProbeError};
use report::probe::raw::Cell;

/// Leaf 8000_0007h, bit 8: an invariant counter.
const INVARIANT: &str = "80000007 0 = 0 0 0 100\n";
/// Leaves 1 and 7: FMA, XSAVE and AVX2, but no AVX-512; XCR0 has the registers of AVX.
const AVX2: &str = "1 0 = 0 0 1c001000 0\n7 0 = 0 20 0 0\nd 1 = f 0 0 0\nxcr0 = 7\n";

fn described(cpuid: &str) -> Recorded {
    Recorded::parse("", cpuid).unwrap()
}

/// Without an invariant counter nothing can be measured; it is refused before the thread is bound
/// to a CPU.
#[test]
fn without_an_invariant_counter_it_fails() {
    let tid = hw::task::own_tid();
    let before = hw::task::get_affinity(tid).unwrap();
    let refused = Live::new(&described(AVX2)).err();
    assert!(matches!(refused, Some(ProbeError::NoInvariantTsc)), "{refused:?}");
    assert_eq!(hw::task::get_affinity(tid).unwrap(), before);
}

/// Of a CPU that says that it has no AVX-512, kernels of 512 bits are left out with the reason, and
/// not executed when they are ordered all the same; the others are there.
#[test]
fn kernels_that_are_not_there_are_skipped() {
    let mut machine = match Live::new(&described(&format!("{AVX2}{INVARIANT}"))) {
        Ok(machine) => machine,
        // As on a machine that emulates its CPU.
        Err(why @ ProbeError::MeterDisagrees { .. }) => return eprintln!("skipped: {why}"),
        Err(why) => panic!("{why}"),
    };
    let is_there = |need| !matches!(need, Need::Avx512f | Need::Amx);
    let expected = KERNELS.iter().filter(|kernel| is_there(kernel.need)).map(|one| one.name);
    let (cells, _) = machine.cells();
    let found: BTreeSet<&str> = cells.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(found, expected.collect());
    let skipped = machine.header(1).skipped;
    assert_eq!(skipped.len(), KERNELS.len() - found.len());
    assert!(skipped.iter().all(|one| one.why.contains("has no A")), "{skipped:?}");
    let cell = Cell { kernel: "512-fma".into(), one_in: 1, active: 1 };
    let order = Order { cell, pre_ns: 1e4, block_ns: 1e4, post_ns: 1e4, dither_frac: 0.5 };
    assert!(matches!(machine.run(&order), Err(ProbeError::NoKernel(_))));
}
