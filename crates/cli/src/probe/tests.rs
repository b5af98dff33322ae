// SPDX-License-Identifier: MIT OR Apache-2.0
//! What cannot be measured is refused before it is begun, with the exit code that says whose fault
//! it is. On CPUs that only say what they have, for those that the tests run on have too much.

use clap::Parser;
use probe::{KERNELS, Order};
use report::probe::raw::{Cores, Header, Skipped, Trace};

use super::*;

/// Of two CPUs, which execute these kernels and no others.
struct Has(&'static [&'static str]);

impl Machine for Has {
    fn header(&self, seed: u64) -> Header {
        let others = KERNELS.iter().filter(|kernel| !self.0.contains(&kernel.name));
        let skip = |kernel: &probe::Kernel| Skipped {
            what: kernel.name.into(),
            why: "the CPU has no AVX-512, or the kernel keeps it off".into(),
        };
        Header {
            schema: report::SCHEMA,
            machine: "test".into(),
            cores: Cores::default(),
            tsc_khz: 2e6,
            overhead_ticks: 0.0,
            chains: Vec::new(),
            witnesses: Vec::new(),
            skipped: others.map(skip).collect(),
            unknown: Vec::new(),
            seed,
            partial: None,
        }
    }

    fn cells(&self) -> (Vec<(String, u32)>, u32) {
        (self.0.iter().map(|name| (name.to_string(), 1)).collect(), 2)
    }

    fn run(&mut self, _: &Order) -> Result<Trace, ProbeError> {
        unreachable!("nothing is begun")
    }
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: ProbeArgs,
}

fn planned(machine: &Has, line: &str) -> Result<Vec<String>, String> {
    let args = Line::parse_from(["probe"].into_iter().chain(line.split_whitespace())).args;
    let kernels = |plan: Plan| plan.cells.into_iter().map(|cell| cell.kernel).collect();
    plan(&args, machine).map(kernels).map_err(told)
}

/// Its words and its code.
fn told(failure: Failure) -> String {
    format!("{failure:?}")
}

/// Without AVX-512, what is there is measured; a kernel that is not there is refused with the CPU's
/// reason, since this machine cannot answer.
#[test]
fn a_cpu_without_avx512_measures_the_rest_or_fails() {
    let has = Has(&["scalar", "256-fma"]);
    assert_eq!(planned(&has, "--active 1"), Ok(vec!["scalar".into(), "256-fma".into()]));
    let refused = planned(&has, "--kernels 512-fma").unwrap_err();
    assert!(refused.contains("cannot execute 512-fma") && refused.contains("has no AVX-512"));
    assert!(refused.contains("leave it out") && refused.contains("code: 77"), "{refused}");
}

/// A CPU without any wide instruction has nothing to be measured, also if scalar code is all that
/// was asked for.
#[test]
fn a_cpu_without_wide_code_fails() {
    for line in ["", "--quick", "--kernels scalar", "--active 1,2"] {
        let refused = planned(&Has(&["scalar", "128-int"]), line).unwrap_err();
        assert!(refused.contains("nothing to measure") && refused.contains("code: 77"), "{line}");
    }
}

/// More active CPUs than the process may use are the user's mistake.
#[test]
fn too_many_active_cpus_fail() {
    let refused = planned(&Has(&["scalar", "256-fma"]), "--active 1,3").unwrap_err();
    assert!(refused.contains("this process may use 2") && refused.contains("code: 2"), "{refused}");
}

/// Why a measurement cannot go on, and whether the machine cannot answer (77) or something went
/// wrong (2).
#[test]
fn errors_have_their_exit_codes() {
    let cases = [
        (ProbeError::NoInvariantTsc, "not invariant", "nonstop_tsc", 77),
        (ProbeError::MeterDisagrees { agreeing: 2 }, "that does has 2", "less busy", 77),
        (ProbeError::CpusChanged("to 3".into()), "changed during", "taskset", 2),
        (ProbeError::NoKernel("amx 1/1".into()), "cannot execute amx", "a bug", 2),
    ];
    for (error, why, next, code) in cases {
        let told = told(failure(error));
        let expected = [why, next, &format!("code: {code}")].map(|words| told.contains(words));
        assert_eq!(expected, [true; 3], "{told}");
    }
}
