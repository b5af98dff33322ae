// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was found in a function, as the report says it: its place, its level, how sure that is, and
//! the file's sums.

use report::scan::{
    ByLength, Check, Confidence, Counts, File, Function, Question, Source, SourceShare, Widest,
};

use crate::analysis::{self, Analysis};
use crate::bounds::Range;
use crate::symbols;
use crate::traits::Width;

/// Names and places of a function.
pub(crate) struct Place<'a> {
    pub(crate) symbol: Option<&'a str>,
    pub(crate) section: Option<&'a str>,
    pub(crate) file_offset: Option<u64>,
}

/// Adds a function to the file. All with wide instructions are listed: the level is filtered by the
/// caller's [`Options`], after the sums.
pub(crate) fn keep(file: &mut File, range: Range, analysis: &Analysis, place: &Place<'_>) {
    keep_checks(file, range, analysis, place);
    if analysis.wide == 0 {
        return;
    }
    let counts = counts(analysis);
    let confidence = confidence(range.source, analysis);
    if confidence != Confidence::Low {
        file.counts.add(&counts);
        file.license_level = file.license_level.max(analysis.license_level);
        file.sustained_level = file.sustained_level.max(analysis.sustained_level);
        file.widest = file.widest.max(widest(analysis.widest));
        file.dirty_functions += u64::from(analysis.dirty.returns > 0);
    }
    file.listed.push(Function {
        name: None,
        symbol: place.symbol.map(str::to_string),
        address: range.start,
        file_offset: place.file_offset,
        section: place.section.map(str::to_string),
        size_bytes: range.end - range.start,
        source: range.source,
        confidence,
        license_level: analysis.license_level,
        sustained_level: analysis.sustained_level,
        widest: widest(analysis.widest),
        instructions: analysis.instructions.into(),
        counts,
        heavy_frac: analysis.density.map(|density| density.heavy_frac),
        in_loop: analysis.density.map(|density| density.in_loop),
        loops: analysis.loops,
        dirty_returns: analysis.dirty.returns,
        dirty_sse: analysis.dirty.sse,
        line: None,
        near: None,
    });
}

/// Adds the places where the function asks what the CPU can do.
fn keep_checks(file: &mut File, range: Range, analysis: &Analysis, place: &Place<'_>) {
    // What no one knows to be code asks nothing.
    if range.source == Source::Guess {
        return;
    }
    let asks = !(analysis.cpuid.is_empty() && analysis.xgetbv.is_empty());
    let function = place.symbol.filter(|_| asks).map(symbols::demangle);
    for (kind, sites) in [(Question::Cpuid, &analysis.cpuid), (Question::Xgetbv, &analysis.xgetbv)]
    {
        for &offset in sites {
            let is_named = file.checks.len() < CHECKS_NAMED_MAX;
            file.checks.push(Check {
                kind,
                address: range.start + u64::from(offset),
                file_offset: place.file_offset.map(|start| start + u64::from(offset)),
                function: function.clone().filter(|_| is_named),
            });
        }
    }
}

/// Checks whose function is named. Programs have some tens; a made-up file has half a million in a
/// function with a name of 64 KiB.
const CHECKS_NAMED_MAX: usize = 4096;

fn confidence(source: Source, analysis: &Analysis) -> Confidence {
    match source {
        Source::Guess => Confidence::Low,
        _ if analysis.unreached => Confidence::Low,
        source if source.is_stated() => Confidence::High,
        _ => Confidence::Medium,
    }
}

fn widest(width: Width) -> Widest {
    match width {
        Width::None => Widest::None,
        Width::Xmm => Widest::Xmm,
        Width::Ymm => Widest::Ymm,
        Width::Zmm => Widest::Zmm,
    }
}

fn counts(analysis: &Analysis) -> Counts {
    let lengths = |counts: analysis::Counts| {
        let [xmm, ymm, zmm] = counts.map(u64::from);
        ByLength { xmm, ymm, zmm }
    };
    Counts {
        heavy: lengths(analysis.heavy),
        light: lengths(analysis.light),
        tile: analysis.tile.into(),
        tile_multiply: analysis.tile_multiply.into(),
        vnni: analysis.vnni.into(),
        scatter: analysis.scatter.into(),
        gather: analysis.gather.into(),
    }
}

/// Sums and coverage from what was swept, by source.
pub(crate) fn summarise(file: &mut File, functions: &[u64], wide: &[u64]) {
    let share = |(source, (&functions, &wide_instructions)): (Source, (&u64, &u64))| SourceShare {
        source,
        functions,
        wide_instructions,
    };
    let shares = Source::ALL.into_iter().zip(functions.iter().zip(wide)).map(share);
    file.sources = shares.filter(|share| share.functions > 0).collect();
    let all: u64 = wide.iter().sum();
    let guessed = wide[Source::Guess as usize];
    file.coverage_pct = (all > 0).then(|| 100.0 * (all - guessed) as f64 / all as f64);
}
