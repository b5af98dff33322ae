// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decodes one function from its first byte to its last, and notes what the analysis needs.
//!
//! The common instructions are stepped over by [`crate::fast`], vector instructions that were met
//! before by [`crate::memo`]; all others are decoded by iced-x86. Notes: where each instruction
//! begins, each branch, each instruction that has a vector, a tile or is counted by name
//! ([`crate::traits`]).
//!
//! **Data.** What is no instruction is data that lies between instructions (tables of hand-written
//! assembly). Decoding resumes at the next place after it that a branch of the function leads to;
//! if there is none, the rest of the function is data.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use crate::bits::Bits;
use crate::facts::{self, Facts};
use crate::fast::{self, Kind, Opcode};
use crate::memo::{self, Memo};
use crate::traits::{Traits, Width, kind};

/// How often decoding resumes after data, in one function.
const RESUMES_MAX: u32 = 64;

/// An SSE instruction as [`fast`] knows it.
const LEGACY_SSE: Traits = Traits::of_kind(kind::SSE, Width::Xmm);

/// Code with its place in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code<'a> {
    pub(crate) bytes: &'a [u8],
    /// Of the first byte.
    pub(crate) address: u64,
    /// 64 or 32.
    pub(crate) bits: u32,
}

impl Code<'_> {
    /// After the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes.len() as u64)
    }
}

/// How an instruction ends a basic block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Conditional branch.
    Branch,
    /// Jump to an address.
    Jump,
    /// Jump to one of several places that are not known.
    IndirectJump,
    /// Return.
    Return,
    /// It does not go on.
    Trap,
}

/// The end of a basic block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Branch {
    /// Where it begins, from the start of the function.
    pub(crate) at: u32,
    /// Where the next instruction begins.
    pub(crate) next: u32,
    pub(crate) flow: Flow,
    /// Where it leads to; [`OUTSIDE`] if not into the function.
    pub(crate) target: u32,
}

/// A target that is not in the function, or not known.
pub(crate) const OUTSIDE: u32 = u32::MAX;

/// An instruction that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Where it begins, from the start of the function.
    pub(crate) at: u32,
    pub(crate) traits: Traits,
}

/// Addresses outside of the function that it uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Targets {
    /// It calls or jumps there.
    pub(crate) calls: Vec<u64>,
    /// It computes the address.
    pub(crate) addresses: Vec<u64>,
}

/// Which addresses are worth noting as targets.
pub(crate) trait Wanted {
    fn wants(&self, address: u64) -> bool;
}

/// None.
pub(crate) struct Nothing;

impl Wanted for Nothing {
    fn wants(&self, _: u64) -> bool {
        false
    }
}

/// Where a function ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Where its range ends.
    Range,
    /// Where no branch leads on, at most where its range ends.
    LastFlow,
}

/// A decoded function. Kept between functions for its memory.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Where each instruction begins, from the start of the function.
    pub(crate) starts: Bits,
    pub(crate) branches: Vec<Branch>,
    pub(crate) events: Vec<Event>,
    /// Of all events together.
    pub(crate) traits: Traits,
    /// After the last instruction.
    pub(crate) end: u32,
    /// Bytes that are no instructions.
    pub(crate) data_bytes: u32,
    /// The last instruction goes on to the next one.
    pub(crate) falls_off: bool,
    /// Instructions that no program has.
    pub(crate) unlikely: u32,
    /// Vector instructions of this and earlier functions.
    memo: Memo,
}

impl Sweep {
    /// Decodes `range` of `code`, which is at most 4 GiB long.
    pub(crate) fn run(
        &mut self,
        decoder: &mut Decoder<'_>,
        code: Code<'_>,
        range: (usize, usize),
        until: Until,
        wanted: &impl Wanted,
        targets: &mut Targets,
    ) {
        self.clear();
        let (start, end) = range;
        let mut pass = Pass {
            code,
            start,
            end,
            at: start,
            furthest: start,
            facts: facts::all(),
            wanted,
            targets,
        };
        let mut resumes = 0;
        while pass.at < end {
            let opcode = self.stride(&mut pass);
            if pass.at < end && !self.step(opcode, &mut pass, decoder) {
                let data = pass.at;
                pass.at = match self.target_behind(data - start) {
                    Some(target) if until == Until::Range && resumes < RESUMES_MAX => {
                        start + target
                    }
                    _ => end,
                };
                resumes += 1;
                self.data_bytes += (pass.at - data) as u32;
                self.end = (data - start) as u32;
            } else {
                self.end = (pass.at - start) as u32;
                if until == Until::LastFlow && !self.falls_off && pass.at > pass.furthest {
                    break;
                }
            }
        }
    }

    fn clear(&mut self) {
        self.starts.clear();
        self.branches.clear();
        self.events.clear();
        (self.traits, self.falls_off) = (Traits::NONE, true);
        (self.end, self.data_bytes, self.unlikely) = (0, 0, 0);
    }

    /// The nearest target of a branch after this offset.
    fn target_behind(&self, offset: usize) -> Option<usize> {
        let targets = self.branches.iter().map(|branch| branch.target);
        let behind = targets.filter(|&target| target != OUTSIDE && target as usize > offset);
        behind.min().map(|target| target as usize)
    }

    /// Steps over instructions of which only length and traits matter: nine of ten. Ends before
    /// another one, and returns it if it has an opcode that [`fast`] may know.
    #[inline]
    fn stride(&mut self, pass: &mut Pass<'_, impl Wanted>) -> Option<Opcode> {
        if pass.code.bits != 64 {
            return None;
        }
        let (start, end, bytes) = (pass.start, pass.end, pass.code.bytes);
        let (mut at, mut all) = (pass.at, Traits::NONE);
        let stopped = loop {
            let window = bytes.get(at..).and_then(<[u8]>::first_chunk);
            let Some(window) = window.filter(|_| at < end) else { break None };
            let (length, traits) = if memo::has_prefix(window[0]) {
                let Some(known) = self.memo.find(window) else { break None };
                known
            } else {
                let opcode = fast::opcode(window);
                let Some((length, is_sse)) = opcode.simple() else { break Some(opcode) };
                (length, if is_sse { LEGACY_SSE } else { Traits::NONE })
            };
            if at + length > end {
                break None;
            }
            let offset = (at - start) as u32;
            self.starts.insert(offset);
            if traits.matter() {
                self.events.push(Event { at: offset, traits });
            }
            all |= traits;
            at += length;
        };
        self.traits |= all;
        self.falls_off |= at > pass.at;
        pass.at = at;
        stopped
    }

    /// One instruction, which may have this opcode; false if there is none.
    fn step(
        &mut self,
        opcode: Option<Opcode>,
        pass: &mut Pass<'_, impl Wanted>,
        decoder: &mut Decoder<'_>,
    ) -> bool {
        let step = opcode.map_or(fast::SLOW, |opcode| opcode.step());
        let next = pass.at + step.length;
        if step.kind == Kind::Slow || next > pass.end {
            return self.step_slowly(pass, decoder);
        }
        let traits = match step.kind {
            Kind::Sse => LEGACY_SSE,
            Kind::Cpuid => Traits::of_kind(kind::CPUID, Width::None),
            _ => Traits::NONE,
        };
        let at = (pass.at - pass.start) as u32;
        self.begin(at, traits);
        pass.at = next;
        let target = pass.code.address.wrapping_add(next as u64);
        let target = target.wrapping_add_signed(step.target.into());
        match step.kind {
            Kind::Plain | Kind::Sse | Kind::Cpuid => {}
            Kind::Address => pass.note_address(target),
            Kind::Call => pass.note_call(target),
            Kind::Branch => self.branch(pass, at, Flow::Branch, target),
            Kind::Jump => self.branch(pass, at, Flow::Jump, target),
            Kind::Return => self.stop(pass, at, Flow::Return),
            Kind::IndirectJump => self.stop(pass, at, Flow::IndirectJump),
            Kind::Trap => self.stop(pass, at, Flow::Trap),
            Kind::Slow | Kind::Group5 | Kind::Third => unreachable!("left out above, or by fast"),
        }
        true
    }

    /// An instruction begins at this offset.
    fn begin(&mut self, at: u32, traits: Traits) {
        self.starts.insert(at);
        self.falls_off = true;
        if traits.matter() {
            self.traits |= traits;
            self.events.push(Event { at, traits });
        }
    }

    fn branch(&mut self, pass: &mut Pass<'_, impl Wanted>, at: u32, flow: Flow, address: u64) {
        let offset = address.wrapping_sub(pass.code.address.wrapping_add(pass.start as u64));
        let inside = offset < (pass.end - pass.start) as u64;
        if inside {
            pass.furthest = pass.furthest.max(pass.start + offset as usize);
        } else {
            pass.note_call(address);
        }
        let target = if inside { offset as u32 } else { OUTSIDE };
        let next = (pass.at - pass.start) as u32;
        self.branches.push(Branch { at, next, flow, target });
        self.falls_off = flow == Flow::Branch;
    }

    fn stop(&mut self, pass: &Pass<'_, impl Wanted>, at: u32, flow: Flow) {
        let next = (pass.at - pass.start) as u32;
        self.branches.push(Branch { at, next, flow, target: OUTSIDE });
        self.falls_off = false;
    }

    fn step_slowly(&mut self, pass: &mut Pass<'_, impl Wanted>, decoder: &mut Decoder<'_>) -> bool {
        if decoder.set_position(pass.at).is_err() {
            return false;
        }
        decoder.set_ip(pass.code.address.wrapping_add(pass.at as u64));
        let mut instruction = Instruction::default();
        decoder.decode_out(&mut instruction);
        let next = pass.at + instruction.len();
        if instruction.is_invalid() || next > pass.end {
            return false;
        }
        let at = (pass.at - pass.start) as u32;
        pass.at = next;
        let facts = &pass.facts[instruction.code() as usize];
        let traits = facts.traits(&instruction);
        self.begin(at, traits);
        self.remember(pass, next - instruction.len(), &instruction, traits);
        if !traits.matter() {
            self.unlikely += u32::from(facts.unlikely);
            self.follow(pass, at, &instruction);
        }
        true
    }

    /// So that the next one of its kind is not decoded.
    fn remember(
        &mut self,
        pass: &Pass<'_, impl Wanted>,
        at: usize,
        instruction: &Instruction,
        traits: Traits,
    ) {
        let is_kind = pass.code.bits == 64 && memo::has_prefix(pass.code.bytes[at]);
        let window = pass.code.bytes.get(at..at + fast::WINDOW).filter(|_| is_kind);
        if let Some(window) = window.and_then(|window| window.try_into().ok()) {
            self.memo.keep(window, instruction, traits);
        }
    }

    fn follow(&mut self, pass: &mut Pass<'_, impl Wanted>, at: u32, instruction: &Instruction) {
        match instruction.flow_control() {
            FlowControl::Next if is_address(instruction) => {
                pass.note_address(instruction.ip_rel_memory_address());
            }
            FlowControl::Call if is_near(instruction) => {
                pass.note_call(instruction.near_branch_target());
            }
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend
                if is_near(instruction) =>
            {
                self.branch(pass, at, Flow::Branch, instruction.near_branch_target());
            }
            FlowControl::UnconditionalBranch if is_near(instruction) => {
                self.branch(pass, at, Flow::Jump, instruction.near_branch_target());
            }
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => {
                self.stop(pass, at, Flow::IndirectJump);
            }
            FlowControl::Return => self.stop(pass, at, Flow::Return),
            FlowControl::Exception => self.stop(pass, at, Flow::Trap),
            FlowControl::Interrupt if instruction.mnemonic() == Mnemonic::Int3 => {
                self.stop(pass, at, Flow::Trap);
            }
            _ => {}
        }
    }
}

/// `lea` of an address relative to the instruction.
fn is_address(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand()
}

fn is_near(instruction: &Instruction) -> bool {
    matches!(
        instruction.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    )
}

/// A decoder for all functions of `code`.
pub(crate) fn decoder(code: Code<'_>) -> Decoder<'_> {
    Decoder::with_ip(code.bits, code.bytes, code.address, DecoderOptions::NONE)
}

struct Pass<'a, W> {
    code: Code<'a>,
    start: usize,
    end: usize,
    at: usize,
    /// The furthest target of a branch so far.
    furthest: usize,
    facts: &'static [Facts],
    wanted: &'a W,
    targets: &'a mut Targets,
}

impl<W: Wanted> Pass<'_, W> {
    fn note_call(&mut self, address: u64) {
        if self.wanted.wants(address) {
            self.targets.calls.push(address);
        }
    }

    fn note_address(&mut self, address: u64) {
        if self.wanted.wants(address) {
            self.targets.addresses.push(address);
        }
    }
}
