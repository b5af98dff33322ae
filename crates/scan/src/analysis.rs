// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a decoded function is able to do to the licence level.

use isa::Weight;

use crate::flow::Graph;
use crate::loops::{self, DENSE_FRAC, Loop};
use crate::sweep::{Event, Sweep};
use crate::traits::{CELLS, Traits, Width, cell, kind};
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
    let is_wide = sweep.traits.is_wide();
    if !is_wide && !sweep.traits.has(kind::CPUID | kind::XGETBV) {
        return None;
    }
    let (mut found, mut tally) = (Analysis::default(), Tally::default());
    if !is_wide {
        found.instructions = sweep.starts.ranks().len();
        tally.add(&sweep.events, sweep.traits);
        found.count(&tally);
        return Some(found);
    }
    let graph = Graph::new(sweep);
    let mut heavy = Vec::with_capacity(graph.blocks.len());
    found.instructions = graph.blocks.last().map_or(0, |last| last.end);
    found.unreached = true;
    for (number, block) in graph.blocks.iter().enumerate() {
        let is_reached = graph.reached[number];
        found.unreached &= !(is_reached && block.traits.is_wide());
        let mut own = Tally::default();
        own.add(graph.events(sweep, number), block.traits);
        heavy.push(own.of(Weight::Heavy));
        // Between data, what nothing leads to is data as well.
        if is_reached || sweep.data_bytes == 0 {
            tally.join(own);
        }
    }
    found.count(&tally);
    found.dirty = upper::find(sweep, &graph);
    found.weigh(sweep, &graph, &heavy);
    Some(found)
}

/// Sums over events.
#[derive(Default)]
struct Tally {
    /// By weight and length.
    cells: [u32; CELLS],
    traits: Traits,
    /// Of kinds that are rare.
    named: Vec<Event>,
}

/// Kinds that are counted by name.
const NAMED: u16 = kind::SCATTER | kind::GATHER | kind::VNNI | kind::TILE | kind::TILE_MULTIPLY;
const ASKS: u16 = kind::CPUID | kind::XGETBV;

impl Tally {
    /// Adds events, which have these traits together.
    fn add(&mut self, events: &[Event], all: Traits) {
        for event in events {
            self.cells[event.traits.cell()] += 1;
        }
        self.traits |= all;
        if all.has(NAMED | ASKS) {
            self.named.extend(events.iter().filter(|event| event.traits.has(NAMED | ASKS)));
        }
    }

    fn join(&mut self, other: Tally) {
        for (sum, more) in self.cells.iter_mut().zip(other.cells) {
            *sum += more;
        }
        self.traits |= other.traits;
        self.named.extend(other.named);
    }

    /// Of 128, 256 and 512 bits.
    fn of(&self, weight: Weight) -> Counts {
        [Width::Xmm, Width::Ymm, Width::Zmm].map(|length| self.cells[cell(weight, length)])
    }

    /// Of a kind that is counted by name.
    fn named(&self, kind: u16) -> impl Iterator<Item = &Event> {
        self.named.iter().filter(move |event| event.traits.has(kind))
    }
}

impl Analysis {
    fn count(&mut self, tally: &Tally) {
        (self.heavy, self.light) = (tally.of(Weight::Heavy), tally.of(Weight::Light));
        let tile = tally.of(Weight::Tile);
        let [xmm, ymm, zmm] = [0, 1, 2].map(|i| self.heavy[i] + self.light[i] + tile[i]);
        let longest = match () {
            () if zmm > 0 => Width::Zmm,
            () if ymm > 0 => Width::Ymm,
            () if xmm > 0 => Width::Xmm,
            () => Width::None,
        };
        self.widest = tally.traits.widest().max(longest);
        self.license_level = tally.traits.license_level();
        let count = |kind| tally.named(kind).count() as u32;
        self.tile = count(kind::TILE);
        self.tile_multiply = count(kind::TILE_MULTIPLY);
        self.vnni = count(kind::VNNI);
        self.scatter = count(kind::SCATTER);
        self.gather = count(kind::GATHER);
        let short_tile = |event: &&Event| event.traits.length() < Width::Ymm;
        self.wide = ymm + zmm + tally.named(kind::TILE).filter(short_tile).count() as u32;
        let places = |kind| tally.named(kind).map(|event| event.at).collect();
        (self.cpuid, self.xgetbv) = (places(kind::CPUID), places(kind::XGETBV));
    }

    /// Density and the level that it allows.
    fn weigh(&mut self, sweep: &Sweep, graph: &Graph, heavy: &[Counts]) {
        self.sustained_level = sweep.traits.level_at_once().min(self.license_level);
        if self.heavy[1..] == [0, 0] {
            return;
        }
        let loops = loops::find(graph);
        self.loops = loops.as_ref().map(|loops| loops.len() as u32);
        let mut best: Option<(Density, u8)> = None;
        for body in &loops.unwrap_or_default() {
            keep_densest(&mut best, share(graph, heavy, body), true);
        }
        if best.is_none() {
            let all = Loop { blocks: (0..graph.blocks.len() as u32).collect() };
            keep_densest(&mut best, share(graph, heavy, &all), false);
        }
        let dense_level = best.map_or(0, |(_, level)| level);
        self.density = best.map(|(density, _)| density);
        self.sustained_level = self.sustained_level.max(dense_level.min(self.license_level));
    }
}

/// Shares of heavy 256-bit and 512-bit instructions in a loop's body.
fn share(graph: &Graph, heavy: &[Counts], body: &Loop) -> [f64; 2] {
    let mut sums = [0u64; 3];
    for &block in &body.blocks {
        let place = graph.blocks[block as usize];
        sums[0] += u64::from(place.end - place.first);
        sums[1] += u64::from(heavy[block as usize][1]);
        sums[2] += u64::from(heavy[block as usize][2]);
    }
    [1, 2].map(|i| sums[i] as f64 / sums[0].max(1) as f64)
}

fn keep_densest(best: &mut Option<(Density, u8)>, [ymm, zmm]: [f64; 2], in_loop: bool) {
    let heavy_frac = ymm + zmm;
    if heavy_frac == 0.0 {
        return;
    }
    // Heavy code asks for 2 with 512 bits and for 1 with 256: the table says so by weight and
    // length.
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
