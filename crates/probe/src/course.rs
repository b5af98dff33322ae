// SPDX-License-Identifier: MIT OR Apache-2.0
//! The typical course of a cell: clock and rate over its quiet repetitions, by time.
//!
//! Steps of time grow with the distance from the block's start and end, where things happen: a few
//! hundred points show 2 us and 6 ms alike. Repetitions with the shorter block are taken, so that
//! all ends fall on each other.

use report::probe::Point;
use report::probe::raw::{Header, Phase, Trace, Work};

use crate::repetition::{Repetition, clock_khz};
use crate::series::{Slice, rate, slices};
use crate::stats::median;

/// Repetitions that a course is made of: more change nothing that can be seen.
const MOST: usize = 40;

pub(crate) fn course(header: &Header, inside: &[(&Trace, &Repetition)]) -> Vec<Point> {
    let shortest = inside.iter().map(|(_, one)| one.block_ns).fold(f64::INFINITY, f64::min);
    let chosen: Vec<&(&Trace, &Repetition)> =
        inside.iter().filter(|(_, one)| one.block_ns < 1.2 * shortest).take(MOST).collect();
    let blocks: Vec<f64> = chosen.iter().map(|(_, one)| one.block_ns).collect();
    let Some(block_ns) = median(&blocks) else { return Vec::new() };
    let settled = chosen.iter().filter_map(|(trace, one)| {
        let wide = f64::from(trace.layout.wide_per_loop);
        Some(one.wide_per_cycle? * one.steady_khz? / 1e6 / wide)
    });
    let settled = median(&settled.collect::<Vec<_>>());
    let each: Vec<Vec<Slice>> = chosen.iter().map(|(trace, _)| slices(header, trace)).collect();
    // Half of the repetitions reach that far; one that was preempted would take the axis with it.
    let ends: Vec<f64> = each.iter().filter_map(|one| Some(one.last()?.at_ns)).collect();
    let all = each.concat();
    let edges = edges(block_ns, median(&ends).unwrap_or(0.0));
    let mut groups: Vec<Vec<Slice>> = vec![Vec::new(); edges.len()];
    for slice in &all {
        let at = edges.partition_point(|edge| *edge <= slice.at_ns);
        let Some(group) = at.checked_sub(1).and_then(|at| groups.get_mut(at)) else { continue };
        group.push(*slice);
    }
    let is_payload =
        |one: &&Slice| matches!((one.work, one.phase), (Work::Payload(_), Phase::Block));
    let point = |(at_ns, group): (f64, Vec<Slice>)| Point {
        at_ns,
        clock_khz: clock_khz(group.iter()),
        rate_frac: rate(group.iter().filter(is_payload)).zip(settled).map(|(rate, all)| rate / all),
    };
    edges.into_iter().zip(groups).map(point).collect()
}

/// Starts of the steps of time.
fn edges(block_ns: f64, end_ns: f64) -> Vec<f64> {
    let mut edges = Vec::new();
    let mut at = -50_000.0;
    while at < end_ns {
        edges.push(at);
        let near = at.abs().min((at - block_ns).abs());
        let step = match near {
            0.0..30_000.0 if at < block_ns / 2.0 => 1_000.0,
            0.0..30_000.0 => 2_000.0,
            30_000.0..200_000.0 => 5_000.0,
            _ => 25_000.0,
        };
        at += step;
    }
    edges
}
