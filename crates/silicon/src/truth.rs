// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of what the machine did: ground truth for everything that software in the guest
//! estimates.
//!
//! Lines of a word and `key=value` pairs, in order of time for each core:
//!
//! ```text
//! machine schema=1 cpu=xeon-gold-6130 cpus=4 threads=1 others=12 seed=1 tsc_khz=2100000
//! unclassified mnemonic=vfoo
//! license t_ns=5000 core=0 phase=throttled level=0 target=2
//! license t_ns=14300 core=0 phase=halted level=0 target=2
//! license t_ns=34300 core=0 phase=steady level=2 target=2
//! order t_ns=40000 core=0 force=0
//! order t_ns=45000 core=0 delay_ns=180000
//! notice t_ns=50000 cpu=0 what=warned
//! turbo t_ns=500000 active=13
//! mark t_ns=600000 value=1
//! cpu t_ns=600000 cpu=0 insns=9 cycles=9 busy_ns=3,0,0 halted_ns=20000 throttled_ns=0 needed_ns=0 wide=0,0,0,9,0
//! package t_ns=600000 energy_uj=75000
//! ```
//!
//! | line | meaning |
//! |---|---|
//! | `unclassified` | a vector mnemonic of the emulator that `data/isa` does not know: it counts as scalar |
//! | `license` | the core is in this phase from here on; `level` is granted, `target` requested |
//! | `order` | software wrote to a register of `dim.rs`: force a change to this level; hold levels for so long (`never`: they never fall, `own`: as the hardware does) |
//! | `notice` | a CPU got notice by `notice.rs`: `warned` before code that asks for more, `ended` when there was none for a while |
//! | `turbo` | the clocks follow this number of active cores from here on |
//! | `mark` | the guest wrote the value to port 0xee |
//! | `cpu` | totals since the start, written at each mark and at the end: `busy_ns` by level, `wide` by class: light-256, heavy-256, light-512, heavy-512, amx. `throttled_ns` is what throttling added to `busy_ns`, `needed_ns` its part at a level above 0 in code that asked for no less |
//! | `package` | energy since the start, by the model of `power.rs`; written with the totals of the CPUs |
//!
//! A core's changes while all its CPUs sleep are written when one wakes up, with the time at which
//! they happened. Nothing here depends on the host: two runs of the same guest give the same bytes.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use cpumodel::{CoreLicense, Phase};

use crate::dim::Order;
use crate::log::CpuTotals;

/// Where the log goes; nowhere if no file was given.
pub(crate) struct Truth {
    out: Option<Box<dyn Write>>,
}

impl Truth {
    pub(crate) fn none() -> Self {
        Truth { out: None }
    }

    pub(crate) fn to_file(path: &Path) -> std::io::Result<Self> {
        Ok(Self::to(Box::new(BufWriter::new(File::create(path)?))))
    }

    pub(crate) fn to(out: Box<dyn Write>) -> Self {
        Truth { out: Some(out) }
    }

    /// A disk that is full ends the log, not the machine.
    fn line(&mut self, text: std::fmt::Arguments) {
        let Some(out) = &mut self.out else { return };
        if let Err(error) = writeln!(out, "{text}") {
            eprintln!("silicon: the log ends here: {error}");
            self.out = None;
        }
    }

    pub(crate) fn machine(&mut self, text: &str) {
        self.line(format_args!("machine schema=1 {text}"));
    }

    pub(crate) fn unclassified(&mut self, mnemonic: &str) {
        self.line(format_args!("unclassified mnemonic={mnemonic}"));
    }

    pub(crate) fn license(&mut self, t_ns: u64, core: usize, license: &CoreLicense) {
        let phase = match license.phase() {
            Phase::Steady => "steady",
            Phase::Throttled => "throttled",
            Phase::Halted => "halted",
        };
        let (level, target) = (license.level(), license.target());
        self.line(format_args!(
            "license t_ns={t_ns} core={core} phase={phase} level={level} target={target}"
        ));
    }

    pub(crate) fn order(&mut self, t_ns: u64, core: usize, order: Order) {
        let what = match order {
            Order::Force(to) => format!("force={to}"),
            Order::Hold(None) => "delay_ns=own".to_owned(),
            Order::Hold(Some(u64::MAX)) => "delay_ns=never".to_owned(),
            Order::Hold(Some(delay_ns)) => format!("delay_ns={delay_ns}"),
        };
        self.line(format_args!("order t_ns={t_ns} core={core} {what}"));
    }

    pub(crate) fn notice(&mut self, t_ns: u64, cpu: usize, what: &str) {
        self.line(format_args!("notice t_ns={t_ns} cpu={cpu} what={what}"));
    }

    pub(crate) fn turbo(&mut self, t_ns: u64, active: usize) {
        self.line(format_args!("turbo t_ns={t_ns} active={active}"));
    }

    pub(crate) fn mark(&mut self, t_ns: u64, value: u32) {
        self.line(format_args!("mark t_ns={t_ns} value={value}"));
    }

    pub(crate) fn cpu(&mut self, t_ns: u64, cpu: usize, totals: &CpuTotals) {
        let list =
            |values: &[u64]| values.iter().map(u64::to_string).collect::<Vec<String>>().join(",");
        self.line(format_args!(
            "cpu t_ns={t_ns} cpu={cpu} insns={} cycles={} busy_ns={} halted_ns={} throttled_ns={} needed_ns={} wide={}",
            totals.insns,
            totals.cycles,
            list(&totals.busy_ns),
            totals.halted_ns,
            totals.throttled_ns,
            totals.needed_ns,
            list(&totals.wide)
        ));
    }

    pub(crate) fn package(&mut self, t_ns: u64, energy_uj: u64) {
        self.line(format_args!("package t_ns={t_ns} energy_uj={energy_uj}"));
    }

    pub(crate) fn flush(&mut self) {
        if let Some(out) = &mut self.out
            && let Err(error) = out.flush()
        {
            eprintln!("silicon: the log cannot be written: {error}");
            self.out = None;
        }
    }
}
