// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples of licence counters out of the text of `perf script`.
//!
//! **Problem.** Skylake-SP to Ice Lake count the cycles that a core spends at each licence level
//! (CORE_POWER.LVL0, LVL1 and LVL2_TURBO_LICENSE), and DIM 5.1 attributes levels to tasks by them.
//! perf reads these counters on any kernel, on machines where nothing else of ours runs:
//!
//! ```text
//!   perf record -a -c 1000003 -e core_power.lvl0_turbo_license,core_power.lvl1_turbo_license,... -- sleep 10
//!   perf script --header
//! ```
//!
//! **Idea.** A sample is taken when a CPU's counter of one level has advanced by its period, so it
//! represents as many cycles at that level, on that CPU. Where a PMU cannot sample, or too many
//! events share it, a clock samples and the counters are read with it, as members of its group: `-e
//! '{cpu-clock,r728,r1828,r2028}:S'`. perf prints that as a sample of each member whose counter has
//! gone on, and by how much:
//!
//! ```text
//!   # cpudesc : Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz                          header, "# key : value"
//!   nginx  4711/4715 [003] 12345.678901:    1000003 core_power.lvl1_turbo_license:u:  55d0 f+0x1 (/usr/bin/x)
//!   ^comm  ^pid/tid  ^CPU  ^s           ^period     ^event                            the rest is skipped
//! ```
//!
//! A name may hold blanks, so the CPU in brackets between a number and a time is looked for. What
//! else perf writes (call chains, other events) is skipped; other lines are counted and reported.
//!
//! **Limits.** All cycles of a period are attributed to the task that ran at its end: right on the
//! mean over many samples, wrong for any one of them. In a group they are all cycles since the
//! group's last sample. Levels are those granted to the core: a scalar task after wide code is
//! counted at the level it suffers. Without `-a` or `--sample-cpu`, perf does not say the CPU; such
//! lines fit nothing. Times are perf's clock, which is not this machine's. Memory grows with the
//! samples: the text is larger.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};

use cpumodel::{CpuSet, MAX_CPUS};

use crate::event::{Event, Name, What};
use crate::info::Info;

/// Longer lines are cut: symbols of C++ reach some thousand characters, and come after what is
/// read.
const LINE_BYTES_MAX: u64 = 16 << 10;

/// Largest number of a task (PID_MAX_LIMIT of 64-bit kernels).
const TID_MAX: u32 = 1 << 22;

/// The counters of levels 0, 1 and 2 as raw events, umask and event 28h: for a perf that does not
/// know their names. Source: Intel's event files, see `hw::license`.
const RAW_EVENTS: [u64; 3] = [0x0728, 0x1828, 0x2028];

/// What a text of `perf script` held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerfScript {
    /// What its header says of the recording.
    pub info: Info,
    /// Samples, names of tasks, lost events; in order of time.
    pub events: Vec<Event>,
    /// Samples of licence counters.
    pub samples: u64,
    /// Such samples without a period, which perf leaves out on request: they stand for nothing.
    pub without_period: u64,
    /// Samples of other events.
    pub others: u64,
    /// Lines that are none of what perf writes.
    pub unknown_lines: u64,
    /// The first of them, counted from 1.
    pub first_unknown: Option<u64>,
}

/// Reads a text to its end. The error is the input's.
pub fn read(mut input: impl BufRead) -> io::Result<PerfScript> {
    let mut script = PerfScript::default();
    let mut names = HashMap::new();
    let (mut line, mut number) = (Vec::new(), 0);
    while next_line(&mut input, &mut line)? {
        number += 1;
        script.take(&String::from_utf8_lossy(&line), number, &mut names);
    }
    // perf sorts by time, but not across what it flushes in rounds.
    script.events.sort_by_key(|event| event.at_ns);
    let info = &mut script.info;
    info.start_ns = script.events.first().map_or(0, |event| event.at_ns);
    if info.cpus.is_empty() {
        let met: CpuSet = script.events.iter().map(|event| usize::from(event.cpu)).collect();
        info.cpus = met.to_string();
    }
    Ok(script)
}

/// The next line without its end, cut at [`LINE_BYTES_MAX`]; false after the last.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', line)?;
    if line.len() as u64 == LINE_BYTES_MAX && line.last() != Some(&b'\n') {
        input.skip_until(b'\n')?;
    }
    Ok(!line.is_empty())
}

impl PerfScript {
    fn take(&mut self, line: &str, number: u64, names: &mut HashMap<u32, Name>) {
        let line = line.trim_end();
        if let Some(header) = line.strip_prefix('#') {
            return self.header(header);
        }
        let Some(head) = Head::of(line) else {
            if !is_call_chain(line) {
                self.unknown_lines += 1;
                self.first_unknown.get_or_insert(number);
            }
            return;
        };
        let event = |tid, what| Event { at_ns: head.at_ns, cpu: head.cpu, tid, what };
        match what(head.rest) {
            Happened::Cycles { license_level, cycles } => {
                // The idle task has the same name everywhere.
                if head.tid != 0 && names.insert(head.tid, head.name) != Some(head.name) {
                    let name = What::Name { tgid: head.tgid, name: head.name };
                    self.events.push(event(head.tid, name));
                }
                self.samples += 1;
                self.events.push(event(head.tid, What::LevelCycles { license_level, cycles }));
            }
            Happened::WithoutPeriod => self.without_period += 1,
            Happened::Lost { events } => self.events.push(event(0, What::Lost { events })),
            Happened::Other => self.others += 1,
        }
    }

    /// `key : value`, after the `#`.
    fn header(&mut self, text: &str) {
        let Some((key, value)) = text.split_once(" : ") else { return };
        let value = value.trim();
        match key.trim() {
            "os release" => self.info.kernel = value.into(),
            "cpudesc" => self.info.processor = value.into(),
            "cmdline" => self.info.target = value.into(),
            "nrcpus online" => {
                let count = value.parse().unwrap_or(0).min(MAX_CPUS);
                self.info.cpus = (0..count).collect::<CpuSet>().to_string();
            }
            _ => {}
        }
    }
}

/// How a line of an event begins.
struct Head<'a> {
    name: Name,
    tgid: u32,
    tid: u32,
    cpu: u16,
    at_ns: u64,
    rest: &'a str,
}

impl<'a> Head<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let mut before: Option<&str> = None;
        let mut rest = line;
        while let Some((word, behind)) = next_word(rest) {
            if let Some(cpu) = cpu(word)
                && let Some((tgid, tid)) = before.and_then(task)
                && let Some((time, rest)) = next_word(behind)
                && let Some(at_ns) = time_ns(time)
            {
                let until = offset(line, before?);
                let name = Name::new(line[..until].trim().as_bytes());
                return Some(Head { name, tgid, tid, cpu, at_ns, rest });
            }
            (before, rest) = (Some(word), behind);
        }
        None
    }
}

/// Where a part of the line begins in it.
fn offset(line: &str, part: &str) -> usize {
    part.as_ptr() as usize - line.as_ptr() as usize
}

fn next_word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// A number of digits alone: `parse` would take a sign.
fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// `[003]`.
fn cpu(word: &str) -> Option<u16> {
    let cpu: u16 = number(word.strip_prefix('[')?.strip_suffix(']')?)?;
    (usize::from(cpu) < MAX_CPUS).then_some(cpu)
}

/// `4715`, or with its process `4711/4715`; a process of 0 is not known.
fn task(word: &str) -> Option<(u32, u32)> {
    let (tgid, tid) = match word.split_once('/') {
        Some((tgid, tid)) => (number(tgid)?, number(tid)?),
        None => (0, number(word)?),
    };
    (tgid <= TID_MAX && tid <= TID_MAX).then_some((tgid, tid))
}

/// `12345.678901:`, with up to nine decimals.
fn time_ns(word: &str) -> Option<u64> {
    let (seconds, decimals) = word.strip_suffix(':')?.split_once('.')?;
    let digits = decimals.len() as u32;
    let fraction: u64 = number(decimals).filter(|_| digits <= 9)?;
    let whole_ns = number::<u64>(seconds)?.checked_mul(1_000_000_000)?;
    whole_ns.checked_add(fraction * 10u64.pow(9 - digits))
}

/// What an event's line says.
#[derive(Debug, PartialEq, Eq)]
enum Happened {
    Cycles { license_level: u8, cycles: u64 },
    WithoutPeriod,
    Lost { events: u64 },
    Other,
}

/// After the time: `period event: ...`, `event: ...`, or a record of perf's own.
fn what(rest: &str) -> Happened {
    let mut words = rest.split_whitespace();
    let (Some(first), second, third) = (words.next(), words.next(), words.next()) else {
        return Happened::Other;
    };
    if first == "PERF_RECORD_LOST" {
        let events = third.filter(|_| second == Some("lost")).and_then(number);
        return events.map_or(Happened::Other, |events| Happened::Lost { events });
    }
    match (number(first), level(first), second.and_then(level)) {
        (Some(cycles), _, Some(license_level)) => Happened::Cycles { license_level, cycles },
        (None, Some(_), _) => Happened::WithoutPeriod,
        _ => Happened::Other,
    }
}

/// The level that an event counts, as it was asked for: `core_power.lvl1_turbo_license:`, in either
/// case, with modifiers; raw, `r1828:`; or by its terms, `cpu/event=0x28,umask=0x18/:`.
fn level(word: &str) -> Option<u8> {
    let event = word.strip_suffix(':')?.to_ascii_lowercase();
    if let Some((terms, _modifiers)) = event.strip_prefix("cpu/").and_then(|e| e.split_once('/')) {
        return named_level(terms).or_else(|| raw_level(raw_of_terms(terms)?));
    }
    let event = event.split(':').next()?;
    let raw = event.strip_prefix('r').and_then(|raw| u64::from_str_radix(raw, 16).ok());
    raw.map_or_else(|| named_level(event), raw_level)
}

fn raw_level(raw: u64) -> Option<u8> {
    RAW_EVENTS.iter().position(|event| *event == raw).map(|level| level as u8)
}

/// `event=0x28,umask=0x18,period=0x30d43`: what a counter counts; terms that do not say it are
/// passed over.
fn raw_of_terms(terms: &str) -> Option<u64> {
    let term = |key: &str| {
        let value =
            terms.split(',').find_map(|term| term.split_once('=').filter(|t| t.0 == key))?.1;
        u64::from_str_radix(value.strip_prefix("0x")?, 16).ok()
    };
    term("config").or_else(|| term("umask")?.checked_mul(0x100)?.checked_add(term("event")?))
}

fn named_level(event: &str) -> Option<u8> {
    let level = event.strip_suffix("_turbo_license")?.strip_prefix("core_power.lvl")?;
    number(level).filter(|level| usize::from(*level) < RAW_EVENTS.len())
}

/// A line of a call chain, `   ffffffff8108e8f6 symbol (file)`, or an empty one.
fn is_call_chain(line: &str) -> bool {
    let is_indented = line.starts_with(char::is_whitespace);
    next_word(line).is_none_or(|(word, _)| is_indented && u64::from_str_radix(word, 16).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names with blanks and brackets, pid and tid, microseconds and nanoseconds.
    #[test]
    fn lines_have_heads() {
        let head = |line: &'static str| {
            let Head { name, tgid, tid, cpu, at_ns, rest } = Head::of(line)?;
            Some((name.to_string(), tgid, tid, cpu, at_ns, rest.trim()))
        };
        let web = ("Web [1] Content".into(), 70, 71, 3, 12_345_678_901_000, "1 x:");
        assert_eq!(head("  Web [1] Content 70/71 [003] 12345.678901:  1 x:"), Some(web));
        let kernel = ("kworker/3:1".into(), 0, 9, 0, 1_000_000_002, "x:");
        assert_eq!(head("kworker/3:1 9 [000] 1.000000002: x:"), Some(kernel));
        for bad in [
            "nginx 4711 1.000000: 1 x:",
            "nginx -1 [000] 1.000000: 1 x:",
            "nginx 4711 [70000] 1.000000: 1 x:",
            "nginx 4711 [000] 99999999999999999999.000000: 1 x:",
            "nginx 4711 [000] 18446744073.999999999: 1 x:",
            "nginx 4711 [000] 1.0000000000: 1 x:",
            "nginx 99999999 [000] 1.000000: 1 x:",
            "[000] 1.000000:",
            "",
        ] {
            assert_eq!(head(bad), None, "{bad}");
        }
    }

    /// The events of the three levels by name and raw, and what is none of them.
    #[test]
    fn events_have_levels() {
        assert_eq!(level("core_power.lvl1_turbo_license:"), Some(1));
        assert_eq!(level("CORE_POWER.LVL2_TURBO_LICENSE:uk:"), Some(2));
        assert_eq!(level("r728:"), Some(0));
        assert_eq!(level("r2028:u:"), Some(2));
        assert_eq!(level("cpu/event=0x28,umask=0x07/:"), Some(0));
        assert_eq!(level("cpu/event=0x28,period=0x30d43,umask=0x18/u:"), Some(1));
        assert_eq!(level("cpu/config=0x2028/:"), Some(2));
        assert_eq!(level("cpu/core_power.lvl1_turbo_license/:"), Some(1));
        for other in [
            "core_power.throttle:",
            "core_power.lvl3_turbo_license:",
            "r4028:",
            "cycles:",
            "x",
            "cpu/event=0x28/:",
            "cpu/event=0x28,umask=0x40/:",
            "cpu/event=0x28,umask=0xffffffffffffffff/:",
            "cpu/:",
            "msr/event=0x28,umask=0x18/:",
        ] {
            assert_eq!(level(other), None, "{other}");
        }
        assert_eq!(what(" r1828:  55d0"), Happened::WithoutPeriod);
        assert_eq!(what(" PERF_RECORD_LOST lost 5"), Happened::Lost { events: 5 });
        assert_eq!(what(" PERF_RECORD_LOST lost"), Happened::Other);
    }
}
