// SPDX-License-Identifier: MIT OR Apache-2.0
//! Natural loops, and how dense heavy code is in them.
//!
//! **Problem.** Heavy instructions raise the level only where they are dense, "about one heavy
//! instruction in two cycles" (SYSTOR 2.1). A scanner sees no cycles.
//!
//! **Idea.** A core of the kind that has these levels (Skylake-SP to Ice Lake) issues at most four,
//! later five instructions a cycle. So the share of heavy instructions in the body of a loop bounds
//! the density from above: at four a cycle, one heavy instruction in two cycles needs one of eight.
//!
//! ```text
//! density        = heavy instructions / all instructions, in the loop's body
//! may be dense   = density >= 1/8
//! ```
//!
//! A loop below that bound cannot be dense on such a core, however well it runs. One above it may
//! be, or may wait for memory.
//!
//! A loop is the natural loop of a back edge: an edge to a block that dominates its origin
//! (dominators after Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm"). A function
//! with heavy code and no loop around it may be called in one: there, the body is the function.
//!
//! **Time.** Both algorithms are quadratic in the depth of loops: 20,000 loops in each other, 200
//! kB of code, took 155 s and 2.3 GB. So steps are counted ([`Steps`]), and a function that takes
//! more has no loops that are known.
//!
//! Limits: conditional parts of a body count in full. Loops with two entries are not found.

use std::cell::Cell;

use crate::flow::Graph;

/// More blocks than this are not searched for loops.
const BLOCKS_MAX: usize = 1 << 16;

/// The share of heavy instructions from which they can be dense: one in two cycles (SYSTOR 2.1) at
/// four instructions a cycle (Intel Optimization Manual, Skylake Server: allocation of four
/// micro-operations).
pub(crate) const DENSE_FRAC: f64 = 1.0 / 8.0;

/// Steps for each block: real functions take less than ten, deeply nested and unrolled ones a
/// hundred.
const STEPS_PER_BLOCK: u64 = 512;

/// Steps that are left.
#[derive(Debug)]
struct Steps(Cell<u64>);

impl Steps {
    fn of(blocks: usize) -> Self {
        Steps(Cell::new(STEPS_PER_BLOCK * (blocks as u64 + 64)))
    }

    /// False: there are none.
    fn take(&self, steps: u64) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(steps));
        left > steps
    }
}

/// The body of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loop {
    /// Its blocks, ascending.
    pub(crate) blocks: Vec<u32>,
}

/// The natural loops, one for each header; `None` if the function has too many blocks, or takes too
/// many steps.
pub(crate) fn find(graph: &Graph) -> Option<Vec<Loop>> {
    if graph.blocks.len() > BLOCKS_MAX {
        return None;
    }
    let order = postorder(graph);
    let predecessors = Predecessors::new(graph);
    let steps = Steps::of(graph.blocks.len());
    let dominators = Dominators::new(graph.blocks.len(), &order, &predecessors, &steps)?;
    // Latches by header.
    let mut latches: Vec<(u32, u32)> = Vec::new();
    for &block in &order {
        for to in graph.successors(block as usize) {
            if dominators.dominates(to, block, &steps)? {
                latches.push((to, block));
            }
        }
    }
    latches.sort_unstable();
    let mut loops = Vec::new();
    let mut member_of = vec![u32::MAX; graph.blocks.len()];
    for group in latches.chunk_by(|a, b| a.0 == b.0) {
        let number = loops.len() as u32;
        let body = body(group, number, &mut member_of, &predecessors, &graph.reached);
        if !steps.take(body.blocks.len() as u64) {
            return None;
        }
        loops.push(body);
    }
    Some(loops)
}

/// Everything from which the latches can be reached without passing the header.
fn body(
    latches: &[(u32, u32)],
    number: u32,
    member_of: &mut [u32],
    predecessors: &Predecessors,
    reached: &[bool],
) -> Loop {
    let header = latches[0].0;
    member_of[header as usize] = number;
    let mut blocks = vec![header];
    let mut open: Vec<u32> = latches.iter().map(|(_, latch)| *latch).collect();
    while let Some(block) = open.pop() {
        if !reached[block as usize] || member_of[block as usize] == number {
            continue;
        }
        member_of[block as usize] = number;
        blocks.push(block);
        open.extend(predecessors.of(block));
    }
    blocks.sort_unstable();
    Loop { blocks }
}

/// Where each block can be reached from.
struct Predecessors {
    starts: Vec<u32>,
    blocks: Vec<u32>,
}

impl Predecessors {
    fn new(graph: &Graph) -> Self {
        let count = graph.blocks.len();
        let mut starts = vec![0; count + 1];
        for block in 0..count {
            for to in graph.successors(block) {
                starts[to as usize + 1] += 1;
            }
        }
        for block in 0..count {
            starts[block + 1] += starts[block];
        }
        let mut next = starts.clone();
        let mut blocks = vec![0; starts[count] as usize];
        for block in 0..count {
            for to in graph.successors(block) {
                blocks[next[to as usize] as usize] = block as u32;
                next[to as usize] += 1;
            }
        }
        Predecessors { starts, blocks }
    }

    fn of(&self, block: u32) -> &[u32] {
        let block = block as usize;
        &self.blocks[self.starts[block] as usize..self.starts[block + 1] as usize]
    }
}

/// Reached blocks, each after those it leads to (except back edges).
fn postorder(graph: &Graph) -> Vec<u32> {
    let mut order = Vec::new();
    let mut seen = vec![false; graph.blocks.len()];
    let mut open: Vec<(u32, usize)> = Vec::new();
    if !graph.blocks.is_empty() {
        seen[0] = true;
        open.push((0, 0));
    }
    while let Some((block, next)) = open.last_mut() {
        match graph.successor(*block as usize, *next) {
            Some(to) => {
                *next += 1;
                if !std::mem::replace(&mut seen[to as usize], true) {
                    open.push((to, 0));
                }
            }
            None => {
                order.push(*block);
                open.pop();
            }
        }
    }
    order
}

struct Dominators {
    /// The nearest dominator of each block, by its place in the postorder.
    nearest: Vec<u32>,
    /// Place in the postorder.
    place: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Dominators {
    /// `None`: it takes too many steps.
    fn new(
        blocks: usize,
        order: &[u32],
        predecessors: &Predecessors,
        steps: &Steps,
    ) -> Option<Self> {
        let mut place = vec![NONE; blocks];
        for (at, &block) in order.iter().enumerate() {
            place[block as usize] = at as u32;
        }
        let mut dominators = Dominators { nearest: vec![NONE; order.len()], place };
        let Some(entry) = order.len().checked_sub(1) else { return Some(dominators) };
        dominators.nearest[entry] = entry as u32;
        let mut changed = true;
        while changed {
            changed = false;
            for at in (0..entry).rev() {
                let before = predecessors.of(order[at]);
                let nearest = dominators.common_of(before, steps)?;
                if nearest != dominators.nearest[at] {
                    dominators.nearest[at] = nearest;
                    changed = true;
                }
            }
        }
        Some(dominators)
    }

    fn common_of(&self, predecessors: &[u32], steps: &Steps) -> Option<u32> {
        let places = predecessors.iter().map(|&block| self.place[block as usize]);
        let mut known = places.filter(|&at| at != NONE && self.nearest[at as usize] != NONE);
        let first = known.next().unwrap_or(NONE);
        known.try_fold(first, |a, b| self.common(a, b, steps))
    }

    fn common(&self, mut a: u32, mut b: u32, steps: &Steps) -> Option<u32> {
        let mut walked = 1;
        while a != b {
            while a < b {
                a = self.nearest[a as usize];
                walked += 1;
            }
            while b < a {
                b = self.nearest[b as usize];
                walked += 1;
            }
        }
        steps.take(walked).then_some(a)
    }

    /// Whether every path to `block` passes `by`; both reached.
    fn dominates(&self, by: u32, block: u32, steps: &Steps) -> Option<bool> {
        let by = self.place[by as usize];
        let mut at = self.place[block as usize];
        let mut walked = 1;
        while at < by {
            at = self.nearest[at as usize];
            walked += 1;
        }
        steps.take(walked).then_some(at == by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::{Code, Nothing, Sweep, Targets, Until, decoder};

    fn loops_of(bytes: &[u8]) -> (Graph, Vec<Loop>) {
        let code = Code { bytes, address: 0, bits: 64 };
        let mut sweep = Sweep::default();
        let range = (0, bytes.len());
        sweep.run(&mut decoder(code), code, range, Until::Range, &Nothing, &mut Targets::default());
        let graph = Graph::new(&sweep);
        let loops = find(&graph).unwrap();
        (graph, loops)
    }

    /// A loop in a loop: the inner one's body is part of the outer one's.
    #[test]
    fn nested_loops() {
        let bytes = [
            0x90, // nop
            0x90, // 1: nop
            0xff, 0xc9, // 2: dec ecx
            0x75, 0xfc, // jne 2
            0xff, 0xca, // dec edx
            0x75, 0xf7, // jne 1
            0xc3, // ret
        ];
        let (graph, loops) = loops_of(&bytes);
        assert_eq!(graph.blocks.len(), 5);
        let bodies: Vec<&[u32]> = loops.iter().map(|found| found.blocks.as_slice()).collect();
        assert_eq!(bodies, [&[1, 2, 3][..], &[2]]);
    }

    /// A jump back to a block that does not dominate it (a loop with two entries) is no natural
    /// loop, and code after a return is not reached.
    #[test]
    fn two_entries_are_no_natural_loop() {
        let bytes = [
            0x74, 0x02, // je 2
            0xff, 0xc9, // 1: dec ecx
            0xff, 0xca, // 2: dec edx
            0x75, 0xfa, // jne 1
            0xc3, // ret
            0x90, 0xeb, 0xfd, // nop, jmp to it
        ];
        let (graph, loops) = loops_of(&bytes);
        assert!(loops.is_empty(), "{loops:?}");
        assert_eq!(graph.reached.last(), Some(&false));
    }

    /// A jump through a register may lead to what nothing else leads to.
    #[test]
    fn jump_tables_reach_what_nothing_else_reaches() {
        let bytes = [0xff, 0xe0, 0x90, 0xc3]; // jmp rax; nop; ret
        let (graph, _) = loops_of(&bytes);
        assert_eq!(graph.reached, [true, true]);
        let (graph, _) = loops_of(&[0xc3, 0x90, 0xc3]);
        assert_eq!(graph.reached, [true, false]);
    }
}
