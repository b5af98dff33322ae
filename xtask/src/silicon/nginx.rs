// SPDX-License-Identifier: MIT OR Apache-2.0
//! The papers' web server (SFMA 4, SYSTOR 4.1): nginx compresses a page and sends it over TLS with
//! ChaCha20-Poly1305. What of AVX-512's loss does each means of finding wide code remove? And what had the
//! simulator said?

use crate::silicon::plan::Plan;
use crate::silicon::rows::{Experiment, Load, command};

/// Requests of a point: 0.1 s of the guest's time.
pub(crate) const REQUESTS: u32 = 300;

/// What the rows with a mark mark.
pub(crate) const MARK: &str = "/usr/lib/x86_64-linux-gnu/libcrypto.so.3:EVP_CipherUpdate@2";

/// What is measured.
pub(crate) const LOADS: &[Load] = &[Load { name: "nginx", unit: "requests", is_wide: false }];

/// The rows of the demo.
pub(crate) const DEMO: [&str; 4] = ["none", "wide", "marks", "trap"];

/// The experiment, ready to be measured.
pub(crate) fn planned(requests: u32, with_sizes: bool) -> Experiment {
    let requests = requests.to_string();
    let load = |code: &str| command(&["vmtests", "nginx", code, &requests]);
    let scenario = "docs/experiments/silicon-nginx.toml";
    let plan = Plan { command: &load, scenario, mark: MARK, hinted: "nginx" };
    Experiment { name: "nginx", loads: LOADS, rows: plan.rows(with_sizes) }
}
