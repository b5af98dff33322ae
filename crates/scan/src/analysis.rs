// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a decoded function is able to do to the licence level.

use isa::Weight;

use crate::facts::{Width, kind};
use crate::flow::Graph;
use crate::loops::{self, DENSE_FRAC, Loop};
use crate::sweep::{Event, Sweep};
use crate::upper::{self, Dirty};

/// Instructions by length: 128, 256, 512 bits.
pub(crate) type Counts = [u32; 3];

/// How dense heavy code of 256 bits and more is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Density {
    /// Heavy instructions per instruction.
    pub(crate) heavy_frac: f64,
    /// In a loop; else in the whole function.
    pub(crate) in_loop: bool,
}

/// A function with something that matters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Analysis {
    pub(crate) instructions: u32,
    /// The level that its most demanding instruction asks for.
    pub(crate) license_level: u8,
    /// The same, if heavy instructions count only where they can be dense.
    pub(crate) sustained_level: u8,
    pub(crate) widest: Width,
    pub(crate) heavy: Counts,
    pub(crate) light: Counts,
    pub(crate) tile: u32,
    pub(crate) tile_multiply: u32,
    pub(crate) vnni: u32,
    pub(crate) scatter: u32,
    pub(crate) gather: u32,
    /// Instructions of 256 bits and more, and tiles.
    pub(crate) wide: u32,
    /// `None` if there was no reason to look, or too much to look at.
    pub(crate) loops: Option<u32>,
    pub(crate) density: Option<Density>,
    pub(crate) dirty: Dirty,
    /// Offsets in the function.
    pub(crate) cpuid: Vec<u32>,
    pub(crate) xgetbv: Vec<u32>,
    /// Wide instructions are where no known branch leads.
    pub(crate) unreached: bool,
}

/// Analyses a function; `None` if there is nothing in it that matters.
pub(crate) fn analyse(sweep: &Sweep) -> Option<Analysis> {
    let is_wide = sweep.events.iter().any(Event::is_wide);
    let asks = kind::CPUID | kind::XGETBV;
    if !is_wide && !sweep.events.iter().any(|event| event.kinds & asks != 0) {
        return None;
    }
    let mut found = Analysis { instructions: sweep.offsets.len() as u32, ..Analysis::default() };
    if !is_wide {
        sweep.events.iter().for_each(|event| found.count(sweep, event));
        return Some(found);
    }
    let graph = Graph::new(sweep);
    let mut wide_reached = false;
    for (number, &is_reached) in graph.reached.iter().enumerate() {
        let events = graph.events(sweep, number);
        wide_reached |= is_reached && events.iter().any(Event::is_wide);
        // Between data, what nothing leads to is data as well.
        if is_reached || sweep.data_bytes == 0 {
            events.iter().for_each(|event| found.count(sweep, event));
        }
    }
    found.unreached = !wide_reached;
    found.dirty = upper::find(sweep, &graph);
    found.weigh(sweep, &graph);
    Some(found)
}

impl Analysis {
    fn count(&mut self, sweep: &Sweep, event: &Event) {
        self.widest = self.widest.max(event.widest).max(event.length);
        self.license_level = self.license_level.max(event.license_level);
        self.wide += u32::from(event.is_wide());
        let one = |bit| u32::from(event.kinds & bit != 0);
        self.tile += one(kind::TILE);
        self.tile_multiply += one(kind::TILE_MULTIPLY);
        self.vnni += one(kind::VNNI);
        self.scatter += one(kind::SCATTER);
        self.gather += one(kind::GATHER);
        let at = sweep.offsets[event.index as usize];
        if one(kind::CPUID) == 1 {
            self.cpuid.push(at);
        }
        if one(kind::XGETBV) == 1 {
            self.xgetbv.push(at);
        }
        if event.length > Width::None {
            let column = event.length as usize - 1;
            match event.weight {
                Some(Weight::Heavy) => self.heavy[column] += 1,
                Some(Weight::Light) => self.light[column] += 1,
                _ => {}
            }
        }
    }

    /// Density and the level that it allows.
    fn weigh(&mut self, sweep: &Sweep, graph: &Graph) {
        // Light code of 512 bits, tiles and scatters need no density (classes.toml).
        let at_once = sweep.events.iter().filter(|event| {
            event.weight != Some(Weight::Heavy) || event.kinds & kind::SCATTER != 0
        });
        let at_once = at_once.map(|event| event.license_level).max().unwrap_or(0);
        self.sustained_level = at_once.min(self.license_level);
        if self.heavy[1..] == [0, 0] {
            return;
        }
        let loops = loops::find(graph);
        self.loops = loops.as_ref().map(|loops| loops.len() as u32);
        let blocks: Vec<[u32; 2]> =
            (0..graph.blocks.len()).map(|block| heavy(graph.events(sweep, block))).collect();
        let mut best: Option<(Density, u8)> = None;
        for body in &loops.unwrap_or_default() {
            keep_densest(&mut best, share(graph, &blocks, body), true);
        }
        if best.is_none() {
            let all = Loop { blocks: (0..graph.blocks.len() as u32).collect() };
            keep_densest(&mut best, share(graph, &blocks, &all), false);
        }
        let dense_level = best.map_or(0, |(_, level)| level);
        self.density = best.map(|(density, _)| density);
        self.sustained_level = self.sustained_level.max(dense_level.min(self.license_level));
    }
}

/// Heavy instructions of 256 and of 512 bits.
fn heavy(events: &[Event]) -> [u32; 2] {
    let mut counts = [0; 2];
    for event in events.iter().filter(|event| event.weight == Some(Weight::Heavy)) {
        counts[0] += u32::from(event.length == Width::Ymm);
        counts[1] += u32::from(event.length == Width::Zmm);
    }
    counts
}

/// Shares of heavy 256-bit and 512-bit instructions in a loop's body.
fn share(graph: &Graph, heavy: &[[u32; 2]], body: &Loop) -> [f64; 2] {
    let mut sums = [0u64; 3];
    for &block in &body.blocks {
        let place = graph.blocks[block as usize];
        sums[0] += u64::from(place.end - place.first);
        sums[1] += u64::from(heavy[block as usize][0]);
        sums[2] += u64::from(heavy[block as usize][1]);
    }
    [1, 2].map(|i| sums[i] as f64 / sums[0].max(1) as f64)
}

fn keep_densest(best: &mut Option<(Density, u8)>, [ymm, zmm]: [f64; 2], in_loop: bool) {
    let heavy_frac = ymm + zmm;
    if heavy_frac == 0.0 {
        return;
    }
    // Heavy code asks for 2 with 512 bits and for 1 with 256: the table says so by weight and length.
    let level = |bits| isa::table().level(Weight::Heavy, bits);
    let dense_level = match () {
        () if zmm >= DENSE_FRAC => level(512),
        () if heavy_frac >= DENSE_FRAC => level(256),
        () => 0,
    };
    let (density, known_level) = best.unwrap_or((Density { heavy_frac: 0.0, in_loop }, 0));
    let density =
        if heavy_frac > density.heavy_frac { Density { heavy_frac, in_loop } } else { density };
    *best = Some((density, known_level.max(dense_level)));
}
