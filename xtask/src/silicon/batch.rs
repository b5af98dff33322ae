// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batch work beside other processes' wide code (SYSTOR 4.2, THESIS 5): gzip beside `openssl speed`
//! with ChaCha20-Poly1305. Here the wide code is a load of its own: what Turbolane takes from it is
//! as much of the result as what gzip wins.

use crate::silicon::plan::Plan;
use crate::silicon::rows::{Experiment, Load, command};

/// Guest's time of a point, ms: 36 turns of the two processes that share a CPU, and 14 s of the
/// host.
pub(crate) const MS: u32 = 150;

/// The load before a point with automatic size, ms: the lane has looked, tried, compared and stood
/// by again by then.
const LONG_WARM_UP_MS: u32 = 2500;

/// CPUs of the guest: the load has all of them.
const CPUS: u32 = 5;

/// `openssl speed` encrypts by this function.
const MARK: &str = "/usr/lib/x86_64-linux-gnu/libcrypto.so.3:EVP_EncryptUpdate@2";

/// What is measured.
pub(crate) const LOADS: &[Load] = &[
    Load { name: "gzip", unit: "MB", is_wide: false },
    Load { name: "openssl", unit: "MB", is_wide: true },
];

/// The experiment, ready to be measured.
pub(crate) fn planned(ms: u32, with_sizes: bool) -> Experiment {
    let (ms, after_long) = (ms.to_string(), format!("{ms}+{LONG_WARM_UP_MS}"));
    let load = |code: &str, is_long: bool| {
        command(&["vmtests", "batch", code, if is_long { &after_long } else { &ms }])
    };
    let scenario = "docs/experiments/silicon-batch.toml";
    let machine = "docs/experiments/silicon-machine.toml";
    let plan = Plan {
        command: &load,
        long_warm_up_ns: u64::from(LONG_WARM_UP_MS) * 1_000_000,
        scenario,
        machine,
        mark: MARK,
        hinted: "openssl",
    };
    Experiment { name: "batch", cpus: CPUS, loads: LOADS, rows: plan.rows(with_sizes) }
}
