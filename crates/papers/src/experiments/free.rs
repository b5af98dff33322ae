// SPDX-License-Identifier: MIT OR Apache-2.0
//! Near-free constants: numbers of the model that no unmitigated figure sets.
//!
//! Problem: a constant that only a guess supports, or only a figure that was measured under core
//! specialisation, can be chosen so that predictions come true. A prediction that depends on one is
//! no better known than the constant.
//!
//! Idea: each of them is set to the other values that are plausible, one at a time, and what then
//! comes out is printed as the row's range. What makes a value plausible is its source, in the
//! table, and that no calibrating row leaves its tolerance with it (`comparison::broken`): one that
//! does is listed, but no part of a range.
//!
//! Limits: one at a time, so that two that add up are not seen; the ends of a range, and not what
//! is between them; nothing is fitted anew.

use cpumodel::{InsnClass, Platform, PstateModel};
use sim::program::{Step, Workload};
use sim::rng::Dist;
use sim::sched::prototype::PrototypeConfig;

use super::change::{Altered, Change, Clocks, Free, everywhere};
use super::what_if::meter_cores;

/// All.
pub(super) static FREE: [Free; 14] = [
    Free {
        name: "refill after a move, web servers",
        model: "none",
        source: "the counters that speak for none were read under core specialisation (SFMA 4.1, \
                 SYSTOR 4.3); platform.rs has 2.6 us for a hot set of 64 KiB",
        elsewhere: &[Altered { says: "2.6 us", on: server, change: Change::Workload(refill) }],
    },
    Free {
        name: "wide CPUs of SFMA",
        model: "2",
        source: "SFMA does not say; 1 is the least, SYSTOR 4.1 had 3 cores of 2 for this server",
        elsewhere: &[
            Altered { says: "1", on: sfma, change: Change::Prototype(|it| it.cpus = 1) },
            Altered { says: "4", on: sfma, change: Change::Prototype(|it| it.cpus = 4) },
            Altered { says: "6", on: sfma, change: Change::Prototype(|it| it.cpus = 6) },
        ],
    },
    Free {
        name: "wide CPUs of THESIS 5.4.2, Table 5.7",
        model: "2",
        source: "not said: 2 in Table 5.3, 1 in Table 5.6",
        elsewhere: &[Altered {
            says: "1",
            on: |_, clocks| clocks == Clocks::Flat,
            change: Change::Prototype(|it| it.cpus = 1),
        }],
    },
    Free {
        name: "averages of THESIS's automatic sizing (alpha)",
        model: "0.1",
        source: "THESIS 4.3 does not name it",
        elsewhere: &[
            Altered { says: "0.001", on: everywhere, change: Change::Prototype(slow_averages) },
            Altered { says: "1", on: everywhere, change: Change::Prototype(quick_averages) },
        ],
    },
    Free {
        name: "throughput of two siblings",
        model: "1.25",
        source: "Intel: 15 to 30 % more than one",
        elsewhere: &[
            Altered { says: "1.15", on: everywhere, change: Change::Platform(|it| smt(it, 1.15)) },
            Altered { says: "1.3", on: everywhere, change: Change::Platform(|it| smt(it, 1.3)) },
        ],
    },
    Free {
        name: "kernel's costs: migration, IPI, wake-up of an idle CPU",
        model: "1.85, 1, 2 us",
        source: "our migration's 9,461 instructions at the kernel's 0.66 per cycle of THESIS Table \
                 5.7 (no migrations) instead of 1; the IPI is an order of magnitude; C1E of Linux's \
                 skx_cstates",
        elsewhere: &[Altered {
            says: "3.44, 3, 10 us",
            on: everywhere,
            change: Change::Platform(slow_kernel),
        }],
    },
    Free {
        name: "cost of a change of the clock by software",
        model: "10 us",
        source: "DIM 3: 9 to 19 us; DIM 6.3: overhead of the system calls",
        elsewhere: &[Altered {
            says: "19 us",
            on: everywhere,
            change: Change::Clock(|setting| setting.software_extra_ns = 9_000),
        }],
    },
    Free {
        name: "copies with AVX-512 by Apache",
        model: "as often as x265",
        source: "assumed; our swaptions has none",
        elsewhere: &[Altered {
            says: "none",
            on: |scenario, _| scenario == "dim-x265-apache",
            change: Change::Workload(copy_never),
        }],
    },
    Free {
        name: "copies with AVX-512 by swaptions",
        model: "none",
        source: "assumed; x265 and our Apache copy once in 1.9 M cycles",
        elsewhere: &[Altered {
            says: "once in 4 M cycles",
            on: |scenario, _| scenario == "dim-x265-swaptions",
            change: Change::Workload(copy_at_times),
        }],
    },
    Free {
        name: "reading of TURBO 5 and 8",
        model: "the clock rises all along the ramp; slowing down while one waits counts",
        source: "the slides leave both open",
        elsewhere: &[
            Altered {
                says: "it jumps at the end of the ramp",
                on: everywhere,
                change: Change::Locks(|reading| reading.ramp_jumps = true),
            },
            Altered {
                says: "slowing down while one waits does not count",
                on: everywhere,
                change: Change::Locks(|reading| reading.entry_counts = false),
            },
        ],
    },
    Free {
        name: "exit from the AMD machine's deep C-state",
        model: "100 us",
        source: "ACPI's tables have an upper bound; AMD measured 31 us for CC6 of Bobcat (\"The \
                 core-C6 (CC6) sleep state of the AMD bobcat x86 microprocessor\")",
        elsewhere: &[Altered {
            says: "31 us",
            on: everywhere,
            change: Change::Pstates(quick_exit),
        }],
    },
    Free {
        name: "futex wake-up and migration on TURBO's machines",
        model: "5, 15.6 us",
        source: "our own, of another machine: wake-ups of 3.7 to 6 us; two migrations as above are \
                 9.3 us",
        elsewhere: &[
            Altered {
                says: "3.7, 9.3 us",
                on: everywhere,
                change: Change::Pstates(|model| system_calls(model, 3_700, 9_300)),
            },
            Altered {
                says: "6, 15.6 us",
                on: everywhere,
                change: Change::Pstates(|model| system_calls(model, 6_000, 15_600)),
            },
        ],
    },
    Free {
        name: "what TURBO 11 metered",
        model: "the package, a fifth of whose power follows no clock",
        source: "the slides do not say; the fifth is assumed",
        elsewhere: &[Altered {
            says: "the cores",
            on: everywhere,
            change: Change::Pstates(meter_cores),
        }],
    },
    Free {
        name: "voltage of the FX-8120 at 3.1 GHz",
        model: "1.25 V",
        source: "between 1.2 V at 2.8 GHz and 1.3125 V at 3.4 GHz (fx-8120.toml)",
        elsewhere: &[
            Altered {
                says: "1.2 V",
                on: everywhere,
                change: Change::Pstates(|model| base_voltage(model, 1_200)),
            },
            Altered {
                says: "1.31 V",
                on: everywhere,
                change: Change::Pstates(|model| base_voltage(model, 1_312)),
            },
        ],
    },
];

/// The servers whose moves refill nothing in the model.
fn server(scenario: &str, _: Clocks) -> bool {
    matches!(scenario, "sfma-nginx" | "systor-nginx" | "thesis-nginx" | "thesis-nginx-low")
}

/// Of SFMA's prototype: the web server, and the program that only changes types.
fn sfma(scenario: &str, _: Clocks) -> bool {
    matches!(scenario, "sfma-nginx" | "type-changes")
}

fn refill(workload: &mut Workload) {
    workload.groups.iter_mut().for_each(|group| group.refill_frac = 1.0);
}

fn slow_averages(prototype: &mut PrototypeConfig) {
    prototype.alpha = prototype.alpha.map(|_| 0.001);
}

fn quick_averages(prototype: &mut PrototypeConfig) {
    prototype.alpha = prototype.alpha.map(|_| 1.0);
}

/// Where cores have siblings.
fn smt(platform: &mut Platform, throughput_frac: f64) {
    if platform.threads_per_core > 1 {
        platform.smt_frac = throughput_frac;
    }
}

fn slow_kernel(platform: &mut Platform) {
    let costs = &mut platform.costs;
    (costs.migration_ns, costs.ipi_ns, costs.idle_exit_ns) = (3_440, 3_000, 10_000);
}

fn program<'a>(workload: &'a mut Workload, group: &str) -> Option<&'a mut Vec<Step>> {
    let group = workload.groups.iter().find(|one| one.name == group)?;
    workload.programs.get_mut(usize::from(*group.programs.first()?))
}

/// The kind of code that copies.
fn copies(workload: &Workload) -> Option<u16> {
    let at = workload.codes.iter().position(|code| code.class == InsnClass::Light512)?;
    u16::try_from(at).ok()
}

/// Steps keep their numbers, by which others jump to them.
fn copy_never(workload: &mut Workload) {
    let Some(copy) = copies(workload) else { return };
    for (step, next) in program(workload, "apache").into_iter().flatten().zip(1..) {
        if matches!(step, Step::Work { code, .. } if *code == copy) {
            *step = Step::Jump { to: next };
        }
    }
}

/// In each of its system calls.
fn copy_at_times(workload: &mut Workload) {
    let Some(copy) = copies(workload) else { return };
    for step in program(workload, "swaptions").into_iter().flatten() {
        if matches!(step, Step::Work { cycles: Dist::Fixed(_), .. }) {
            *step = Step::Work { code: copy, cycles: Dist::Fixed(2_000) };
        }
    }
}

fn quick_exit(model: &mut PstateModel) {
    if model.id == "fx-8120" {
        model.idle.iter_mut().filter(|idle| idle.name == "C2").for_each(|idle| {
            idle.exit_ns.value = 31_000;
        });
    }
}

fn system_calls(model: &mut PstateModel, wake_ns: u64, migration_ns: u64) {
    (model.wake_ns.value, model.migration_ns.value) = (wake_ns, migration_ns);
}

fn base_voltage(model: &mut PstateModel, base_mv: u64) {
    model.power.iter_mut().for_each(|power| power.base_mv.value = base_mv);
}
