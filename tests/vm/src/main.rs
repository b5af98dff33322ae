// SPDX-License-Identifier: MIT OR Apache-2.0
//! What runs inside the guest: tests, benchmarks and the demo's load, on a real kernel with the
//! real `turbolane` binary.
//!
//! ```text
//! vmtests --list            one JSON line per test: what guest it needs
//! vmtests --list-benches    the same for benchmarks
//! vmtests run NAME          run a test: exit 0 passed, 77 skipped, else failed
//! vmtests bench NAME        run a benchmark; its results go to $TURBOLANE_OUT
//! vmtests nginx CODE REQUESTS[+WARM_UP] [ARGS]  a web server under load, with or without turbolane run
//! vmtests batch CODE MILLISECONDS[+WARM_UP] [ARGS]  batch work beside wide code, the same
//! vmtests pstate-end ROOT HOW BACKEND  change P-states, then end
//! vmtests slow-spinner      a thread that asks to be slow, until input makes it another program
//! vmtests record-load       threads with marked calls, to be recorded
//! vmtests mark-costs        instructions that a marked call costs, on dim silicon
//! vmtests marked-calls      calls of a marked function, to be recorded
//! vmtests levels-load       a thread that asks for licence levels and writes down when
//! vmtests record-bench NAME a load whose recording is measured
//! vmtests silicon-profile  profiles of loads on dim silicon, for xtask to compare with the machine's log
//! vmtests silicon-mix THREADS MILLION  so many million instructions in each thread
//! vmtests xcr0              print XCR0 as a new program sees it
//! ```

mod batch;
mod bench;
mod cgroups;
mod claims;
mod conservation;
mod evidence;
mod fake_pmu;
mod guest;
mod hogs;
mod lane;
mod load;
mod locked_table;
mod mark_costs;
mod measure;
mod memcached;
mod nginx;
mod openssl;
mod point;
mod probe_site;
mod pstate_end;
mod recorded_waits;
mod recorder;
mod samples;
mod silicon;
mod silicon_bursts;
mod silicon_license;
mod silicon_probe;
mod silicon_profile;
mod silicon_scores;
mod silicon_tiers;
mod silicon_turns;
mod suite;
mod tests;
mod trap;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["--list"] => suite::list(tests::ALL),
        ["--list-benches"] => suite::list(bench::ALL),
        ["run", name] => suite::run(tests::ALL, name),
        ["together", names @ ..] => suite::together(names),
        ["bench", name] => suite::run(bench::ALL, name),
        ["nginx", code, requests, run @ ..] => nginx::point(code, requests, run),
        ["batch", code, ms, run @ ..] => batch::point(code, ms, run),
        ["locked-table", threads] => locked_table::play(threads),
        ["pstate-end", root, how, way] => pstate_end::play(root, how, way),
        ["slow-spinner"] => tests::pstate_scheduler::slow_spinner(),
        ["record-load"] => tests::record::load(),
        ["mark-costs"] => mark_costs::print(),
        ["marked-calls"] => tests::marks::make_calls(),
        ["follow-calls", code] => tests::marks_follow::call_until_end(code),
        ["asks-for-level-2"] => tests::scores::ask_for_level_2(),
        ["levels-load"] => tests::record_levels::load(),
        ["record-bench", load] => bench::record::load(load),
        ["silicon-bursts", threads, ms, kind] => silicon_bursts::bursts(threads, ms, kind),
        ["silicon-profile"] => silicon_profile::profiles(),
        ["silicon-mix", threads, million_insns] => silicon::mix(threads, million_insns),
        ["xcr0"] => {
            println!("{:#x}", trap::xcr0());
            Ok(())
        }
        _ => Err(anyhow::anyhow!(
            "usage: vmtests --list | --list-benches | run NAME | bench NAME | ..."
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("vmtests: {e:#}");
            ExitCode::FAILURE
        }
    }
}
