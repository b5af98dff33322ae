// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions in code for which the file states no boundary.
//!
//! **Problem.** Stripped assembly has neither symbols nor unwind records: four fifths of the code
//! of a stripped libx265. But the same gaps between functions hold tables of constants, padding,
//! boot code of 16 bits, and most bytes decode as something.
//!
//! **Idea.** Something uses each function: a pointer in data or relocations, an instruction that
//! computes its address, a call. From each such place decode to the last flow: the return or jump
//! that no branch passes. What is found there must look like a function ([`is_plausible`]), and may
//! call the next one, so this goes in rounds. What remains is decoded in the same manner from where
//! the padding ends. If it begins after another function, aligned as functions are, and looks like
//! one, it is taken to be one that nothing uses ([`Source::Padding`]; x265 has some); else it is
//! attributed to no function ([`Source::Guess`]).
//!
//! Limits: a jump through a register ends a function, so that what its table leads to is a guess.

use iced_x86::{Decoder, Instruction, Mnemonic};
use rayon::prelude::*;
use report::scan::Source;

use crate::analysis::{self, Analysis};
use crate::bounds::{self, Range};
use crate::fast::operand_length;
use crate::limits::PIECE_MAX_BYTES;
use crate::sweep::{Code, Flow, Sweep, Targets, Until, Wanted, decoder};
use crate::{Meter, ScanError};

/// Rounds of following calls: longer chains of functions that only call each other end as guesses.
const ROUNDS_MAX: usize = 16;
/// Functions that are decoded by one task.
const TASK_FUNCTIONS: usize = 64;
/// Work that a function takes, however short it is.
const FUNCTION_COST: u64 = 16;
/// Where assemblers and compilers place functions.
const ALIGNMENT: u64 = 16;

/// Which addresses lie in gaps: one bit for 64 bytes of a span, so that a sweep can ask for every
/// call.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    start: u64,
    bits: Vec<u64>,
    /// Ascending, and apart from each other.
    gaps: Vec<(u64, u64)>,
}

const GRAIN: u64 = 64;
/// A span of more than that has no bits: 4 GiB of addresses, 8 MiB of bits.
const SPAN_MAX: u64 = 4 << 30;

impl Gaps {
    /// Of gaps in any order. They overlap where a damaged file has sections that do; such become
    /// one.
    pub(crate) fn new(mut gaps: Vec<(u64, u64)>) -> Self {
        gaps.sort_unstable();
        gaps.dedup_by(|next, gap| {
            let overlap = next.0 < gap.1;
            if overlap {
                gap.1 = gap.1.max(next.1);
            }
            overlap
        });
        let (Some(&(start, _)), Some(&(_, end))) = (gaps.first(), gaps.last()) else {
            return Gaps::default();
        };
        if end - start > SPAN_MAX {
            return Gaps { start, bits: Vec::new(), gaps };
        }
        let mut bits = vec![0; ((end - start) / (64 * GRAIN)) as usize + 1];
        for (from, to) in &gaps {
            for grain in (from - start) / GRAIN..=(to - 1 - start) / GRAIN {
                bits[(grain / 64) as usize] |= 1 << (grain % 64);
            }
        }
        Gaps { start, bits, gaps }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.gaps.is_empty()
    }

    /// Whether one of them has an address of that range.
    pub(crate) fn touch(&self, start: u64, end: u64) -> bool {
        let at = self.gaps.partition_point(|gap| gap.1 <= start);
        self.gaps.get(at).is_some_and(|gap| gap.0 < end)
    }

    /// Number of the gap that the address is in.
    fn find(&self, address: u64) -> Option<usize> {
        let at = self.gaps.partition_point(|(_, end)| *end <= address);
        self.gaps.get(at).filter(|(start, _)| *start <= address).map(|_| at)
    }
}

impl Wanted for Gaps {
    #[inline]
    fn wants(&self, address: u64) -> bool {
        let grain = address.wrapping_sub(self.start) / GRAIN;
        let word = self.bits.get((grain / 64) as usize).copied().unwrap_or(0);
        word >> (grain % 64) & 1 == 1 && self.find(address).is_some()
    }
}

/// A function that was found.
pub(crate) struct Recovered {
    pub(crate) range: Range,
    pub(crate) analysis: Option<Analysis>,
}

/// Finds functions in the gaps of `code`, from the targets that are known so far.
pub(crate) fn run(
    code: Code<'_>,
    gaps: &Gaps,
    seeds: &[(Source, Vec<u64>)],
    targets: &Targets,
    meter: &Meter<'_>,
) -> Result<Vec<Recovered>, ScanError> {
    let inside = |&(start, end): &(u64, u64)| (start.max(code.address), end.min(code.end()));
    let own = gaps.gaps.iter().map(inside).filter(|(start, end)| start < end).collect();
    let own = Gaps::new(own);
    if own.is_empty() {
        return Ok(Vec::new());
    }
    let mut state = State { code, gaps: &own, functions: Vec::new(), meter };
    let mut starts = Vec::new();
    // Those of other sections are left out at once: a made-up file has a thousand sections, and a
    // million seeds.
    let mut add = |addresses: &[u64], source| {
        let wanted = addresses.iter().filter(|&&address| own.wants(address));
        starts.extend(wanted.map(|&address| (address, source)));
    };
    for (source, addresses) in seeds {
        add(addresses, *source);
    }
    add(&targets.addresses, Source::Address);
    add(&targets.calls, Source::Call);
    for _ in 0..ROUNDS_MAX {
        let found = state.round(starts)?;
        if found.calls.is_empty() && found.addresses.is_empty() {
            break;
        }
        starts = found.addresses.iter().map(|&address| (address, Source::Address)).collect();
        starts.extend(found.calls.iter().map(|&address| (address, Source::Call)));
    }
    state.guess()
}

struct State<'a> {
    code: Code<'a>,
    gaps: &'a Gaps,
    /// Ascending by start, apart from each other.
    functions: Vec<Recovered>,
    meter: &'a Meter<'a>,
}

impl State<'_> {
    /// Decodes functions from these starts; returns what they lead to.
    fn round(&mut self, mut starts: Vec<(u64, Source)>) -> Result<Targets, ScanError> {
        starts.retain(|(start, _)| self.gaps.wants(*start) && !self.is_known(*start));
        starts.sort_unstable();
        starts.dedup_by_key(|(start, _)| *start);
        let limits: Vec<Limit> = (0..starts.len()).map(|at| self.limit(&starts, at)).collect();
        let work: Vec<((u64, Source), Limit)> = starts.into_iter().zip(limits).collect();
        let parts: Result<Vec<(Vec<Recovered>, Targets)>, ScanError> = work
            .par_chunks(TASK_FUNCTIONS)
            .map_init(Sweep::default, |sweep, work| self.decode(work, sweep))
            .collect();
        let mut targets = Targets::default();
        for (functions, found) in parts? {
            self.functions.extend(functions);
            targets.calls.extend(found.calls);
            targets.addresses.extend(found.addresses);
        }
        self.functions.sort_by_key(|function| function.range.start);
        Ok(targets)
    }

    fn is_known(&self, address: u64) -> bool {
        let at = self.functions.partition_point(|function| function.range.start <= address);
        at > 0 && address < self.functions[at - 1].range.end
    }

    /// Where the next start or function begins, or the gap ends.
    fn limit(&self, starts: &[(u64, Source)], at: usize) -> Limit {
        let start = starts[at].0;
        let gap = self.gaps.find(start).map_or(start, |gap| self.gaps.gaps[gap].1);
        let known = self.functions.partition_point(|function| function.range.start <= start);
        let known = self.functions.get(known).map_or(gap, |function| function.range.start);
        let next = starts.get(at + 1).map_or(gap, |(next, _)| *next);
        let end = gap.min(known).min(next);
        let limit = end.min(start.saturating_add(PIECE_MAX_BYTES));
        Limit { address: limit, is_code: limit == end && end < self.code.end() }
    }

    fn decode(
        &self,
        work: &[((u64, Source), Limit)],
        sweep: &mut Sweep,
    ) -> Result<(Vec<Recovered>, Targets), ScanError> {
        let mut decoder = decoder(self.code);
        let (mut functions, mut targets) = (Vec::new(), Targets::default());
        for &((start, source), limit) in work {
            let mut own = Targets::default();
            let range = self.offsets(start, limit.address);
            sweep.run(&mut decoder, self.code, range, Until::LastFlow, self.gaps, &mut own);
            // It may end long before its limit, so what it took is known only now.
            self.meter.spend(FUNCTION_COST + u64::from(sweep.end))?;
            let goes_on = limit.is_code && start + u64::from(sweep.end) == limit.address;
            if !is_plausible(sweep, &self.code.bytes[range.0..range.1], goes_on) {
                continue;
            }
            targets.calls.extend(own.calls);
            targets.addresses.extend(own.addresses);
            let end = start + u64::from(sweep.end);
            let range = Range { start, end, source, symbol: None };
            functions.push(Recovered { range, analysis: analysis::analyse(sweep) });
        }
        Ok((functions, targets))
    }

    fn offsets(&self, start: u64, end: u64) -> (usize, usize) {
        ((start - self.code.address) as usize, (end - self.code.address) as usize)
    }

    /// What remains of the gaps.
    fn guess(mut self) -> Result<Vec<Recovered>, ScanError> {
        let mut decoder = decoder(self.code);
        let mut sweep = Sweep::default();
        let mut guesses = Vec::new();
        let functions: Vec<Range> = self.functions.iter().map(|function| function.range).collect();
        for (mut at, end) in rests(&self.gaps.gaps, &functions) {
            // A rest begins where a function ends, except at the start of the section.
            let mut behind_code = at > self.code.address;
            loop {
                let padding = at;
                at = skip_padding(self.code, &mut decoder, at, end);
                self.meter.spend(at - padding)?;
                if at >= end {
                    break;
                }
                let limit = end.min(at.saturating_add(PIECE_MAX_BYTES));
                let range = self.offsets(at, limit);
                let mut targets = Targets::default();
                sweep.run(&mut decoder, self.code, range, Until::LastFlow, self.gaps, &mut targets);
                self.meter.spend(FUNCTION_COST + u64::from(sweep.end))?;
                let next = at + u64::from(sweep.end).max(1);
                if is_plausible(&sweep, &self.code.bytes[range.0..range.1], false) {
                    let source = if behind_code && at % ALIGNMENT == 0 {
                        Source::Padding
                    } else {
                        Source::Guess
                    };
                    behind_code = true;
                    let range = Range { start: at, end: next, source, symbol: None };
                    guesses.push(Recovered { range, analysis: analysis::analyse(&sweep) });
                    at = next;
                } else {
                    behind_code = false;
                    let next = next.next_multiple_of(ALIGNMENT).min(end);
                    at = next;
                }
            }
        }
        self.functions.extend(guesses);
        self.functions.sort_by_key(|function| function.range.start);
        Ok(self.functions)
    }
}

/// The parts of the gaps that no function covers.
fn rests(gaps: &[(u64, u64)], functions: &[Range]) -> Vec<(u64, u64)> {
    let mut rests = Vec::new();
    let mut functions = functions.iter().peekable();
    for &(mut at, end) in gaps {
        while let Some(function) = functions.next_if(|function| function.start < end) {
            if function.start > at {
                rests.push((at, function.start));
            }
            at = at.max(function.end);
        }
        if at < end {
            rests.push((at, end));
        }
    }
    rests
}

/// Whether what was decoded looks like a function: it is all instructions, none of which only the
/// kernel or the last century has, and it ends with a flow, or goes on to another function.
fn is_plausible(sweep: &Sweep, bytes: &[u8], goes_on: bool) -> bool {
    let is_code = sweep.data_bytes == 0 && sweep.unlikely == 0 && sweep.end > 0;
    let first = sweep.branches.first();
    let is_trap = first.is_some_and(|first| first.at == 0 && first.flow == Flow::Trap);
    // Zeros are an instruction, which adds to where RAX points.
    let is_zeros = bytes.starts_with(&[0, 0]);
    is_code && !is_trap && !is_zeros && (!sweep.falls_off || goes_on)
}

/// Where a function has to end.
#[derive(Clone, Copy)]
struct Limit {
    address: u64,
    /// Another one begins there.
    is_code: bool,
}

/// What lies between the ranges, where it holds more than padding; begins after the padding.
pub(crate) fn gaps_of(code: Code<'_>, ranges: &[Range]) -> Vec<(u64, u64)> {
    let mut decoder = decoder(code);
    let mut gaps = bounds::gaps(ranges, (code.address, code.end()));
    for (start, end) in &mut gaps {
        *start = skip_padding(code, &mut decoder, *start, *end);
    }
    gaps.retain(|(start, end)| start < end);
    gaps
}

/// After zeros, traps and instructions that do nothing.
fn skip_padding(code: Code<'_>, decoder: &mut Decoder<'_>, mut at: u64, end: u64) -> u64 {
    let mut instruction = Instruction::default();
    while at < end {
        let offset = (at - code.address) as usize;
        if matches!(code.bytes[offset], 0x00 | 0xcc | 0x90) {
            at += 1;
            continue;
        }
        if let Some(length) = nop_length(&code.bytes[offset..]) {
            at += length as u64;
            continue;
        }
        if decoder.set_position(offset).is_err() {
            return at;
        }
        decoder.decode_out(&mut instruction);
        if instruction.mnemonic() != Mnemonic::Nop {
            return at;
        }
        at += instruction.len() as u64;
    }
    end
}

/// Length of the instruction that assemblers fill gaps with: `nop` with an operand (0F 1F /0),
/// after 66 and 2E.
fn nop_length(bytes: &[u8]) -> Option<usize> {
    const PREFIXES_MAX: usize = 6; // with all that follows, not longer than an instruction may be
    let prefixes = bytes.iter().take_while(|&&byte| matches!(byte, 0x66 | 0x2e)).count();
    let [0x0f, 0x1f, modrm, sib, ..] = bytes[prefixes..] else { return None };
    let length = prefixes + 2 + operand_length(u64::from(modrm) | u64::from(sib) << 8);
    let is_it = prefixes <= PREFIXES_MAX && modrm & 0x38 == 0 && length <= bytes.len();
    is_it.then_some(length)
}

#[cfg(test)]
mod tests {
    use iced_x86::DecoderOptions;
    use proptest::prelude::*;

    use super::*;
    use crate::Limits;

    fn run_on(bytes: &[u8], seeds: &[u64]) -> Vec<(u64, u64, Source)> {
        let code = Code { bytes, address: 0x1000, bits: 64 };
        let gaps = Gaps::new(vec![(0x1000, code.end())]);
        let seeds = [(Source::Pointer, seeds.to_vec())];
        let meter = Meter::new(&Limits::default());
        let found = run(code, &gaps, &seeds, &Targets::default(), &meter).unwrap();
        found
            .iter()
            .map(|function| (function.range.start, function.range.end, function.range.source))
            .collect()
    }

    proptest! {
        /// Gaps in any order and over each other: an address is wanted if any of them has it.
        #[test]
        fn gaps_may_overlap(
            gaps in prop::collection::vec((0u64..5000, 1u64..2000), 1..8),
            addresses in prop::collection::vec(0u64..8000, 50),
        ) {
            let all: Vec<(u64, u64)> = gaps.iter().map(|(at, len)| (*at, at + len)).collect();
            let found = Gaps::new(all.clone());
            for address in addresses {
                let inside = all.iter().any(|(start, end)| (*start..*end).contains(&address));
                prop_assert_eq!(found.wants(address), inside, "{}", address);
            }
        }
    }

    /// What is taken for padding is what iced-x86 takes for it, of the same length, or is left to
    /// it.
    #[test]
    fn nops_are_those_of_iced() {
        let mut found = 0;
        for prefixes in [&[][..], &[0x66], &[0x2e], &[0x66, 0x66, 0x2e], &[0x66; 9], &[0xf3]] {
            for (modrm, sib) in (0..=255u8).zip([0x00, 0x05, 0x84].into_iter().cycle()) {
                let whole = [prefixes, &[0x0f, 0x1f, modrm, sib, 1, 2, 3, 4]].concat();
                for (bits, cut) in [(64, 0), (32, 0), (64, 4), (64, 6)] {
                    let bytes = &whole[..whole.len() - cut];
                    let nop = Decoder::new(bits, bytes, DecoderOptions::NONE).decode();
                    let Some(length) = nop_length(bytes) else { continue };
                    let theirs = (nop.mnemonic(), nop.len());
                    assert_eq!(theirs, (Mnemonic::Nop, length), "{bytes:02x?}");
                    found += 1;
                }
            }
        }
        assert!(found > 300, "{found}");
    }

    /// A pointer leads to a function, that one's call to the next; what no one uses is one if
    /// it is aligned, and else a guess.
    #[test]
    fn pointers_and_calls_are_followed() {
        let mut bytes = vec![0x90; 0x50];
        bytes[0x10..0x16].copy_from_slice(&[0xe8, 0x1b, 0, 0, 0, 0xc3]); // call 0x1030; ret
        bytes[0x30..0x35].copy_from_slice(&[0x74, 0x01, 0xc3, 0x90, 0xc3]); // je over a ret
        bytes[0x40..0x43].copy_from_slice(&[0x31, 0xc0, 0xc3]); // xor eax, eax; ret
        bytes[0x48..0x4b].copy_from_slice(&[0x31, 0xc0, 0xc3]);
        assert_eq!(
            run_on(&bytes, &[0x1010]),
            [
                (0x1010, 0x1016, Source::Pointer),
                (0x1030, 0x1035, Source::Call),
                (0x1040, 0x1043, Source::Padding),
                (0x1048, 0x104b, Source::Guess),
            ]
        );
    }

    /// Data that decodes to what no program has is no function, even if something points there.
    #[test]
    fn data_is_no_function() {
        // hlt; ret. Boot code of 16 bits: les, out. Zeros.
        for junk in [&[0xf4, 0xc3][..], &[0xc4, 0x06, 0x12, 0x34, 0xe6, 0x21, 0xc3], &[0, 0, 0, 0]]
        {
            assert_eq!(run_on(junk, &[0x1000]), [], "{junk:02x?}");
        }
    }
}
