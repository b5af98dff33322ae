// SPDX-License-Identifier: MIT OR Apache-2.0
//! Basic blocks of a function, and which of them can be reached.
//!
//! A block begins at the function's first instruction, behind every branch, and wherever a branch of
//! the function leads to. A jump through a register may lead to every block that no known edge leads
//! to: jump tables are not read.
//!
//! Limits: landing pads of exceptions have no edge and count as not reached. A call is taken to return.

use crate::sweep::{Event, Flow, OUTSIDE, Sweep};

/// Instructions that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Number of the first instruction.
    pub(crate) first: u32,
    /// Behind the number of the last one.
    pub(crate) end: u32,
    /// How it ends; `None` if it goes on to the next one, or out of the function.
    pub(crate) flow: Option<Flow>,
}

/// The blocks of a function and their edges.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) blocks: Vec<Block>,
    /// For each block where its successors begin in `edges`; one more than blocks.
    starts: Vec<u32>,
    edges: Vec<u32>,
    /// For each block where its events begin; one more than blocks.
    events: Vec<u32>,
    /// Reached from the first instruction.
    pub(crate) reached: Vec<bool>,
}

impl Graph {
    /// The graph of a decoded function; empty if it has no instruction.
    pub(crate) fn new(sweep: &Sweep) -> Self {
        let targets: Vec<u32> =
            sweep.branches.iter().map(|branch| index_at(sweep, branch.target)).collect();
        let blocks = blocks(sweep, &targets);
        let mut graph = Graph { blocks, ..Graph::default() };
        graph.connect(sweep, &targets);
        graph.reach();
        graph.place(sweep);
        graph
    }

    /// Where a block may go on.
    pub(crate) fn successors(&self, block: usize) -> &[u32] {
        &self.edges[self.starts[block] as usize..self.starts[block + 1] as usize]
    }

    /// The events of a block.
    pub(crate) fn events<'s>(&self, sweep: &'s Sweep, block: usize) -> &'s [Event] {
        &sweep.events[self.events[block] as usize..self.events[block + 1] as usize]
    }

    fn connect(&mut self, sweep: &Sweep, targets: &[u32]) {
        let mut has_known = vec![false; self.blocks.len()];
        let mut known: Vec<[u32; 2]> = Vec::with_capacity(self.blocks.len());
        let mut ends = sweep.branches.iter().zip(targets).peekable();
        for (number, block) in self.blocks.iter().enumerate() {
            while ends.next_if(|(branch, _)| branch.index + 1 < block.end).is_some() {}
            let end = ends.peek().filter(|(branch, _)| branch.index + 1 == block.end);
            let goes_on =
                matches!(block.flow, None | Some(Flow::Branch)) && number + 1 < self.blocks.len();
            let next = if goes_on { number as u32 + 1 } else { OUTSIDE };
            let target = end.map_or(OUTSIDE, |(_, target)| **target);
            let target = if target == OUTSIDE { OUTSIDE } else { self.beginning_at(target) };
            for to in [next, target].into_iter().filter(|to| *to != OUTSIDE) {
                has_known[to as usize] = true;
            }
            known.push([next, target]);
        }
        let unknown: Vec<u32> =
            (1..self.blocks.len() as u32).filter(|&block| !has_known[block as usize]).collect();
        for (block, known) in self.blocks.iter().zip(known) {
            self.starts.push(self.edges.len() as u32);
            self.edges.extend(known.into_iter().filter(|to| *to != OUTSIDE));
            if block.flow == Some(Flow::IndirectJump) && self.edges.len() < EDGES_MAX {
                self.edges.extend(&unknown);
            }
        }
        self.starts.push(self.edges.len() as u32);
    }

    /// The block that begins with this instruction.
    fn beginning_at(&self, instruction: u32) -> u32 {
        self.blocks.partition_point(|block| block.first < instruction) as u32
    }

    fn reach(&mut self) {
        self.reached = vec![false; self.blocks.len()];
        let mut open = Vec::new();
        if !self.blocks.is_empty() {
            self.reached[0] = true;
            open.push(0);
        }
        while let Some(block) = open.pop() {
            for at in self.starts[block]..self.starts[block + 1] {
                let to = self.edges[at as usize] as usize;
                if !std::mem::replace(&mut self.reached[to], true) {
                    open.push(to);
                }
            }
        }
    }

    /// Says which events are in which block.
    fn place(&mut self, sweep: &Sweep) {
        let mut at = 0;
        for block in &self.blocks {
            self.events.push(at as u32);
            while sweep.events.get(at).is_some_and(|event| event.index < block.end) {
                at += 1;
            }
        }
        self.events.push(at as u32);
    }
}

/// Edges of jumps through registers are left out beyond this: functions of that size are interpreters
/// or data.
const EDGES_MAX: usize = 1 << 20;

/// The number of the instruction that begins at this offset, or [`OUTSIDE`].
fn index_at(sweep: &Sweep, offset: u32) -> u32 {
    if offset == OUTSIDE {
        return OUTSIDE;
    }
    sweep.offsets.binary_search(&offset).map_or(OUTSIDE, |index| index as u32)
}

fn blocks(sweep: &Sweep, targets: &[u32]) -> Vec<Block> {
    let count = sweep.offsets.len() as u32;
    let mut starts: Vec<u32> = Vec::with_capacity(2 * targets.len() + 1);
    starts.push(0);
    starts.extend(sweep.branches.iter().map(|branch| branch.index + 1));
    starts.extend(targets);
    starts.retain(|&start| start < count);
    starts.sort_unstable();
    starts.dedup();
    let mut branches = sweep.branches.iter().peekable();
    let ends = starts.iter().skip(1).copied().chain([count]);
    let block = |(&first, end): (&u32, u32)| {
        while branches.next_if(|branch| branch.index + 1 < end).is_some() {}
        let last = branches.peek().filter(|branch| branch.index + 1 == end);
        Block { first, end, flow: last.map(|branch| branch.flow) }
    };
    starts.iter().zip(ends).map(block).collect()
}
