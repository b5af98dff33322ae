// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dirty upper halves: returns that some path reaches with one, and legacy SSE that runs with one.
//!
//! **Problem.** After an instruction that writes a ymm or zmm register and before `vzeroupper`,
//! legacy SSE code pays for the upper halves it does not touch (a state transition, or a merge in
//! every instruction), and later SIMD code of whatever length counts as wide. A function that
//! returns so does this to its caller.
//!
//! **Idea.** Forward over the blocks: a block's state at its start is dirty if it is dirty at the
//! end of a block before it. Writes of registers 0 to 15 make it dirty, `vzeroupper` and `vzeroall`
//! clean. A call leaves it as it is.
//!
//! Limits: a function that returns a vector of 256 or 512 bits has to return so; its type is not
//! known here. A jump out of the function hands the state on and does not count as a return.

use crate::flow::Graph;
use crate::sweep::{Flow, Sweep};
use crate::traits::kind;

/// What was found in a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dirty {
    /// Returns with a dirty upper half.
    pub(crate) returns: u32,
    /// Legacy SSE instructions with a dirty upper half.
    pub(crate) sse: u32,
}

/// Looks through a function with its graph.
pub(crate) fn find(sweep: &Sweep, graph: &Graph) -> Dirty {
    let through = |block, dirty| through(sweep, graph, block, dirty);
    let mut at_start = vec![false; graph.blocks.len()];
    let is_source = |&block: &usize| graph.reached[block] && graph.blocks[block].traits.is_dirty();
    let mut open: Vec<usize> = (0..graph.blocks.len()).filter(is_source).collect();
    while let Some(block) = open.pop() {
        if !through(block, at_start[block]).0 {
            continue;
        }
        for to in graph.successors(block) {
            if !std::mem::replace(&mut at_start[to as usize], true) {
                open.push(to as usize);
            }
        }
    }
    let mut found = Dirty::default();
    for (number, block) in graph.blocks.iter().enumerate() {
        if !graph.reached[number] {
            continue;
        }
        let (dirty, sse) = through(number, at_start[number]);
        found.sse += sse;
        found.returns += u32::from(dirty && block.flow == Some(Flow::Return));
    }
    found
}

/// The state at the end of a block, and the SSE instructions that ran dirty.
fn through(sweep: &Sweep, graph: &Graph, block: usize, mut dirty: bool) -> (bool, u32) {
    let all = graph.blocks[block].traits;
    if !all.has(kind::VZERO | kind::SSE) {
        return (dirty || all.is_dirty(), 0); // in whatever order
    }
    let mut sse = 0;
    for event in graph.events(sweep, block) {
        if event.traits.has(kind::VZERO) {
            dirty = false;
        }
        dirty |= event.traits.is_dirty();
        sse += u32::from(dirty && event.traits.has(kind::SSE));
    }
    (dirty, sse)
}
