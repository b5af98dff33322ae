// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every XSAVE* and XRSTOR* of the running kernel, found by disassembling it.
//!
//! The kernel patches itself at boot (XSAVES in place of XSAVE where the CPU has it), so the text
//! is read from memory, through /proc/kcore. Candidates are looked up by their opcode bytes;
//! whether one is an instruction, and not the middle of another, is decided by decoding its
//! function from the start.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, ensure};
use iced_x86::{Code, Decoder, DecoderOptions, Mnemonic};

/// A function of the kernel.
struct Function {
    start: u64,
    name: String,
}

/// The places, as `function+0xOFFSET`.
pub fn find() -> Result<Vec<String>> {
    fs::write("/proc/sys/kernel/kptr_restrict", "0")?;
    let symbols = fs::read_to_string("/proc/kallsyms")?;
    let functions = functions(&symbols);
    let address = |name: &str| -> Result<u64> {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}")));
        let text = line.and_then(|line| line.split(' ').next()).context("no such symbol")?;
        Ok(u64::from_str_radix(text, 16)?)
    };
    let (start, end) = (address("_stext")?, address("_etext")?);
    let text = read_kernel(start, (end - start) as usize)?;
    let mut found = Vec::new();
    for at in candidates(&text).map(|offset| start + offset as u64) {
        let Some(function) = function_of(&functions, at) else { continue };
        let from = (function.start - start) as usize;
        if is_instruction(&text[from..], function.start, at) {
            found.push(format!("{}+{:#x}", function.name, at - function.start));
        }
    }
    ensure!(found.len() >= 4, "only {} places: {found:?}", found.len());
    Ok(found)
}

/// Functions of the kernel proper, by address; of several names the first.
fn functions(symbols: &str) -> Vec<Function> {
    let mut functions: Vec<Function> = symbols
        .lines()
        .filter(|line| !line.contains('['))
        .filter_map(|line| {
            let mut words = line.split(' ');
            let start = u64::from_str_radix(words.next()?, 16).ok()?;
            let is_text = matches!(words.next()?, "t" | "T" | "w" | "W");
            is_text.then(|| Function { start, name: words.next().unwrap_or("").to_owned() })
        })
        // Names of folded code and of compiler's pieces are no names for a probe.
        .filter(|function| !function.name.starts_with("__pfx_"))
        .collect();
    functions.sort_by_key(|function| function.start);
    functions.dedup_by_key(|function| function.start);
    functions
}

fn function_of(functions: &[Function], at: u64) -> Option<&Function> {
    let behind = functions.partition_point(|function| function.start <= at);
    functions.get(behind.checked_sub(1)?)
}

/// Reads kernel memory. /proc/kcore is an ELF file with a segment for each mapping.
fn read_kernel(address: u64, bytes: usize) -> Result<Vec<u8>> {
    let core = File::open("/proc/kcore").context("cannot open /proc/kcore")?;
    let word = |at: u64| -> Result<u64> {
        let mut bytes = [0; 8];
        core.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let headers = word(0x20)?;
    let count = word(0x38)? & 0xffff;
    for header in (0..count).map(|i| headers + i * 56) {
        let (offset, start, size) = (word(header + 8)?, word(header + 16)?, word(header + 32)?);
        if (start..start.saturating_add(size)).contains(&address) {
            let mut text = vec![0; bytes];
            core.read_exact_at(&mut text, offset + (address - start))?;
            return Ok(text);
        }
    }
    anyhow::bail!("/proc/kcore has no segment with {address:#x}")
}

/// Offsets of `0F AE /4 /5 /6` and `0F C7 /3 /4 /5` with a memory operand, or of a REX prefix
/// before them.
fn candidates(text: &[u8]) -> impl Iterator<Item = usize> + '_ {
    text.windows(3).enumerate().filter_map(|(at, bytes)| {
        let (group, modrm) = (bytes[1], bytes[2]);
        let register = modrm >> 3 & 7;
        let wanted = match group {
            0xae => matches!(register, 4..=6),
            0xc7 => matches!(register, 3..=5),
            _ => false,
        };
        let is_one = bytes[0] == 0x0f && wanted && modrm >> 6 != 3;
        let rex = at > 0 && text[at - 1] & 0xf0 == 0x40;
        is_one.then(|| at - usize::from(rex))
    })
}

/// Whether decoding from the function's start arrives at `at` and finds one of them there.
fn is_instruction(text: &[u8], start: u64, at: u64) -> bool {
    let mut decoder = Decoder::with_ip(64, text, start, DecoderOptions::NONE);
    while decoder.ip() < at && decoder.can_decode() {
        if decoder.decode().code() == Code::INVALID {
            return false;
        }
    }
    decoder.ip() == at
        && matches!(
            decoder.decode().mnemonic(),
            Mnemonic::Xsave
                | Mnemonic::Xsave64
                | Mnemonic::Xsavec
                | Mnemonic::Xsavec64
                | Mnemonic::Xsaveopt
                | Mnemonic::Xsaveopt64
                | Mnemonic::Xsaves
                | Mnemonic::Xsaves64
                | Mnemonic::Xrstor
                | Mnemonic::Xrstor64
                | Mnemonic::Xrstors
                | Mnemonic::Xrstors64
        )
}

/// What the checking module has counted: executions, and those with a reduced XCR0.
pub fn counts() -> Result<(u64, u64, String)> {
    let text = fs::read_to_string("/sys/kernel/debug/turbolane_xcheck")?;
    let (mut executed, mut reduced) = (0, 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, all, bad] = words.as_slice() else {
            anyhow::bail!("a line of another form: {line}")
        };
        executed += all.parse::<u64>()?;
        reduced += bad.parse::<u64>()?;
    }
    Ok((executed, reduced, text))
}

/// Removes the checking module.
pub fn unload() -> Result<()> {
    let removed = std::process::Command::new("rmmod").arg("turbolane_xcheck").status()?;
    ensure!(removed.success(), "the checking module does not go");
    Ok(())
}
