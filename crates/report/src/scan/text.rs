// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scan results as text.

use super::{Check, Confidence, File, Function, Marks, Question, Scan, Source};
use crate::text::{Align, Table, wrap};

/// Places that are named before the rest is only counted.
const CHECKS_SHOWN: usize = 4;

impl Scan {
    /// The document as text of at most `width` columns. Files without findings take one line, and
    /// none at all if there are many.
    pub fn text(&self, width: usize) -> String {
        let many = self.files.len() > 1;
        let shown: Vec<&File> =
            self.files.iter().filter(|file| !many || !file.listed.is_empty()).collect();
        let mut text: String = shown
            .iter()
            .map(|file| file_text(file, self.least_level, width) + if many { "\n" } else { "" })
            .collect();
        if many || self.files.is_empty() || self.skipped.total() > 0 {
            text += &wrap("", &self.count_text(), width);
        }
        text
    }

    /// How many files, how many with findings, and what was passed over.
    pub(super) fn count_text(&self) -> String {
        if self.files.is_empty() {
            return format!("no program and no library{}", self.passed_over());
        }
        let with = self.files.iter().filter(|file| file.found > 0).count();
        let functions = count(self.found(), "function");
        format!(
            "{}, {with} with {functions} of level {} and above{}",
            count(self.files.len() as u64, "file"),
            self.least_level,
            self.passed_over()
        )
    }

    fn passed_over(&self) -> String {
        let skipped = &self.skipped;
        let reasons = [
            (skipped.not_elf, "no ELF files"),
            (skipped.other_cpu, "for other CPUs"),
            (skipped.no_code, "without code"),
            (skipped.broken, "broken"),
            (skipped.unreadable, "not readable"),
            (skipped.beyond_limits, "beyond limits"),
        ];
        counted(&reasons).map_or(String::new(), |reasons| format!("; passed over: {reasons}"))
    }
}

impl super::Skipped {
    /// All that was passed over.
    pub fn total(&self) -> u64 {
        let files = self.not_elf + self.other_cpu + self.broken + self.no_code;
        files + self.unreadable + self.beyond_limits
    }
}

/// What there is of these, with how many; `None` if there is nothing.
fn counted(kinds: &[(u64, &str)]) -> Option<String> {
    let there = kinds.iter().filter(|(number, _)| *number > 0);
    let there: Vec<String> = there.map(|(number, what)| format!("{number} {what}")).collect();
    (!there.is_empty()).then(|| there.join(", "))
}

fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn file_text(file: &File, least_level: u8, width: usize) -> String {
    let mut text = wrap("", &file.path, width);
    for line in facts(file, least_level) {
        text += &wrap("  ", &line, width);
    }
    if !file.listed.is_empty() {
        text += "\n";
        text += &table(&file.listed, width);
        let rest = file.found.saturating_sub(sure(file));
        if rest > 0 {
            text += &format!("{rest} more; --top 0 lists all\n");
        }
    }
    text
}

/// What is known of a file, line by line.
pub(super) fn facts(file: &File, least_level: u8) -> Vec<String> {
    let id = file.build_id.as_ref().map_or(String::new(), |id| format!(", build id {id}"));
    let head = format!(
        "{} {}, {} of code, {}{id}",
        file.architecture,
        file.kind,
        size(file.code_bytes),
        count(file.functions, "function"),
    );
    let mut lines = vec![head, verdict(file, least_level)];
    lines.extend(details(file, least_level));
    lines
}

/// What the marks that were written cover.
fn marks_text(marks: &Marks, least_level: u8) -> String {
    let reached = [
        (marks.at_entry, "at their entry"),
        (marks.inside, "inside"),
        (marks.by_callers, "by callers"),
    ];
    format!(
        "marks: {} of {} of level {least_level} and above{}",
        marks.reached(),
        count(marks.functions, "function"),
        counted(&reached).map_or(String::new(), |reached| format!(" ({reached})")),
    )
}

/// Listed functions that count as found.
fn sure(file: &File) -> u64 {
    file.listed.iter().filter(|function| function.confidence != Confidence::Low).count() as u64
}

fn verdict(file: &File, least_level: u8) -> String {
    if file.license_level == 0 && file.found == 0 {
        return match file.widest.word() {
            "ymm" => "raises no level: light 256-bit code only".into(),
            _ => "raises no level".into(),
        };
    }
    let sustained = match file.sustained_level {
        level if level == file.license_level => String::new(),
        level => format!(" (level {level} if heavy code counts only where it can be dense)"),
    };
    format!(
        "can reach level {}{sustained}: {} of level {least_level} and above, widest register {}",
        file.license_level,
        count(file.found, "function"),
        file.widest.word()
    )
}

fn details(file: &File, least_level: u8) -> Vec<String> {
    let mut lines = Vec::new();
    let counts = &file.counts;
    let kinds = [
        (counts.heavy.zmm, "heavy 512-bit"),
        (counts.light.zmm, "light 512-bit"),
        (counts.heavy.ymm, "heavy 256-bit"),
        (counts.light.ymm, "light 256-bit"),
        (counts.tile, "AMX"),
        (counts.vnni, "VNNI"),
        (counts.scatter, "scatter"),
        (counts.gather, "gather"),
    ];
    lines.extend(counted(&kinds).map(|kinds| format!("instructions: {kinds}")));
    if let Some(coverage) = file.coverage_pct {
        lines.push(coverage_text(file, coverage));
    }
    if file.dirty_functions > 0 {
        let functions = count(file.dirty_functions, "function");
        lines
            .push(format!("vzeroupper is missing: {functions} can return with a dirty upper half"));
    }
    if !file.checks.is_empty() {
        lines.push(checks_text(&file.checks));
    }
    lines.extend(file.marks.as_ref().map(|marks| marks_text(marks, least_level)));
    lines.extend(file.partial.iter().map(|what| format!("partial: {what}")));
    lines
}

fn coverage_text(file: &File, coverage: f64) -> String {
    let all: u64 = file.sources.iter().map(|share| share.wide_instructions).sum();
    let shares: Vec<String> = file
        .sources
        .iter()
        .filter(|share| share.wide_instructions > 0 && share.source != Source::Guess)
        .map(|share| {
            let pct = 100.0 * share.wide_instructions as f64 / all as f64;
            format!("{} {pct:.1} %", share.source.name())
        })
        .collect();
    let shares =
        if shares.is_empty() { String::new() } else { format!(" ({})", shares.join(", ")) };
    // Rounded down: 100.0 % is all of them.
    let coverage = (coverage * 10.0).floor() / 10.0;
    format!("coverage: {coverage:.1} % of {all} wide instructions are in a known function{shares}")
}

fn checks_text(checks: &[Check]) -> String {
    let of = |kind| checks.iter().filter(|check| check.kind == kind).count() as u64;
    let kinds = [(of(Question::Cpuid), "cpuid"), (of(Question::Xgetbv), "xgetbv")];
    let kinds = counted(&kinds).unwrap_or_default();
    let mut places: Vec<String> = checks
        .iter()
        .map(|check| check.function.clone().unwrap_or_else(|| format!("{:#x}", check.address)))
        .collect();
    places.dedup();
    let more = places.len().saturating_sub(CHECKS_SHOWN);
    places.truncate(CHECKS_SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("asks what the CPU can do: {kinds} in {}{more}", places.join(", "))
}

fn table(functions: &[Function], width: usize) -> String {
    let mut table = Table::new(&[
        ("LEVEL", Align::Right),
        ("LASTING", Align::Right),
        ("WIDEST", Align::Left),
        ("HEAVY512", Align::Right),
        ("HEAVY256", Align::Right),
        ("DENSITY", Align::Right),
        ("SIZE", Align::Right),
        ("FUNCTION", Align::Left),
    ]);
    for function in functions {
        table.row(cells(function));
    }
    table.text(width)
}

/// A line of the table.
pub(super) fn cells(function: &Function) -> Vec<String> {
    vec![
        function.license_level.to_string(),
        function.sustained_level.to_string(),
        function.widest.word().into(),
        number(function.counts.heavy.zmm),
        number(function.counts.heavy.ymm),
        density(function),
        size(function.size_bytes),
        name(function),
    ]
}

fn number(number: u64) -> String {
    if number == 0 { "-".into() } else { number.to_string() }
}

/// Of a loop, or in brackets of the function.
fn density(function: &Function) -> String {
    match (function.heavy_frac, function.in_loop) {
        (None, _) => "-".into(),
        (Some(share), Some(true)) => format!("{:.0} %", share * 100.0),
        (Some(share), _) => format!("({:.0} %)", share * 100.0),
    }
}

/// Name or address, with what else is worth knowing.
fn name(function: &Function) -> String {
    let mut text = function.name.clone().unwrap_or_else(|| format!("{:#x}", function.address));
    let counts = &function.counts;
    let mut notes: Vec<String> = [
        (counts.tile, "AMX"),
        (counts.vnni, "VNNI"),
        (counts.scatter, "scatter"),
        (counts.gather, "gather"),
        (function.dirty_returns.into(), "no vzeroupper"),
        (function.dirty_sse.into(), "SSE with dirty upper half"),
    ]
    .iter()
    .filter(|(number, _)| *number > 0)
    .map(|(_, what)| (*what).to_string())
    .collect();
    if function.confidence != Confidence::High {
        notes.push(format!("confidence {}", function.confidence.word()));
    }
    if !notes.is_empty() {
        text += &format!(" [{}]", notes.join(", "));
    }
    if let Some(line) = &function.line {
        text += &format!(" at {line}");
    }
    if let Some(near) = &function.near {
        text += &format!(" ({near})");
    }
    text
}

/// Bytes with a unit.
fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{:.0} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}
