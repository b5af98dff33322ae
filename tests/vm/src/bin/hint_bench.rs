// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a hint costs: one `wide_begin` and one `wide_end` together, ns, without a scheduler and
//! with one whose CPUs are all fit (so that nothing has to move).
//!
//! `cargo run --release -p vmtests --bin hint_bench` prints one JSON line per case and ABI.
//! Each repetition times sections in a row by `CLOCK_MONOTONIC`, wherever the thread happens to
//! run; the loop around them is part of the figure. `empty` is that loop alone: where it takes more
//! than a cycle or two, something else ran on the core or its sibling, and all figures are higher.

// `common` is written for the smaller library, all of which this one has.
extern crate turbolane as turbolane_hint;

#[path = "../../../../crates/hint/tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::time::Instant;
use turbolane::{Status, protocol, tl_wide_begin, tl_wide_end, wide_begin, wide_end, wide_status};

/// Many and short (0.3 ms), so that most are not interrupted, and the median is one of these.
const REPETITIONS: usize = 201;
const SECTIONS: u32 = 100_000;

/// Compiled once per `section`, which is inlined into the loop.
fn measure(case: &str, abi: &str, section: impl Fn()) {
    let mut ns = [0f64; REPETITIONS];
    for repetition in &mut ns {
        let start = Instant::now();
        for _ in 0..SECTIONS {
            section();
        }
        *repetition = start.elapsed().as_nanos() as f64 / f64::from(SECTIONS);
    }
    ns.sort_by(f64::total_cmp);
    println!(
        r#"{{"name":"lane.hint_ns","case":"{case}","abi":"{abi}","n":{REPETITIONS},"median":{:.3},"min":{:.3},"max":{:.3}}}"#,
        ns[REPETITIONS / 2],
        ns[0],
        ns[REPETITIONS - 1],
    );
}

fn measure_all(case: &str) {
    measure(case, "rust", || {
        black_box(wide_begin(2).is_ok());
        black_box(wide_end().is_ok());
    });
    measure(case, "c", || {
        black_box(tl_wide_begin(2));
        black_box(tl_wide_end());
    });
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("hint.sock");
    // SAFETY: no other thread exists yet.
    unsafe { std::env::set_var(protocol::SOCKET_ENV, &socket) };
    measure("empty", "none", || {
        black_box(true);
        black_box(true);
    });
    assert_eq!(wide_status(), Status::None);
    measure_all("no_scheduler");

    let daemon = common::FakeDaemon::start(&socket, turbolane::page::MODE_SCX, 16)?;
    daemon.make_all_fit();
    std::thread::sleep(std::time::Duration::from_millis(1100)); // until the library looks again
    assert_eq!(wide_status(), Status::Scx);
    measure_all("mapped_nothing_to_move");
    Ok(())
}
