// SPDX-License-Identifier: MIT OR Apache-2.0
//! Published figures that are no measure of one configuration: what an operation costs, how often
//! something happens, what a table adds up to. Each is computed from complete simulations, by the
//! id of its row.

use sim::engine::Outcome;

use super::change::{Clocks, Instead};
use super::dvfs;
use super::plan::Plan;

const GOLD: &str = "xeon-gold-6130";
const I9: &str = "core-i9-7940x";
const RETURN_1: &str = "prototype:cpus=1,end=return";
const RETURN_2: &str = "prototype:cpus=2,end=return";
const EXPLICIT_1: &str = "prototype:cpus=1,detect=mark";
/// SYSTOR's prototype with half of the cores wide, as for its Parsec rows.
const HALF: &str = "prototype:cpus=16,end=entry,timeout=2ms";
const EXPLICIT: &str = "prototype:cpus=2,detect=mark";

fn plan(machine: &str, scenario: &'static str, variant: &str, policy: &str) -> Plan {
    Plan {
        machine: machine.into(),
        scenario,
        variant: variant.into(),
        policy: policy.into(),
        clocks: Clocks::AsIs,
        siblings: true,
        victim: "",
        instead: Instead::Nothing,
    }
}

fn unthrottled(variant: &str) -> Plan {
    Plan { clocks: Clocks::Unthrottled, ..plan(I9, "thesis-nginx", variant, "muqss") }
}

fn flat() -> Plan {
    Plan { clocks: Clocks::Flat, ..plan(I9, "thesis-nginx", "avx512", RETURN_2) }
}

fn type_changes(policy: &str) -> Plan {
    plan(GOLD, "type-changes", "none", policy)
}

fn trap_server() -> Plan {
    plan(I9, "thesis-nginx", "avx512", RETURN_1)
}

fn explicit_server() -> Plan {
    plan(GOLD, "sfma-nginx", "avx512", EXPLICIT)
}

fn openssl(variant: &str) -> Plan {
    plan(I9, "openssl-speed", variant, "muqss")
}

fn fault_migrate(policy: &str) -> Plan {
    plan(I9, "fault-migrate", "avx512", policy)
}

/// nginx beside x265 without hyperthreading (DIM 2, Figure 2).
fn noht(variant: &str) -> Plan {
    Plan { siblings: false, ..plan(GOLD, "dim-nginx-x265", variant, "cfs") }
}

/// The Apache benchmark of the Phoronix Test Suite beside x265 without hyperthreading (DIM 2).
fn apache(variant: &str) -> Plan {
    Plan { siblings: false, ..plan(GOLD, "dim-x265-apache", variant, "cfs") }
}

/// A computation beside x265 without hyperthreading, a thread per CPU each (DIM 2).
fn beside_x265() -> Plan {
    Plan { siblings: false, ..plan(GOLD, "dim-x265-swaptions", "avx512", "cfs") }
}

/// A program of Parsec beside x265 (SYSTOR 4.2).
fn parsec(policy: &str) -> Plan {
    plan(GOLD, "parsec-x265", "avx512", policy)
}

/// The simulations that the figure of a row is computed from; none if the row is a measure.
pub(super) fn plans(id: &str) -> Vec<Plan> {
    match id {
        "sfma-type-change-cost" | "sfma-type-change-overhead" => {
            vec![type_changes(EXPLICIT), type_changes("muqss")]
        }
        "sfma-nginx-migrations" => vec![explicit_server()],
        "thesis-amdahl" => vec![unthrottled("avx512"), unthrottled("none")],
        "thesis-openssl-gain" => vec![openssl("avx512"), openssl("none")],
        "thesis-level2-isolated" => vec![trap_server()],
        "thesis-t56-migrations-trap" => vec![fault_migrate(RETURN_1)],
        "thesis-t56-migrations-explicit" => vec![fault_migrate(EXPLICIT_1)],
        "thesis-t57-migrations-trap" | "thesis-t57-traps" => vec![flat()],
        "dim-nginx-noht-avx512" => vec![noht("avx512"), noht("none")],
        "dim-blackscholes-switches" => vec![beside_x265()],
        "dim-pts-noht-avx512" => vec![apache("avx512"), apache("none")],
        "systor-vips-level2-left" => vec![parsec(HALF), parsec("muqss")],
        _ => Vec::new(),
    }
}

fn per_s(count: u64, out: &Outcome) -> f64 {
    count as f64 * 1e9 / out.measured_ns as f64
}

fn rate(out: &Outcome, group: &str) -> Option<f64> {
    Some(per_s(out.group(group)?.completed, out))
}

/// By how much more a figure is with AVX-512 than without.
fn increase_pct(of_variant: impl Fn(&'static str) -> Option<f64>) -> Option<f64> {
    Some(100.0 * (of_variant("avx512")? / of_variant("none")? - 1.0))
}

/// The figure of a row, in its unit; `None` if the row is a measure, or was not simulated.
pub(super) fn figure<'a>(id: &str, outcome: &dyn Fn(&Plan) -> Option<&'a Outcome>) -> Option<f64> {
    let of = |plan: Plan| outcome(&plan);
    match id {
        "sfma-type-change-cost" => Some(type_change(outcome)?.0 * 1e9),
        // published at 100,000 changes per second
        "sfma-type-change-overhead" => Some(type_change(outcome)?.0 * 1e5 * 100.0),
        "sfma-nginx-migrations" => {
            let out = of(explicit_server())?;
            Some(per_s(out.migrations, out))
        }
        "thesis-amdahl" => increase_pct(|variant| rate(of(unthrottled(variant))?, "nginx")),
        "thesis-openssl-gain" => {
            let wide = of(openssl("avx512"))?;
            let none = of(openssl("none"))?;
            Some(rate(wide, "openssl")? / rate(none, "openssl")?)
        }
        "thesis-level2-isolated" => isolated(of(trap_server())?),
        // a tenth of the passes was simulated
        "thesis-t56-migrations-trap" => Some(10.0 * of(fault_migrate(RETURN_1))?.migrations as f64),
        "thesis-t56-migrations-explicit" => {
            Some(10.0 * of(fault_migrate(EXPLICIT_1))?.migrations as f64)
        }
        "thesis-t57-migrations-trap" => {
            let out = of(flat())?;
            Some(out.migrations as f64 / out.group("nginx")?.completed as f64)
        }
        "thesis-t57-traps" => {
            let out = of(flat())?;
            Some(out.sched.traps as f64 / out.group("nginx")?.completed as f64)
        }
        "dim-nginx-noht-avx512" => {
            let beside_x265 = increase_pct(|variant| {
                let group = of(noht(variant))?.group("nginx")?;
                Some(group.cpu_ns as f64 / group.completed as f64)
            })?;
            let with_openssl = increase_pct(|variant| dvfs::request_ns(GOLD, variant))?;
            Some((with_openssl + beside_x265) / 2.0)
        }
        "dim-pts-noht-avx512" => increase_pct(|variant| {
            let out = of(apache(variant))?;
            let (server, client) = (out.group("apache")?, out.group("ab")?);
            Some((server.cpu_ns + client.cpu_ns) as f64 / server.completed as f64)
        }),
        "dim-blackscholes-switches" => {
            let group = of(beside_x265())?.group("swaptions")?;
            (group.starts > 0).then(|| group.cpu_ns as f64 / group.starts as f64 / 1e6)
        }
        "systor-vips-level2-left" => {
            let reduced_ns = |policy| {
                let group = of(parsec(policy))?.group("parsec")?;
                Some(group.reduced_ns as f64 / group.completed as f64)
            };
            Some(100.0 * reduced_ns(HALF)? / reduced_ns("muqss")?)
        }
        _ => None,
    }
}

/// What the type changes of SFMA 4.2 cost: loss of throughput over changes per second, s; and the
/// loss. SFMA counts the changes of all CPUs.
fn type_change<'a>(of: &dyn Fn(&Plan) -> Option<&'a Outcome>) -> Option<(f64, f64)> {
    let rate_of = |policy: &str| rate(of(&type_changes(policy))?, "loop");
    let (with, without) = (rate_of(EXPLICIT)?, rate_of("muqss")?);
    let loss = 1.0 - with / without;
    Some((loss / (2.0 * with), loss))
}

/// Percent of all time at the highest level that falls on the last core.
fn isolated(out: &Outcome) -> Option<f64> {
    let cores = out.cpus.len() / 2;
    let time_ns = |cpu: usize| *out.cpus[cpu].level_ns.last().unwrap_or(&0);
    let all: u64 = (0..out.cpus.len()).map(time_ns).sum();
    let lane: u64 = [cores - 1, 2 * cores - 1].into_iter().map(time_ns).sum();
    (all > 0).then(|| 100.0 * lane as f64 / all as f64)
}
