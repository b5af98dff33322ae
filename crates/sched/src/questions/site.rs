// SPDX-License-Identifier: MIT OR Apache-2.0
//! From bytes that look like `xgetbv` or `xsave` to the places of their probes.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use scan::segments::Function;
use scan::{Meter, ScanError};

use super::Found;

/// How far before an `xgetbv` its probe may be. `xor %ecx, %ecx` is nearly always the one before.
const MAX_INSTRUCTIONS_BEFORE: usize = 8;

/// The longest function that is decoded: a longer one is data, or has lost its neighbours' starts.
const MAX_FUNCTION_BYTES: usize = 1 << 20;

/// What a site makes visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An `xgetbv` follows.
    Xgetbv,
    /// An `xsave` of some form is here.
    Xsave,
    /// An `xrstor` is here.
    Xrstor,
}

/// A place for a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// In the file, in bytes; the first byte of an instruction.
    pub offset: u64,
    /// Why.
    pub kind: Kind,
}

/// Which saves and restores of registers need a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saves {
    /// Every one needs a site.
    All,
    /// But for those of the dynamic linker's resolver of symbols, where the registers concerned are
    /// dead.
    ExceptResolvers,
}

/// Offsets in `code` of the bytes of `xgetbv` (0F 01 D0), and of XSAVE, XRSTOR, XSAVEOPT (0F AE /4,
/// /5, /6) and XSAVEC (0F C7 /4) with an operand in memory; with whether it is one of the latter.
pub(super) fn candidates(code: &[u8]) -> impl Iterator<Item = (usize, bool)> + '_ {
    code.windows(3).enumerate().filter_map(|(at, bytes)| {
        let &[0x0f, group, modrm] = bytes else { return None };
        let extension = modrm >> 3 & 7;
        let is_one = match group {
            0x01 => modrm == 0xd0,
            0xae => modrm < 0xc0 && matches!(extension, 4..=6),
            0xc7 => modrm < 0xc0 && extension == 4,
            _ => false,
        };
        is_one.then_some((at, group != 0x01))
    })
}

/// Adds the sites of the candidate at `at` of the function's segment, or counts it as unverified.
pub(super) fn resolve(
    function: &Function,
    body: &Body,
    (at, saves): (usize, bool),
    which: Saves,
    meter: &Meter<'_>,
    found: &mut Found,
) -> Result<(), ScanError> {
    let opcode = (at - function.start) as u64;
    // A REX prefix is before the opcode and belongs to the instruction.
    let index = body.instructions.partition_point(|instruction| instruction.next_ip() <= opcode);
    if index == body.instructions.len() {
        found.leave(saves);
        return Ok(());
    }
    let looks_around = match body.instructions[index].mnemonic() {
        Mnemonic::Xgetbv => true,
        _ => saves && which == Saves::ExceptResolvers,
    };
    if looks_around {
        meter.spend(body.instructions.len() as u64)?;
    }
    let (sites, kind) = match body.instructions[index].mnemonic() {
        Mnemonic::Xgetbv => (body.before(index), Kind::Xgetbv),
        Mnemonic::Xsave
        | Mnemonic::Xsave64
        | Mnemonic::Xsavec
        | Mnemonic::Xsavec64
        | Mnemonic::Xsaveopt
        | Mnemonic::Xsaveopt64 => {
            if which == Saves::ExceptResolvers && body.is_resolver(index) {
                return Ok(());
            }
            (vec![body.instructions[index].ip()], Kind::Xsave)
        }
        Mnemonic::Xrstor | Mnemonic::Xrstor64 => {
            if which == Saves::ExceptResolvers && body.is_resolver(index) {
                return Ok(());
            }
            (vec![body.instructions[index].ip()], Kind::Xrstor)
        }
        _ => return Ok(()), // the middle of another instruction
    };
    if sites.is_empty() {
        found.unverified += 1;
    }
    found.sites.extend(sites.iter().map(|site| Site { offset: function.offset + site, kind }));
    Ok(())
}

/// A decoded function; addresses are relative to its start.
pub(super) struct Body {
    instructions: Vec<Instruction>,
}

impl Body {
    /// Decodes it from its start; `None` if it is not all code. What a compiler or linker puts
    /// between functions is code too.
    pub(super) fn decode(function: &Function) -> Option<Self> {
        if function.code.len() > MAX_FUNCTION_BYTES {
            return None;
        }
        let mut decoder = Decoder::with_ip(64, function.code, 0, DecoderOptions::NONE);
        let mut instructions = Vec::new();
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.code() == Code::INVALID {
                // An int3 or ud2 is code; what is none ends what can be trusted.
                break;
            }
            instructions.push(instruction);
        }
        Some(Self { instructions })
    }

    /// Where to probe so that each path to the instruction at `index` is seen: the nearest place
    /// before it in a straight line, and the branches that lead between the two. Empty if there is
    /// none.
    fn before(&self, index: usize) -> Vec<u64> {
        let target = &self.instructions[index];
        let straight = self.instructions[..index]
            .iter()
            .rev()
            .take(MAX_INSTRUCTIONS_BEFORE)
            .take_while(|instruction| instruction.flow_control() == FlowControl::Next)
            .find(|instruction| can_be_probed(instruction));
        let falls_through = index > 0
            && matches!(
                self.instructions[index - 1].flow_control(),
                FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::Call
            );
        let mut sites: Vec<u64> = straight.iter().map(|instruction| instruction.ip()).collect();
        let from = sites.first().map_or(target.ip(), |site| site + 1);
        let branches = self.instructions.iter().filter(|instruction| {
            matches!(
                instruction.flow_control(),
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            ) && (from..=target.ip()).contains(&instruction.near_branch_target())
        });
        sites.extend(branches.map(|branch| branch.ip()));
        if straight.is_none() && falls_through {
            // A path that no probe would see: better none at all than one that sometimes works.
            return Vec::new();
        }
        sites
    }

    /// Whether the XSAVE at `index` is in a function that ends by a jump to what it has found: the
    /// dynamic linker's resolver.
    fn is_resolver(&self, index: usize) -> bool {
        self.instructions[index..]
            .iter()
            .skip_while(|instruction| {
                !matches!(instruction.mnemonic(), Mnemonic::Xrstor | Mnemonic::Xrstor64)
            })
            .find(|instruction| {
                !matches!(
                    instruction.flow_control(),
                    FlowControl::Next | FlowControl::ConditionalBranch
                )
            })
            .is_some_and(|end| end.flow_control() == FlowControl::IndirectBranch)
    }
}

/// Whether the kernel can execute it elsewhere: plain instructions on general registers. It knows
/// more, but these are what comes before an `xgetbv` (arch/x86/kernel/uprobes.c).
fn can_be_probed(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Xor
            | Mnemonic::Mov
            | Mnemonic::Movzx
            | Mnemonic::And
            | Mnemonic::Or
            | Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::Cmp
            | Mnemonic::Test
            | Mnemonic::Bt
            | Mnemonic::Shl
            | Mnemonic::Shr
            | Mnemonic::Push
            | Mnemonic::Pop
            | Mnemonic::Nop
            | Mnemonic::Lea
            | Mnemonic::Cpuid
    ) && !instruction.has_lock_prefix()
        && !instruction.is_ip_rel_memory_operand()
        && !instruction.has_segment_prefix()
}
