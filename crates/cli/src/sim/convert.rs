// SPDX-License-Identifier: MIT OR Apache-2.0
//! From what the simulator counted to the report's types.

use cpumodel::{CpuModel, Platform};
use report::sim::{
    CoreTrack, CpuTrack, CpuUse, Latency, Load, Machine, SimRun, TaskNote, Timeline, Total,
};
use sim::engine::Outcome;
use sim::histogram::Histogram;
use sim::policy_spec::{Finished, PolicySpec, Scheme};
use sim::record::RunRecord;
use sim::sched::fair::Slices;

use super::target::Target;

pub(super) fn sim_run(
    target: &Target,
    model: &CpuModel,
    platform: &Platform,
    policy: &PolicySpec,
    finished: &Finished,
) -> SimRun {
    let out = &finished.outcome;
    let topology = platform.topology(target.packages);
    let core_of: Vec<u32> = topology.cpus().iter().map(|place| place.core as u32).collect();
    let loads = loads(target, out);
    let order: Vec<usize> = loads.iter().map(|(group, _)| *group).collect();
    SimRun {
        machine: Machine {
            id: model.id.clone(),
            name: model.name.clone(),
            levels: model.levels.iter().map(|level| level.name.clone()).collect(),
            limit_w: platform.limit_w,
            assumed: platform.assumed.clone(),
        },
        policy: policy.name.clone(),
        policy_about: about(&policy.scheme).into(),
        simulated_ns: out.measured_ns,
        loads: loads.into_iter().map(|(_, load)| load).collect(),
        total: total(out),
        cpus: cpus(out, &core_of, finished.classes.as_deref()),
        timeline: finished.record.as_ref().map(|record| timeline(record, &order)),
    }
}

fn about(scheme: &Scheme) -> &'static str {
    match scheme {
        Scheme::Fair(Slices::Fixed) => {
            "the kernel's fair scheduling, which knows nothing of licences"
        }
        Scheme::Fair(Slices::Exact) => {
            "the kernel's fair scheduling, each turn ended by a timer of its own"
        }
        Scheme::Fair(Slices::Latency) => {
            "the kernel's fair scheduling before Linux 6.6, with longer slices"
        }
        Scheme::Muqss => "MuQSS: the earliest virtual deadline of the machine first",
        Scheme::CoreScheduling => "wide and other tasks never share a core",
        Scheme::Affinity(_) => "wide tasks are bound to some cores, all others to the rest",
        Scheme::Prototype(_) => "the papers' prototypes: core specialisation in MuQSS",
        Scheme::Lane(_) => "Turbolane: wide code in its own lane",
    }
}

/// Groups that answer requests first, then victims, then offenders; with the group's index.
fn loads(target: &Target, out: &Outcome) -> Vec<(usize, Load)> {
    let load = |(i, group): (usize, &sim::engine::GroupOutcome)| {
        let load = Load {
            name: group.name.clone(),
            wide: target.scenario.wide[i],
            work_per_s: out.work_per_s(group),
            work: target.scenario.work[i].clone(),
            cpu_per_work_ns: group.cpu_per_work_ns(),
            mean_khz: group.mean_khz,
            reduced_frac: group.reduced_frac(),
            starts_per_s: out.per_second(group.starts),
            latency: out.latency(i).and_then(latency),
        };
        (i, load)
    };
    let mut loads: Vec<(usize, Load)> = out.groups.iter().enumerate().map(load).collect();
    loads.sort_by_key(|(i, load)| (load.latency.is_none(), load.wide, *i));
    loads
}

fn latency(histogram: &Histogram) -> Option<Latency> {
    let percentile = |percent| histogram.percentile_ns(percent);
    Some(Latency {
        count: histogram.count(),
        mean_ns: histogram.mean_ns()?,
        p50_ns: percentile(50.0)?,
        p90_ns: percentile(90.0)?,
        p99_ns: percentile(99.0)?,
        p999_ns: percentile(99.9)?,
        max_ns: histogram.max_ns()?,
    })
}

fn total(out: &Outcome) -> Total {
    Total {
        busy_frac: out.busy_frac(),
        mean_khz: out.mean_khz,
        residency_frac: out.residency_frac(),
        migrations_per_s: out.per_second(out.migrations),
        wide_set_changes_per_s: out.per_second(out.sched.resizes),
        energy_j: Some(out.energy_j),
    }
}

fn cpus(out: &Outcome, core_of: &[u32], classes: Option<&[u8]>) -> Vec<CpuUse> {
    let cpus = out.cpus.iter().enumerate();
    cpus.map(|(cpu, sums)| CpuUse {
        cpu: cpu as u32,
        core: core_of[cpu],
        class: classes.map(|classes| classes[cpu]),
        busy_frac: sums.busy_frac(out.measured_ns),
        mean_khz: sums.mean_khz,
        residency_frac: sums.residency_frac(),
    })
    .collect()
}

/// Spans out of points; `order[i]` is the group of load i.
fn timeline(record: &RunRecord, order: &[usize]) -> Timeline {
    let note = |(task, &group): (usize, &u16)| TaskNote {
        name: format!("{}-{task}", record.groups[group as usize]),
        load: order.iter().position(|&known| known == group as usize).map(|load| load as u32),
    };
    Timeline {
        start_ns: record.from_ns,
        end_ns: record.to_ns,
        tasks: record.group_of.iter().enumerate().map(note).collect(),
        cpus: (0..record.runs.len()).map(|cpu| cpu_track(record, cpu)).collect(),
        cores: (0..record.licenses.len()).map(|core| core_track(record, core)).collect(),
        dropped: record.nr_dropped,
    }
}

fn cpu_track(record: &RunRecord, cpu: usize) -> CpuTrack {
    let core = u32::from(record.core_of[cpu]);
    let mut track = CpuTrack { cpu: cpu as u32, core, ..Default::default() };
    for (start_ns, end_ns, point) in record.run_spans(cpu) {
        let Some(task) = point.task else { continue };
        track.start_ns.push(start_ns);
        track.end_ns.push(end_ns);
        track.task.push(task);
        track.asks.push(point.asks);
    }
    track
}

fn core_track(record: &RunRecord, core: usize) -> CoreTrack {
    let mut track = CoreTrack { core: core as u32, ..Default::default() };
    for point in &record.licenses[core] {
        track.at_ns.push(point.at_ns.max(record.from_ns));
        track.level.push(point.level);
        track.clock_khz.push(point.khz);
        track.throttled.push(point.throttled);
    }
    track
}
