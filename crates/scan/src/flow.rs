// SPDX-License-Identifier: MIT OR Apache-2.0
//! Basic blocks of a function, and which of them can be reached.
//!
//! A block begins at the function's first instruction, after every branch, and wherever a branch of
//! the function leads to. A jump through a register may lead to every block that no known edge
//! leads to: jump tables are not read.
//!
//! Limits: landing pads of exceptions have no edge and count as not reached. A call is taken to
//! return.

use crate::bits::Bits;
use crate::sweep::{Event, Flow, OUTSIDE, Sweep};
use crate::traits::Traits;

/// Instructions that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Number of the first instruction.
    pub(crate) first: u32,
    /// After the number of the last one.
    pub(crate) end: u32,
    /// How it ends; `None` if it goes on to the next one, or out of the function.
    pub(crate) flow: Option<Flow>,
    /// Of all its instructions together.
    pub(crate) traits: Traits,
    /// Where its events begin.
    events: u32,
    /// The blocks that it is known to go on to: the next one, where its branch leads; then
    /// [`OUTSIDE`].
    known: [u32; 2],
    /// It may go on to all blocks that none is known to go on to.
    goes_anywhere: bool,
}

/// The blocks of a function and their edges.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) blocks: Vec<Block>,
    /// Blocks that none is known to go on to, if one may go anywhere.
    unknown: Vec<u32>,
    /// Reached from the first instruction.
    pub(crate) reached: Vec<bool>,
}

impl Graph {
    /// The graph of a decoded function; empty if it has no instruction.
    pub(crate) fn new(sweep: &Sweep) -> Self {
        let mut graph = Graph { blocks: blocks(sweep), ..Graph::default() };
        if sweep.branches.iter().any(|branch| branch.flow == Flow::IndirectJump) {
            graph.open();
        }
        graph.reach();
        graph
    }

    /// Where a block may go on.
    #[inline]
    pub(crate) fn successors(&self, block: usize) -> impl Iterator<Item = u32> {
        let block = &self.blocks[block];
        let known = block.known.into_iter().take_while(|&to| to != OUTSIDE);
        let unknown: &[u32] = if block.goes_anywhere { &self.unknown } else { &[] };
        known.chain(unknown.iter().copied())
    }

    /// One of them.
    #[inline]
    pub(crate) fn successor(&self, block: usize, number: usize) -> Option<u32> {
        let block = &self.blocks[block];
        let known = block.known.iter().filter(|&&to| to != OUTSIDE).count();
        match number.checked_sub(known) {
            None => Some(block.known[number]),
            Some(number) if block.goes_anywhere => self.unknown.get(number).copied(),
            Some(_) => None,
        }
    }

    /// The events of a block.
    pub(crate) fn events<'s>(&self, sweep: &'s Sweep, block: usize) -> &'s [Event] {
        let next = self.blocks.get(block + 1);
        let end = next.map_or(sweep.events.len(), |next| next.events as usize);
        &sweep.events[self.blocks[block].events as usize..end]
    }

    /// Lets jumps through registers go anywhere.
    fn open(&mut self) {
        let mut has_known = vec![false; self.blocks.len()];
        let known = |block: &Block| block.known.into_iter().take_while(|&to| to != OUTSIDE);
        for to in self.blocks.iter().flat_map(known) {
            has_known[to as usize] = true;
        }
        let count = self.blocks.len() as u32;
        self.unknown = (1..count).filter(|&block| !has_known[block as usize]).collect();
        let (mut edges, most) = (0, edges_max(self.blocks.len()));
        for block in &mut self.blocks {
            edges += known(block).count();
            block.goes_anywhere = block.flow == Some(Flow::IndirectJump) && edges < most;
            edges += if block.goes_anywhere { self.unknown.len() } else { 0 };
        }
    }

    fn reach(&mut self) {
        self.reached = vec![false; self.blocks.len()];
        let mut open = Vec::new();
        if !self.blocks.is_empty() {
            self.reached[0] = true;
            open.push(0);
        }
        while let Some(block) = open.pop() {
            for at in 0.. {
                let Some(to) = self.successor(block, at) else { break };
                if !std::mem::replace(&mut self.reached[to as usize], true) {
                    open.push(to as usize);
                }
            }
        }
    }
}

/// Edges of jumps through registers are left out beyond this: functions that have more are data. An
/// interpreter of 5,000 blocks, of which 200 end so, has 12 for each block. It grows with the
/// blocks, for a file may have many functions: 500 with a million edges each took 11 s.
fn edges_max(blocks: usize) -> usize {
    (32 * blocks + (1 << 14)).min(1 << 20)
}

/// Where blocks begin.
fn leaders(sweep: &Sweep) -> Bits {
    let mut leaders = Bits::default();
    let places = sweep.branches.iter().flat_map(|branch| [branch.next, branch.target]);
    for place in [0].into_iter().chain(places) {
        if sweep.starts.contains(place) {
            leaders.insert(place);
        }
    }
    leaders
}

fn blocks(sweep: &Sweep) -> Vec<Block> {
    let leaders = leaders(sweep);
    let (numbers, instructions) = (leaders.ranks(), sweep.starts.ranks());
    let number_at = |target| if leaders.contains(target) { numbers.of(target) } else { OUTSIDE };
    let mut blocks: Vec<Block> = Vec::with_capacity(numbers.len() as usize);
    let (mut branches, mut events) = (sweep.branches.iter().peekable(), 0);
    let (mut places, mut first) = (leaders.iter().skip(1), 0);
    for number in 1..=numbers.len() {
        let next = places.next();
        let end = next.map_or(instructions.len(), |next| instructions.of(next));
        let behind = next.unwrap_or(OUTSIDE);
        let branch = branches.next_if(|branch| branch.at < behind);
        let flow = branch.map(|branch| branch.flow);
        let goes_on = matches!(flow, None | Some(Flow::Branch)) && next.is_some();
        let target = branch.map_or(OUTSIDE, |branch| number_at(branch.target));
        let known = if goes_on { [number, target] } else { [target, OUTSIDE] };
        let traits = Traits::NONE;
        let mut block = Block { first, end, flow, traits, events, known, goes_anywhere: false };
        let own = sweep.events[events as usize..].iter().take_while(|event| event.at < behind);
        for event in own {
            block.traits |= event.traits;
            events += 1;
        }
        blocks.push(block);
        first = end;
    }
    blocks
}
