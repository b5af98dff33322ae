// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who calls a function: the call graph of one file, as far as instructions and data show it.
//!
//! **Problem.** A function that cannot be marked itself can be marked at its callers, if these are
//! all of them.
//!
//! **Idea.** Decode each function once more, and note calls and jumps that leave it (through the
//! procedure linkage table and the global offset table too), and addresses of functions that it
//! computes. Addresses of functions in data and relocations, and what the file exports, say who can
//! be called by code that is not seen ([`Reach`]). Then climb: from a function to its callers, to
//! theirs, until marks stop every path ([`Callers::cover`]).
//!
//! **Cost.** A decoder without shortcuts, at a tenth of the scanner's speed, so the graph is only
//! made where marks are asked for.
//!
//! **Limits.** An indirect call is attributed to no function: what is called by pointer has unknown
//! callers. One function that falls through to the next, as assembly may, is not seen.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};
use object::elf::{R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT};
use object::{Object, ObjectSymbol, ObjectSymbolTable, RelocationFlags, RelocationTarget};
use rayon::prelude::*;

use crate::bounds::Range;
use crate::file::sweep_all;
use crate::image::Kind;
use crate::layout::Layout;
use crate::sweep::{Code, Wanted, decoder};
use crate::{Limits, Meter, ScanError};

/// Functions that are decoded by one task.
const TASK_FUNCTIONS: usize = 256;

/// How code that is not seen can reach a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// By no known means.
    #[default]
    None,
    /// Its address is in data, or is computed by code.
    Pointer,
    /// The file exports it, or starts with it.
    Export,
}

/// A function of the graph.
#[derive(Clone, Debug, Default)]
struct Node {
    start: u64,
    end: u64,
    /// Of its first byte in the file.
    file_offset: u64,
    reach: Reach,
    /// Whether the file states the range.
    is_stated: bool,
    /// Whether code that the file states calls its first instruction.
    is_called: bool,
    /// Whether code jumps to its first instruction.
    is_jumped_to: bool,
    /// Whether there is a second entry.
    is_entered_inside: bool,
    /// Numbers of the functions that call it or jump into it, ascending.
    callers: Vec<u32>,
}

/// The functions of a file with their callers.
pub struct Callers {
    /// Ascending, and apart from each other.
    nodes: Vec<Node>,
}

/// Where a function begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Start {
    /// In memory, before relocation.
    pub address: u64,
    /// In the file.
    pub file_offset: u64,
}

/// Why not every path into a function can be marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncovered {
    /// Code that is not seen may call the function at this address.
    Reached(u64, Reach),
    /// Nothing is known that calls the function at this address.
    NoCaller(u64),
    /// There are callers further up than the limit.
    TooFar,
}

/// What one function refers to.
#[derive(Default)]
struct Uses {
    calls: Vec<u64>,
    jumps: Vec<u64>,
    addresses: Vec<u64>,
}

/// Makes the graph of a linked 64-bit file; that of others has no functions.
///
/// # Errors
/// As [`crate::scan_file`].
pub fn callers(bytes: &[u8], limits: &Limits<'_>) -> Result<Callers, ScanError> {
    let layout = Layout::new(bytes, limits)?;
    if layout.image.kind == Kind::Object || layout.image.bits != 64 {
        return Ok(Callers { nodes: Vec::new() });
    }
    let meter = Meter::new(limits);
    let recovered = sweep_all(&layout, &meter)?.recovered;
    let mut ranges: Vec<(usize, Range)> = recovered;
    for (section, stated) in layout.ranges.iter().enumerate() {
        ranges.extend(stated.iter().map(|range| (section, *range)));
    }
    ranges.sort_unstable_by_key(|(_, range)| (range.start, range.end));
    ranges.dedup_by_key(|(_, range)| range.start);
    ranges.retain(|(section, _)| !layout.image.sections[*section].is_stubs());
    let slots = slots(&layout);
    let uses: Result<Vec<Vec<Uses>>, ScanError> = ranges
        .par_chunks(TASK_FUNCTIONS)
        .map(|chunk| {
            let one = |(section, range): &(usize, Range)| {
                meter.spend(range.end - range.start)?;
                Ok(uses(layout.image.sections[*section].code, *range, &slots))
            };
            chunk.iter().map(one).collect()
        })
        .collect();
    let new = |(section, range): &(usize, Range)| {
        let section = &layout.image.sections[*section];
        let file_offset = section.offset + (range.start - section.code.address);
        let is_stated = range.source.is_stated();
        Node { start: range.start, end: range.end, file_offset, is_stated, ..Node::default() }
    };
    let mut callers = Callers { nodes: ranges.iter().map(new).collect() };
    for (caller, used) in uses?.into_iter().flatten().enumerate() {
        callers.add(caller as u32, &used);
    }
    for address in layout.pointers(&callers) {
        callers.raise(address, Reach::Pointer);
    }
    let exports = layout.image.file.dynamic_symbols().filter(ObjectSymbol::is_definition);
    for address in exports.map(|symbol| symbol.address()).chain(layout.entries()) {
        callers.raise(address, Reach::Export);
    }
    for node in &mut callers.nodes {
        node.callers.sort_unstable();
        node.callers.dedup();
    }
    Ok(callers)
}

/// Words that the dynamic linker fills with the address of a function of this file, by their own
/// address: what stubs and calls through the global offset table read.
fn slots(layout: &Layout<'_>) -> BTreeMap<u64, u64> {
    let file = &layout.image.file;
    let Some(symbols) = file.dynamic_symbol_table() else { return BTreeMap::new() };
    let mut slots = BTreeMap::new();
    for (at, relocation) in file.dynamic_relocations().into_iter().flatten() {
        let kinds = [R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT, R_X86_64_64];
        let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
        let RelocationTarget::Symbol(index) = relocation.target() else { continue };
        if kinds.contains(&r_type)
            && let Ok(symbol) = symbols.symbol_by_index(index)
            && symbol.is_definition()
        {
            slots.insert(at, symbol.address());
        }
    }
    for section in layout.image.sections.iter().filter(|section| section.is_stubs()) {
        add_stubs(section.code, &mut slots);
    }
    slots
}

/// Adds the stubs by which functions call others of this file through such words. A stub is a jump,
/// after `endbr64` at most, at a multiple of 8.
fn add_stubs(code: Code<'_>, slots: &mut BTreeMap<u64, u64>) {
    for jump in &mut decoder(code) {
        let is_jump = jump.flow_control() == FlowControl::IndirectBranch;
        if is_jump
            && jump.is_ip_rel_memory_operand()
            && let Some(&function) = slots.get(&jump.ip_rel_memory_address())
        {
            slots.insert(jump.ip() & !7, function);
        }
    }
}

fn uses(code: Code<'_>, range: Range, slots: &BTreeMap<u64, u64>) -> Uses {
    let mut used = Uses::default();
    let (from, to) = ((range.start - code.address) as usize, (range.end - code.address) as usize);
    let mut decoder = decoder(Code { bytes: &code.bytes[from..to], address: range.start, ..code });
    let mut instruction = Instruction::default();
    let is_outside = |address: u64| !(range.start..range.end).contains(&address);
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let is_call =
            matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
        let is_jump = matches!(
            instruction.flow_control(),
            FlowControl::UnconditionalBranch
                | FlowControl::ConditionalBranch
                | FlowControl::IndirectBranch
        );
        let targets = if is_call { &mut used.calls } else { &mut used.jumps };
        if instruction.is_ip_rel_memory_operand() {
            let address = instruction.ip_rel_memory_address();
            match slots.get(&address) {
                Some(&function) if is_call || is_jump => targets.push(function),
                Some(&function) => used.addresses.push(function),
                None if instruction.mnemonic() == Mnemonic::Lea => used.addresses.push(address),
                None => {}
            }
        } else if (is_call || is_jump) && is_near(&instruction) {
            let target = instruction.near_branch_target();
            let target = slots.get(&target).copied().unwrap_or(target);
            if is_outside(target) {
                targets.push(target);
            }
        } else if let Some(value) = immediate(&instruction) {
            used.addresses.push(value);
        }
    }
    used
}

fn is_near(instruction: &Instruction) -> bool {
    matches!(
        instruction.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    )
}

/// The value that an instruction moves or stores: an address, in programs that are not relocated.
fn immediate(instruction: &Instruction) -> Option<u64> {
    let is_it = instruction.mnemonic() == Mnemonic::Mov
        && matches!(
            instruction.op1_kind(),
            OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64
        );
    is_it.then(|| instruction.immediate(1))
}

impl Node {
    fn place(&self) -> Start {
        Start { address: self.start, file_offset: self.file_offset }
    }
}

impl Callers {
    /// Number of the function that the address is in.
    fn find(&self, address: u64) -> Option<usize> {
        let at = self.nodes.partition_point(|node| node.start <= address).checked_sub(1)?;
        (address < self.nodes[at].end).then_some(at)
    }

    /// An address in the middle of a function is a second entry if it is exported; if it is in
    /// data, it is mostly one of the function's own branches.
    fn raise(&mut self, address: u64, reach: Reach) {
        let Some(at) = self.find(address) else { return };
        let node = &mut self.nodes[at];
        if node.start == address || reach == Reach::Export {
            node.reach = node.reach.max(reach);
            node.is_entered_inside |= node.start != address;
        }
    }

    /// Whether each call of the function passes its first instruction, and finds the return address
    /// on top of the stack there: what a mark needs. It is known of what is called by code that the
    /// file states, of exports, and of functions that the file states whose address is taken; not
    /// of blocks that jump tables lead to, and not of code that only an exception enters.
    fn is_entry(&self, at: usize) -> bool {
        let node = &self.nodes[at];
        let is_taken = node.is_stated && node.reach == Reach::Pointer;
        !node.is_entered_inside && (node.is_called || is_taken || node.reach == Reach::Export)
    }

    /// Whether what begins at `start` is only jumped to: a part of another function, such as the
    /// seldom executed one that compilers move away. A return probe there would overwrite what the
    /// function has on top of its stack.
    pub fn is_part(&self, start: u64) -> bool {
        let Some(at) = self.find(start) else { return true };
        let node = &self.nodes[at];
        let is_called = node.is_called || node.reach != Reach::None;
        node.start != start || (node.is_jumped_to && !is_called)
    }

    fn add(&mut self, caller: u32, used: &Uses) {
        let is_stated = self.nodes[caller as usize].is_stated;
        let calls = used.calls.iter().map(|target| (target, true));
        for (&target, is_call) in calls.chain(used.jumps.iter().map(|target| (target, false))) {
            let Some(at) = self.find(target) else { continue };
            let node = &mut self.nodes[at];
            node.callers.push(caller);
            node.is_called |= is_call && is_stated && target == node.start;
            node.is_jumped_to |= !is_call && target == node.start;
            node.is_entered_inside |= target != node.start;
        }
        for &address in &used.addresses {
            self.raise(address, Reach::Pointer);
        }
    }

    /// The functions from which the ones at `starts` can be reached by at most so many calls.
    pub fn above(&self, starts: &[u64], levels: u32) -> Vec<Start> {
        let first: BTreeSet<usize> = starts.iter().filter_map(|&start| self.find(start)).collect();
        let (mut seen, mut open) = (first.clone(), first);
        for _ in 0..levels {
            let callers = open.iter().flat_map(|&at| &self.nodes[at].callers);
            let above: BTreeSet<usize> = callers.map(|&caller| caller as usize).collect();
            open = above.difference(&seen).copied().collect();
            seen.extend(&open);
        }
        seen.into_iter().map(|at| self.nodes[at].place()).collect()
    }

    /// Marks that every path into the function at `start` passes: its nearest callers for which
    /// `is_markable` holds, at most `levels` calls away.
    ///
    /// # Errors
    /// Why there are none.
    pub fn cover(
        &self,
        start: u64,
        levels: u32,
        is_markable: impl Fn(Start) -> bool,
    ) -> Result<Vec<Start>, Uncovered> {
        let first = self.find(start).ok_or(Uncovered::NoCaller(start))?;
        let (mut seen, mut marks) = (BTreeSet::from([first]), Vec::new());
        let mut open = vec![first];
        for _ in 0..levels {
            let mut above = BTreeSet::new();
            for &at in &open {
                let node = &self.nodes[at];
                if node.reach != Reach::None {
                    return Err(Uncovered::Reached(node.start, node.reach));
                }
                if node.callers.iter().all(|&caller| caller as usize == at) {
                    return Err(Uncovered::NoCaller(node.start));
                }
                above.extend(node.callers.iter().map(|&caller| caller as usize));
            }
            open.clear();
            for at in above {
                if seen.insert(at) {
                    let place = self.nodes[at].place();
                    let is_site = self.is_entry(at) && is_markable(place);
                    if is_site { marks.push(place) } else { open.push(at) }
                }
            }
            if open.is_empty() {
                marks.sort_unstable();
                return Ok(marks);
            }
        }
        Err(Uncovered::TooFar)
    }
}

/// Which words of data are addresses of functions.
impl Wanted for Callers {
    fn wants(&self, address: u64) -> bool {
        self.nodes.binary_search_by_key(&address, |node| node.start).is_ok()
    }
}
