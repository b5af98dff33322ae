// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the log that `truth.rs` writes.

use std::collections::HashMap;

/// What the machine wrote down.
#[derive(Debug, Default)]
pub struct Log {
    /// Phases and levels of all cores; in order of time for each core.
    pub licenses: Vec<License>,
    /// Changes of the number of active cores, in order of time.
    pub turbos: Vec<Turbo>,
    /// The guest's marks, in order of time.
    pub marks: Vec<Mark>,
}

/// A core changes its phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct License {
    /// When, ns since the start.
    pub t_ns: u64,
    /// Which core.
    pub core: usize,
    /// `steady`, `throttled` or `halted`.
    pub phase: String,
    /// The level that is granted.
    pub level: u8,
}

/// The clocks follow another number of active cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turbo {
    /// When, ns since the start.
    pub t_ns: u64,
    /// Active cores of the package.
    pub active: usize,
}

/// A moment that the guest marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// When, ns since the start.
    pub t_ns: u64,
    /// What the guest wrote.
    pub value: u32,
    /// Totals of each CPU at that moment.
    pub cpus: Vec<CpuTotals>,
    /// Energy of the package until then, uJ.
    pub energy_uj: u64,
}

/// Totals of a CPU since the start, or between two marks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuTotals {
    /// Instructions that it executed.
    pub insns: u64,
    /// Cycles of its clock in which it executed.
    pub cycles: u64,
    /// Time in which it executed, by level, ns.
    pub busy_ns: Vec<u64>,
    /// Time in which its core was halted for a change of the clock, ns.
    pub halted_ns: u64,
    /// What throttling added to `busy_ns`, ns.
    pub throttled_ns: u64,
    /// Of `busy_ns` at levels above 0: time in code of this CPU that asked for no less, ns.
    pub needed_ns: u64,
    /// Instructions by class: light-256, heavy-256, light-512, heavy-512, amx.
    pub wide: Vec<u64>,
}

impl CpuTotals {
    /// What came since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &CpuTotals) -> CpuTotals {
        let lists = |now: &[u64], then: &[u64]| {
            now.iter().zip(then).map(|(now, then)| now - then).collect::<Vec<u64>>()
        };
        CpuTotals {
            insns: self.insns - earlier.insns,
            cycles: self.cycles - earlier.cycles,
            busy_ns: lists(&self.busy_ns, &earlier.busy_ns),
            halted_ns: self.halted_ns - earlier.halted_ns,
            throttled_ns: self.throttled_ns - earlier.throttled_ns,
            needed_ns: self.needed_ns - earlier.needed_ns,
            wide: lists(&self.wide, &earlier.wide),
        }
    }
}

/// A line that is none of the log's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the machine's log cannot be read: {text}")]
pub struct LogError {
    /// Its number, from 1.
    pub line: usize,
    /// What it says.
    pub text: String,
}

impl Log {
    /// Reads a log's text. Lines of kinds that are not kept here are passed over.
    ///
    /// # Errors
    /// A line of a kept kind lacks a value, or has one that is no number.
    pub fn parse(text: &str) -> Result<Self, LogError> {
        let mut log = Log::default();
        for (at, line) in text.lines().enumerate() {
            let read = log.read(line);
            read.ok_or_else(|| LogError { line: at + 1, text: line.to_owned() })?;
        }
        Ok(log)
    }

    fn read(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let fields: HashMap<&str, &str> =
            rest.split(' ').filter_map(|field| field.split_once('=')).collect();
        let number = |key: &str| fields.get(key)?.parse::<u64>().ok();
        match kind {
            "license" => self.licenses.push(License {
                t_ns: number("t_ns")?,
                core: number("core")? as usize,
                phase: (*fields.get("phase")?).to_owned(),
                level: u8::try_from(number("level")?).ok()?,
            }),
            "turbo" => self
                .turbos
                .push(Turbo { t_ns: number("t_ns")?, active: number("active")? as usize }),
            "mark" => self.marks.push(Mark {
                t_ns: number("t_ns")?,
                value: u32::try_from(number("value")?).ok()?,
                cpus: Vec::new(),
                energy_uj: 0,
            }),
            "cpu" => self.read_cpu(&fields, number("t_ns")?)?,
            "package" => {
                let (t_ns, energy_uj) = (number("t_ns")?, number("energy_uj")?);
                if let Some(mark) = self.marks.last_mut().filter(|mark| mark.t_ns == t_ns) {
                    mark.energy_uj = energy_uj;
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Totals belong to the mark before them, those at the end to none.
    fn read_cpu(&mut self, fields: &HashMap<&str, &str>, t_ns: u64) -> Option<()> {
        let number = |key: &str| fields.get(key)?.parse::<u64>().ok();
        let list = |key: &str| -> Option<Vec<u64>> {
            fields.get(key)?.split(',').map(|value| value.parse().ok()).collect()
        };
        let totals = CpuTotals {
            insns: number("insns")?,
            cycles: number("cycles")?,
            busy_ns: list("busy_ns")?,
            halted_ns: number("halted_ns")?,
            throttled_ns: number("throttled_ns")?,
            needed_ns: number("needed_ns")?,
            wide: list("wide")?,
        };
        if let Some(mark) = self.marks.last_mut().filter(|mark| mark.t_ns == t_ns) {
            mark.cpus.push(totals);
        }
        Some(())
    }

    /// The first mark with this value.
    #[must_use]
    pub fn mark(&self, value: u32) -> Option<&Mark> {
        self.marks.iter().find(|mark| mark.value == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "machine schema=1 cpu=a cpus=1\n\
        license t_ns=5000 core=0 phase=throttled level=0 target=2\n\
        turbo t_ns=6000 active=13\n\
        mark t_ns=7000 value=1\n\
        cpu t_ns=7000 cpu=0 insns=9 cycles=9 busy_ns=3,0,0 halted_ns=2 throttled_ns=0 needed_ns=0 wide=0,0,0,9,0\n\
        package t_ns=7000 energy_uj=70\n\
        mark t_ns=9000 value=2\n\
        cpu t_ns=9000 cpu=0 insns=19 cycles=29 busy_ns=4,0,5 halted_ns=3 throttled_ns=1 needed_ns=4 wide=0,0,0,9,0\n\
        package t_ns=9000 energy_uj=95\n\
        cpu t_ns=9500 cpu=0 insns=20 cycles=30 busy_ns=4,0,5 halted_ns=3 throttled_ns=1 needed_ns=4 wide=0,0,0,9,0\n";

    #[test]
    fn a_log_is_read() {
        let log = Log::parse(TEXT).unwrap();
        assert_eq!(log.turbos, [Turbo { t_ns: 6000, active: 13 }]);
        assert_eq!((log.licenses[0].phase.as_str(), log.licenses[0].level), ("throttled", 0));
        let (first, second) = (log.mark(1).unwrap(), log.mark(2).unwrap());
        let between = second.cpus[0].since(&first.cpus[0]);
        assert_eq!((between.insns, between.cycles, between.busy_ns), (10, 20, vec![1, 0, 5]));
        assert_eq!((between.throttled_ns, between.needed_ns), (1, 4));
        assert_eq!((first.energy_uj, second.energy_uj), (70, 95));
        assert_eq!((second.cpus.len(), log.mark(3)), (1, None));
    }

    #[test]
    fn a_torn_line_is_named() {
        let error = Log::parse("machine schema=1\nmark t_ns=x value=1\n").unwrap_err();
        assert_eq!(error.line, 2);
    }
}
