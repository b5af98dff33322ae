// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the instruction of a function that a uprobe can sit on cheaply. The rules and their
//! reasons are at the head of `marks/mod.rs`.
//!
//! What Linux emulates on x86-64 (arch/x86/kernel/uprobes.c, `branch_setup_xol_ops` and
//! `push_setup_xol_ops`): the one-byte `nop`, `jmp` and `jcc` and `call` to relative addresses,
//! `push` of a register in its one-byte form or with the prefix 41. From 6.18 on also the
//! five-byte nop. Newer kernels know other nops and prologue instructions too; these are not
//! relied on, so that a mark costs the same on every supported kernel.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess,
    OpKind, Register,
};

use super::Emulation;

/// How many instructions may be between the entry and the site. None of them branches, so this
/// only bounds the time of the search: 9 is the most that a site of libcrypto, libopenblas,
/// numpy, onnxruntime and x265 needs.
pub const MAX_SKIPPED: usize = 32;

/// The five-byte nop that compilers and the kernel use: `nopl 0(%rax,%rax,1)`.
const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// An instruction to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Site {
    /// Its place after the entry, bytes.
    pub at: usize,
    /// Instructions before it.
    pub skipped: usize,
    /// Its mnemonic and bytes.
    pub instruction: String,
}

/// The entry itself; `None` if there is no valid instruction.
pub(super) fn entry(code: &[u8]) -> Option<Site> {
    let instruction = decoder(code).iter().next().filter(|first| !first.is_invalid())?;
    Some(site(code, &instruction, 0))
}

/// The register of an integer argument, counted from 1 (System V convention).
pub(super) fn argument_register(arg: u32) -> Register {
    use Register::{R8, R9, RCX, RDI, RDX, RSI};
    [RDI, RSI, RDX, RCX, R8, R9][arg as usize - 1]
}

/// The first site that needs no single-stepping, up to which nothing writes `kept`; `code` is the
/// whole function.
pub(super) fn cheap_site(
    code: &[u8],
    emulation: Emulation,
    kept: Option<Register>,
) -> Option<Site> {
    let mut info = InstructionInfoFactory::new();
    for (skipped, instruction) in decoder(code).iter().take(MAX_SKIPPED + 1).enumerate() {
        if instruction.is_invalid() {
            return None;
        }
        if is_emulated(bytes_of(code, &instruction), &instruction, emulation) {
            let found = site(code, &instruction, skipped);
            return (!has_branch_into_prologue(code, found.at)).then_some(found);
        }
        if !may_be_skipped(&instruction, kept, &mut info) {
            return None;
        }
    }
    None
}

fn decoder(code: &[u8]) -> Decoder<'_> {
    Decoder::with_ip(64, code, 0, DecoderOptions::NONE)
}

fn site(code: &[u8], instruction: &Instruction, skipped: usize) -> Site {
    let bytes: Vec<String> =
        bytes_of(code, instruction).iter().map(|byte| format!("{byte:02x}")).collect();
    let mnemonic = format!("{:?}", instruction.mnemonic()).to_lowercase();
    Site {
        at: instruction.ip() as usize,
        skipped,
        instruction: format!("{mnemonic} ({})", bytes.join(" ")),
    }
}

/// The bytes of an instruction that was decoded at address 0 of `code`.
fn bytes_of<'a>(code: &'a [u8], instruction: &Instruction) -> &'a [u8] {
    &code[instruction.ip() as usize..instruction.next_ip() as usize]
}

fn is_emulated(bytes: &[u8], instruction: &Instruction, emulation: Emulation) -> bool {
    match *bytes {
        [0x90] => true,
        [0x50..=0x57] | [0x41, 0x50..=0x57] => true,
        _ if bytes == NOP5 => emulation.nop5,
        // Any prefix before a branch makes the kernel refuse it or step it.
        [0xeb | 0xe9 | 0xe8 | 0x70..=0x7f, ..] | [0x0f, 0x80..=0x8f, ..] => {
            matches!(
                instruction.op0_kind(),
                OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
            )
        }
        _ => false,
    }
}

/// True if the event may come after this instruction as well as before it.
fn may_be_skipped(
    instruction: &Instruction,
    kept: Option<Register>,
    info: &mut InstructionInfoFactory,
) -> bool {
    if instruction.flow_control() != FlowControl::Next || instruction.stack_pointer_increment() != 0
    {
        return false;
    }
    let raises_level = isa::demand(instruction).is_some_and(|demand| demand.license_level > 0);
    let is_kept = |register: Register| register == Register::RSP || Some(register) == kept;
    let writes_kept = info.info(instruction).used_registers().iter().any(|used| {
        let written = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
        written && is_kept(used.register().full_register())
    });
    !raises_level && !writes_kept
}

/// True if a branch of the function leads past the entry, up to and including the site.
fn has_branch_into_prologue(code: &[u8], site: usize) -> bool {
    if site == 0 {
        return false;
    }
    decoder(code).iter().filter(|instruction| instruction.code() != Code::INVALID).any(|branch| {
        let is_branch = matches!(
            branch.op0_kind(),
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
        );
        is_branch && (1..=site as u64).contains(&branch.near_branch_target())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Emulation = Emulation { nop5: false };
    const NEW: Emulation = Emulation { nop5: true };
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    const RET: u8 = 0xc3;

    /// (offset, skipped) of the site in a function made of `parts`.
    fn found(parts: &[&[u8]], emulation: Emulation) -> Option<(usize, usize)> {
        cheap_site(&parts.concat(), emulation, None).map(|site| (site.at, site.skipped))
    }

    /// Each instruction that the kernel emulates is taken at the entry.
    #[test]
    fn takes_every_emulated_instruction() {
        for bytes in [
            &[0x90][..],               // nop
            &[0x55],                   // push rbp
            &[0x41, 0x57],             // push r15
            &[0xeb, 0x05],             // jmp short
            &[0xe9, 0, 0, 0, 1],       // jmp near
            &[0xe8, 0, 0, 0, 1],       // call
            &[0x74, 0x05],             // je short
            &[0x0f, 0x84, 0, 0, 0, 1], // je near
        ] {
            assert_eq!(found(&[bytes, &[RET]], OLD), Some((0, 0)), "{bytes:02x?}");
        }
        assert_eq!(found(&[&NOP5, &[RET]], NEW), Some((0, 0)));
    }

    /// What looks like one of them but is stepped or refused is not taken.
    #[test]
    fn leaves_what_the_kernel_steps() {
        for bytes in [
            &[RET][..],
            &[0x66, 0x90],             // nop with a prefix
            &[0x0f, 0x1f, 0x40, 0x00], // nop, 4 bytes
            &[0x48, 0x55],             // push rbp with a useless prefix
            &[0xf2, 0xe9, 0, 0, 0, 1], // bnd jmp
            &[0xff, 0xe0],             // jmp rax
            &[0xff, 0xd0],             // call rax
            &[0x6a, 0x01],             // push 1
            &[0x0f, 0x05],             // syscall
        ] {
            assert_eq!(found(&[bytes, &[RET]], NEW), None, "{bytes:02x?}");
        }
        assert_eq!(found(&[&NOP5, &[RET]], OLD), None, "stepped before 6.18");
    }

    /// The common prologue: the push after endbr64.
    #[test]
    fn walks_over_harmless_instructions() {
        assert_eq!(found(&[&ENDBR64, &[0x41, 0x57, RET]], OLD), Some((4, 1)));
        // mov eax, edi between them
        assert_eq!(found(&[&ENDBR64, &[0x89, 0xf8], &[0x53, RET]], OLD), Some((6, 2)));
    }

    /// One more than the limit is too far.
    #[test]
    fn walks_no_further_than_the_limit() {
        let mov: &[u8] = &[0x89, 0xf8];
        let after = |movs: usize| found(&[&mov.repeat(movs), &[0x53, RET]], OLD);
        assert_eq!(after(MAX_SKIPPED), Some((2 * MAX_SKIPPED, MAX_SKIPPED)));
        assert_eq!(after(MAX_SKIPPED + 1), None);
    }

    /// A return probe after a moved stack pointer would replace the wrong word.
    #[test]
    fn does_not_skip_what_moves_the_stack_pointer_fail() {
        for bytes in [
            &[0x48, 0x83, 0xec, 0x08][..],   // sub rsp, 8
            &[0x48, 0x8d, 0x64, 0x24, 0xf8], // lea rsp, [rsp-8]
            &[0x48, 0x89, 0xec],             // mov rsp, rbp
            &[0x6a, 0x01],                   // push 1
            &[0xc8, 0, 0, 0],                // enter 0, 0
        ] {
            assert_eq!(found(&[bytes, &[0x53, RET]], OLD), None, "{bytes:02x?}");
        }
        // mov rax, rsp only reads it
        assert_eq!(found(&[&[0x48, 0x89, 0xe0], &[0x53, RET]], OLD), Some((3, 1)));
    }

    /// An argument that is looked at must be there still: whole, half or a byte of its register.
    #[test]
    fn does_not_skip_what_writes_the_argument_fail() {
        for (arg, bytes) in [
            (5, &[0x45, 0x89, 0xc8][..]),   // mov r8d, r9d
            (5, &[0x4d, 0x89, 0xc8]),       // mov r8, r9
            (5, &[0x4d, 0x63, 0xc0]),       // movsxd r8, r8d
            (4, &[0xb1, 0x01]),             // mov cl, 1
            (1, &[0x48, 0x87, 0xfe]),       // xchg rsi, rdi
            (2, &[0x48, 0x87, 0xfe]),       // the same
            (3, &[0x48, 0x0f, 0x44, 0xd0]), // cmove rdx, rax
        ] {
            let code = [bytes, &[0x53, RET]].concat();
            assert_eq!(cheap_site(&code, OLD, Some(argument_register(arg))), None, "{bytes:02x?}");
            assert!(cheap_site(&code, OLD, None).is_some());
            let other = Some(argument_register(6));
            assert!(cheap_site(&code, OLD, other).is_some(), "{bytes:02x?} leaves r9");
        }
        // mov eax, r8d only reads it
        let reads = [0x44, 0x89, 0xc0, 0x53, RET];
        assert!(cheap_site(&reads, OLD, Some(argument_register(5))).is_some());
        // what follows the site may write it
        let later = [0x53, 0x45, 0x89, 0xc8, RET];
        assert!(cheap_site(&later, OLD, Some(argument_register(5))).is_some());
    }

    /// An instruction that raises the level before the event would do so on a scalar CPU.
    #[test]
    fn does_not_skip_what_raises_the_level_fail() {
        for bytes in [
            &[0x62, 0xf1, 0x7d, 0x48, 0xfe, 0xc0][..], // vpaddd zmm0, zmm0, zmm0
            &[0xc5, 0xfc, 0x59, 0xc0],                 // vmulps ymm0, ymm0, ymm0
            &[0xc4, 0xe2, 0x78, 0x49, 0xc0],           // tilerelease
        ] {
            assert_eq!(found(&[bytes, &[0x53, RET]], OLD), None, "{bytes:02x?}");
        }
        // vpaddd ymm0, ymm0, ymm0 and its 128-bit form are light: they raise none
        assert_eq!(found(&[&[0xc5, 0xfd, 0xfe, 0xc0], &[0x53, RET]], OLD), Some((4, 1)));
        assert_eq!(found(&[&[0xc5, 0xf9, 0xfe, 0xc0], &[0x53, RET]], OLD), Some((4, 1)));
    }

    /// A loop back to the site would raise the event once per turn, one after it would skip it.
    #[test]
    fn refuses_sites_that_are_jumped_to_fail() {
        // endbr64; l: push rbx; pop rbx; dec edi; jne l; ret
        let looped = [0x53, 0x5b, 0xff, 0xcf, 0x75, 0xfa, RET];
        assert_eq!(found(&[&ENDBR64, &looped], OLD), None);
        // The same loop back to the entry is a new round of the function: fine at the entry.
        assert_eq!(found(&[&[0x53, 0x5b, 0xff, 0xcf, 0x75, 0xfa, RET]], OLD), Some((0, 0)));
        // A branch to what follows the site is no problem.
        let behind = [0x53, 0x5b, 0xff, 0xcf, 0x75, 0xfb, RET];
        assert_eq!(found(&[&ENDBR64, &behind], OLD), Some((4, 1)));
    }

    /// The instruction is shown with its bytes.
    #[test]
    fn describes_the_instruction() {
        assert_eq!(cheap_site(&[0x41, 0x57, RET], OLD, None).unwrap().instruction, "push (41 57)");
        assert_eq!(entry(&ENDBR64).unwrap().instruction, "endbr64 (f3 0f 1e fa)");
        assert_eq!(entry(&[0x06]), None);
        assert_eq!(entry(&[]), None);
    }
}
