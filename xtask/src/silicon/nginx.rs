// SPDX-License-Identifier: MIT OR Apache-2.0
//! The papers' web server (SFMA 4, SYSTOR 4.1): nginx compresses a page and sends it over TLS with
//! ChaCha20-Poly1305. What of AVX-512's loss does each means of finding wide code remove? And what
//! had the simulator predicted?

use crate::silicon::plan::Plan;
use crate::silicon::point::Point;
use crate::silicon::rows::{Experiment, Load, command};

/// Requests of a point for each CPU of the server: 70 to 85 ms of the guest's time by the rows of
/// four CPUs, which have 890 to 1,130 requests/s for each CPU.
const REQUESTS_PER_CPU: u32 = 75;

/// The same before a point with automatic size, 1.1 to 1.4 s: the lane has looked, divided the CPUs
/// and compared by then; and for the simulator.
const LONG_WARM_UP_PER_CPU: u32 = 1250;
const LONG_WARM_UP_NS: u64 = 1_250_000_000;

/// What the rows with a mark mark.
const MARK: &str = "/usr/lib/x86_64-linux-gnu/libcrypto.so.3:EVP_CipherUpdate@2";

/// The function whose calls a recording of the server counts as work.
pub(crate) const CALLS: &str = "EVP_CipherUpdate";

/// What is measured.
const LOADS: &[Load] = &[Load { name: "nginx", unit: "requests", is_wide: false }];

/// The rows of the demo.
pub(crate) const DEMO: [&str; 4] = ["none", "wide", "marks", "trap"];

/// A server and its machine.
#[derive(Clone, Copy)]
pub(crate) struct Server {
    /// Of the experiment.
    name: &'static str,
    /// What the names of its figures begin with.
    pub(crate) figures: &'static str,
    /// CPUs of the server; the client has one more.
    cpus: u32,
    /// Files for the simulator.
    scenario: &'static str,
    machine: &'static str,
}

/// As small as it can be: the demo's. One wide CPU of four costs more than the wide code needs.
pub(crate) const SMALL: Server = Server {
    name: "nginx",
    figures: "silicon",
    cpus: 4,
    scenario: "docs/experiments/silicon-nginx.toml",
    machine: "docs/experiments/silicon-machine.toml",
};

/// The CPUs of SFMA 4: twelve of a Gold 6130 serve. (The paper's client has the other four; here
/// one is enough for it.)
pub(crate) const TWELVE: Server = Server {
    name: "nginx-12",
    figures: "silicon.nginx_12",
    cpus: 12,
    scenario: "docs/experiments/silicon-nginx-12.toml",
    machine: "docs/experiments/silicon-machine-13.toml",
};

/// `SMALL` with more CPUs, on another CPU than the others.
pub(crate) const OTHER: Server = Server {
    name: "nginx-6154",
    figures: "silicon.nginx_6154",
    cpus: 6,
    scenario: SMALL.scenario,
    machine: "docs/experiments/silicon-machine-6154.toml",
};

impl Server {
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// CPUs of the guest: one more is the client's.
    pub(crate) fn guest_cpus(&self) -> u32 {
        self.cpus + 1
    }

    /// Requests of a point, with so many more than usual for each CPU.
    pub(crate) fn requests(&self, more_per_cpu: u32) -> u32 {
        self.cpus * (REQUESTS_PER_CPU + more_per_cpu)
    }

    /// The model of the guest, a file.
    pub(crate) fn machine(&self) -> &'static str {
        self.machine
    }

    /// A point in which the server is recorded, with this code, under the kernel's scheduler.
    pub(crate) fn recorded(&self, code: &str) -> Point {
        let requests = self.requests(0).to_string();
        let words = ["vmtests", "nginx", code, &requests, "record", "--mark", MARK];
        Point { name: format!("recorded-{code}"), command: command(&words) }
    }
}

/// The experiment, ready to be measured; with so many requests a point, if they are given.
pub(crate) fn planned(server: &Server, requests: Option<u32>, with_sizes: bool) -> Experiment {
    let Server { name, cpus, scenario, machine, .. } = *server;
    let requests = requests.unwrap_or(cpus * REQUESTS_PER_CPU).to_string();
    let after_long = format!("{requests}+{}", cpus * LONG_WARM_UP_PER_CPU);
    let load = |code: &str, is_long: bool| {
        command(&["vmtests", "nginx", code, if is_long { &after_long } else { &requests }])
    };
    let plan = Plan {
        command: &load,
        long_warm_up_ns: LONG_WARM_UP_NS,
        scenario,
        machine,
        mark: MARK,
        hinted: "nginx",
    };
    Experiment { name, cpus: cpus + 1, loads: LOADS, rows: plan.rows(with_sizes) }
}
