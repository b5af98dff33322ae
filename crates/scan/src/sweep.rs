// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decodes one function from its first byte to its last, and notes what the analysis needs.
//!
//! The common instructions are stepped over by [`crate::fast`], vector instructions that were met before by
//! [`crate::memo`]; all others are decoded by iced-x86.
//! Notes: where each instruction begins, each branch, each instruction that has a vector, a tile or
//! is counted by name.
//!
//! **Data.** What is no instruction is data that lies between instructions (tables of hand-written
//! assembly). Decoding resumes at the next place behind it that a branch of the function leads to; if
//! there is none, the rest of the function is data.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use isa::Weight;

use crate::facts::{self, Facts, Width};
use crate::fast::{self, Kind};
use crate::memo::{self, Memo};

/// How often decoding resumes behind data, in one function.
const RESUMES_MAX: u32 = 64;

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
    /// Behind the last byte.
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
    /// Number of the instruction in the function.
    pub(crate) index: u32,
    pub(crate) flow: Flow,
    /// Where it leads to, behind the start of the function; [`OUTSIDE`] if not into it.
    pub(crate) target: u32,
}

/// A target that is not in the function, or not known.
pub(crate) const OUTSIDE: u32 = u32::MAX;

/// An instruction that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Number of the instruction in the function.
    pub(crate) index: u32,
    /// Bits of [`facts::kind`].
    pub(crate) kinds: u16,
    pub(crate) length: Width,
    pub(crate) widest: Width,
    pub(crate) weight: Option<Weight>,
    pub(crate) license_level: u8,
    /// It leaves a dirty upper half.
    pub(crate) dirties: bool,
}

impl Event {
    /// Vectors of 256 bits and more, and tiles: what coverage is counted in.
    pub(crate) fn is_wide(&self) -> bool {
        self.length >= Width::Ymm || self.kinds & facts::kind::TILE != 0
    }
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
    /// Where each instruction begins, behind the start of the function.
    pub(crate) offsets: Vec<u32>,
    pub(crate) branches: Vec<Branch>,
    pub(crate) events: Vec<Event>,
    /// Behind the last instruction.
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
            if !self.step(&mut pass, decoder) {
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
        self.offsets.clear();
        self.branches.clear();
        self.events.clear();
        (self.end, self.data_bytes, self.unlikely, self.falls_off) = (0, 0, 0, true);
    }

    /// The nearest target of a branch behind this offset.
    fn target_behind(&self, offset: usize) -> Option<usize> {
        let targets = self.branches.iter().map(|branch| branch.target);
        let behind = targets.filter(|&target| target != OUTSIDE && target as usize > offset);
        behind.min().map(|target| target as usize)
    }

    /// One instruction; false if there is none.
    #[inline]
    fn step(&mut self, pass: &mut Pass<'_, impl Wanted>, decoder: &mut Decoder<'_>) -> bool {
        let window = pass.code.bytes.get(pass.at..pass.at + fast::WINDOW);
        let Some(window) = window.filter(|_| pass.code.bits == 64) else {
            return self.step_slowly(pass, decoder);
        };
        let window: &[u8; fast::WINDOW] = window.try_into().expect("it is as long as a window");
        if memo::has_prefix(window[0]) {
            return self.step_known(window, pass, decoder);
        }
        let step = fast::decode(window);
        let next = pass.at + step.length;
        if step.kind == Kind::Slow || next > pass.end {
            return self.step_slowly(pass, decoder);
        }
        let index = self.begin(pass);
        pass.at = next;
        let target =
            || pass.code.address.wrapping_add(next as u64).wrapping_add_signed(step.target.into());
        match step.kind {
            Kind::Plain => {}
            Kind::Sse => self.events.push(Event {
                index,
                kinds: facts::kind::SSE,
                length: Width::None,
                widest: Width::Xmm,
                weight: None,
                license_level: 0,
                dirties: false,
            }),
            Kind::Address => {
                let address = target();
                pass.note_address(address);
            }
            Kind::Call => {
                let address = target();
                pass.note_call(address);
            }
            Kind::Branch => {
                let address = target();
                self.branch(pass, index, Flow::Branch, address);
            }
            Kind::Jump => {
                let address = target();
                self.branch(pass, index, Flow::Jump, address);
            }
            Kind::Return => self.stop(index, Flow::Return),
            Kind::IndirectJump => self.stop(index, Flow::IndirectJump),
            Kind::Trap => self.stop(index, Flow::Trap),
            Kind::Cpuid => self.events.push(Event {
                index,
                kinds: facts::kind::CPUID,
                length: Width::None,
                widest: Width::None,
                weight: None,
                license_level: 0,
                dirties: false,
            }),
            Kind::Slow | Kind::Group5 => unreachable!("decided above, or by fast::decode"),
        }
        true
    }

    /// One with VEX or EVEX prefix. None of them branches.
    #[inline]
    fn step_known(
        &mut self,
        window: &[u8; fast::WINDOW],
        pass: &mut Pass<'_, impl Wanted>,
        decoder: &mut Decoder<'_>,
    ) -> bool {
        let known = self.memo.find(window);
        let Some(known) = known.filter(|known| pass.at + usize::from(known.length) <= pass.end)
        else {
            return self.step_slowly(pass, decoder);
        };
        let index = self.begin(pass);
        pass.at += usize::from(known.length);
        if let Some(event) = known.event {
            self.events.push(Event { index, ..event });
        }
        true
    }

    #[inline]
    fn begin(&mut self, pass: &Pass<'_, impl Wanted>) -> u32 {
        let index = self.offsets.len() as u32;
        self.offsets.push((pass.at - pass.start) as u32);
        self.falls_off = true;
        index
    }

    fn branch(&mut self, pass: &mut Pass<'_, impl Wanted>, index: u32, flow: Flow, address: u64) {
        let offset = address.wrapping_sub(pass.code.address.wrapping_add(pass.start as u64));
        let inside = offset < (pass.end - pass.start) as u64;
        if inside {
            pass.furthest = pass.furthest.max(pass.start + offset as usize);
        } else {
            pass.note_call(address);
        }
        let target = if inside { offset as u32 } else { OUTSIDE };
        self.branches.push(Branch { index, flow, target });
        self.falls_off = flow == Flow::Branch;
    }

    fn stop(&mut self, index: u32, flow: Flow) {
        self.branches.push(Branch { index, flow, target: OUTSIDE });
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
        let index = self.begin(pass);
        pass.at = next;
        let facts = &pass.facts[instruction.code() as usize];
        let event = facts.matters().then(|| event(index, facts, &instruction));
        self.remember(pass, next - instruction.len(), &instruction, event);
        if let Some(event) = event {
            self.events.push(event);
            return true;
        }
        self.unlikely += u32::from(facts.unlikely);
        self.follow(pass, index, &instruction);
        true
    }

    /// So that the next one of its kind is not decoded.
    fn remember(
        &mut self,
        pass: &Pass<'_, impl Wanted>,
        at: usize,
        instruction: &Instruction,
        event: Option<Event>,
    ) {
        let is_kind = pass.code.bits == 64 && memo::has_prefix(pass.code.bytes[at]);
        let window = pass.code.bytes.get(at..at + fast::WINDOW).filter(|_| is_kind);
        if let Some(window) = window.and_then(|window| window.try_into().ok()) {
            self.memo.keep(window, instruction, event);
        }
    }

    fn follow(&mut self, pass: &mut Pass<'_, impl Wanted>, index: u32, instruction: &Instruction) {
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
                self.branch(pass, index, Flow::Branch, instruction.near_branch_target());
            }
            FlowControl::UnconditionalBranch if is_near(instruction) => {
                self.branch(pass, index, Flow::Jump, instruction.near_branch_target());
            }
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => {
                self.stop(index, Flow::IndirectJump);
            }
            FlowControl::Return => self.stop(index, Flow::Return),
            FlowControl::Exception => self.stop(index, Flow::Trap),
            FlowControl::Interrupt if instruction.mnemonic() == Mnemonic::Int3 => {
                self.stop(index, Flow::Trap);
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

pub(crate) fn event(index: u32, facts: &Facts, instruction: &Instruction) -> Event {
    Event {
        index,
        kinds: facts.kinds,
        length: facts.length,
        widest: facts.widest_register(instruction),
        weight: facts.weight,
        license_level: facts.license_level,
        dirties: facts.length >= Width::Ymm && facts.dirties(instruction),
    }
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
