// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who executes wide code, by samples: functions, and what runs right after them on the same cores.

mod chains;
mod html;
mod pprof;
mod throttle;

use serde::{Deserialize, Serialize};

use crate::SCHEMA;
use crate::csv;
use crate::text::{Align, Table, wrap};
pub use chains::{CallChains, Chain, Frame};
pub use throttle::{Cause, Limited, ThrottleReasons};

/// Rows of a table in text; JSON has all.
const SHOWN: usize = 20;

/// What was sampled, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SampleReport {
    /// Version of the format.
    pub schema: u32,
    /// How long was sampled.
    pub time_ns: u64,
    /// Why it is shorter than was asked for, such as an interrupt; `null` if it is not.
    #[serde(default)]
    pub partial: Option<String>,
    /// Time between two samples of a CPU.
    pub period_ns: u64,
    /// CPUs that were sampled.
    pub cpus: u32,
    /// All samples, those of idle CPUs too.
    pub samples: u64,
    /// Samples that were lost, for want of memory or time.
    pub lost: u64,
    /// Samples of CPUs that did not idle: shares are shares of these.
    pub busy: u64,
    /// Of these: in the kernel.
    pub kernel: u64,
    /// Of these: in code that could not be looked through, as compilers at run time write it.
    pub unknown: u64,
    /// Least licence level of a function that counts as wide.
    pub least_level: u8,
    /// Samples in functions by the level that they can reach, ascending; levels without samples are
    /// left out.
    pub levels: Vec<SampledLevel>,
    /// Functions with wide code, most samples first.
    pub offenders: Vec<Offender>,
    /// How long after a sample in wide code other code on the same core counts as its victim.
    pub window_ns: u64,
    /// Processes whose other code ran within that time, most samples first.
    pub victims: Vec<Victim>,
    /// How busy the machine was, and with what; what a prediction needs. `null` in samples of older
    /// versions.
    #[serde(default)]
    pub load: Option<SampledLoad>,
    /// What limited the clock; `null` on CPUs without throttle reasons, and where this user may not
    /// read them.
    #[serde(default)]
    pub throttle: Option<ThrottleReasons>,
    /// Processes and files that could not be looked at, each with the reason.
    pub unread: Vec<String>,
}

/// How busy the machine was, and with what. Code is wide here if its level lasts
/// ([`Offender::sustained_level`] above 0).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SampledLoad {
    /// Cores of the machine.
    pub cores: u32,
    /// Packages of the machine.
    pub packages: u32,
    /// Threads that were asked for and seen in wide code.
    pub wide_threads: u32,
    /// Samples of these threads, in whatever code.
    pub wide_threads_busy: u64,
    /// Of these: in wide code.
    pub wide: u64,
    /// All other threads that were seen.
    pub other_threads: u32,
    /// Unbroken runs of samples of a thread in wide code: with `wide`, how long sections are.
    pub runs: u64,
    /// Cycles of all CPUs at licence levels 0, 1, 2, by counters; `null` on CPUs without.
    pub level_cycles: Option<Vec<u64>>,
}

/// Time in functions of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SampledLevel {
    /// Licence level that the functions' instructions can ask for.
    pub license_level: u8,
    /// Samples in them.
    pub samples: u64,
}

/// A function with wide code, in one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Offender {
    /// Its name, or its place in the file.
    pub function: String,
    /// Its file.
    pub file: String,
    /// Offset of its first byte in the file; `null` in samples of older versions.
    #[serde(default)]
    pub file_offset: Option<u64>,
    /// The process's name.
    pub process: String,
    /// Licence level that its most demanding instruction asks for.
    pub license_level: u8,
    /// The same, if heavy instructions count only where they can be dense enough.
    pub sustained_level: u8,
    /// Samples in it.
    pub samples: u64,
}

/// A process with other code on cores that have just run wide code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Victim {
    /// Its name.
    pub process: String,
    /// Samples of it within the window.
    pub samples: u64,
    /// All samples of it in other than wide code.
    pub of: u64,
}

const ABOUT: &str = "A sample in such a function shows that the CPU was in code that can reach the level, not that it executed a wide \
    instruction then. Victims are an estimate: the samples do not show whether the clock was low.";

impl SampleReport {
    /// Version of the format.
    pub const SCHEMA: u32 = SCHEMA;

    /// A report that `turbolane sample --format json` has printed; else what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let report: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match report.schema {
            SCHEMA => Ok(report),
            other => Err(format!("its schema is {other}, this program knows {SCHEMA}")),
        }
    }

    /// Samples in wide code.
    pub fn wide(&self) -> u64 {
        self.levels.iter().map(|level| level.samples).sum()
    }

    fn pct(&self, samples: u64) -> String {
        format!("{:.1} %", 100.0 * samples as f64 / self.busy.max(1) as f64)
    }

    /// As text of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let head = format!(
            "{} samples in {} on {} CPUs, one per {} and CPU; {} of busy CPUs, of which {} in the kernel and {} in unknown \
             code; {} lost",
            self.samples,
            crate::text::duration(self.time_ns),
            self.cpus,
            crate::text::duration(self.period_ns),
            self.busy,
            self.pct(self.kernel),
            self.pct(self.unknown),
            self.lost
        );
        let mut text = wrap("", &head, width);
        if let Some(why) = &self.partial {
            text += &wrap("partial: ", why, width);
        }
        if self.levels.is_empty() {
            let none = format!("No sample in a function of level {} or above.", self.least_level);
            text += &wrap("", &none, width);
        } else {
            text += &self.found(width);
        }
        if let Some(throttle) = &self.throttle {
            text += "\n";
            text += &throttle.text(width);
        }
        for unread in &self.unread {
            text += &wrap("not looked at: ", unread, width);
        }
        text
    }

    fn found(&self, width: usize) -> String {
        let mut text = String::from("\n");
        for level in &self.levels {
            let says = format!("{} of busy time", self.pct(level.samples));
            text += &wrap(&format!("level {}: ", level.license_level), &says, width);
        }
        text += "\n";
        text += &self.table(SHOWN).text(width);
        if self.offenders.len() > SHOWN {
            text += &format!("and {} more; --format json has all\n", self.offenders.len() - SHOWN);
        }
        text += "\n";
        let window = crate::text::duration(self.window_ns);
        if self.victims.is_empty() {
            let none =
                format!("No other code was seen within {window} after it on the same cores.");
            text += &wrap("", &none, width);
        } else {
            text += &self.victims_text(&window, width);
        }
        text + "\n" + &wrap("", ABOUT, width)
    }

    /// The functions with wide code as Markdown.
    pub fn markdown(&self) -> String {
        self.table(self.offenders.len()).markdown()
    }

    /// The same as CSV.
    pub fn csv(&self) -> String {
        csv::table(&self.offenders)
    }

    /// The functions with the most samples.
    fn table(&self, most: usize) -> Table {
        let mut table = Table::new(&[
            ("LEVEL", Align::Right),
            ("LASTING", Align::Right),
            ("OF BUSY TIME", Align::Right),
            ("SAMPLES", Align::Right),
            ("PROCESS", Align::Left),
            ("FUNCTION", Align::Left),
        ]);
        for offender in self.offenders.iter().take(most) {
            table.row(vec![
                offender.license_level.to_string(),
                offender.sustained_level.to_string(),
                self.pct(offender.samples),
                offender.samples.to_string(),
                offender.process.clone(),
                format!("{} in {}", offender.function, offender.file),
            ]);
        }
        table
    }

    fn victims_text(&self, window: &str, width: usize) -> String {
        let mut table = Table::new(&[
            ("OF BUSY TIME", Align::Right),
            ("OF ITS OWN", Align::Right),
            ("VICTIM", Align::Left),
        ]);
        for victim in self.victims.iter().take(SHOWN) {
            let own = 100.0 * victim.samples as f64 / victim.of.max(1) as f64;
            table.row(vec![
                self.pct(victim.samples),
                format!("{own:.1} %"),
                victim.process.clone(),
            ]);
        }
        let head = format!("Other code within {window} after it on the same core:");
        wrap("", &head, width) + &table.text(width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> SampleReport {
        SampleReport {
            schema: SampleReport::SCHEMA,
            time_ns: 10_000_000_000,
            partial: None,
            period_ns: 1_000_000,
            cpus: 2,
            samples: 20_000,
            lost: 0,
            busy: 1_000,
            kernel: 100,
            unknown: 50,
            least_level: 1,
            levels: vec![SampledLevel { license_level: 2, samples: 15 }],
            offenders: vec![Offender {
                function: "poly1305_blocks_avx512".into(),
                file: "/usr/lib/libcrypto.so.3".into(),
                file_offset: Some(0x1000),
                process: "nginx".into(),
                license_level: 2,
                sustained_level: 2,
                samples: 15,
            }],
            window_ns: 1_000_000,
            load: None,
            throttle: None,
            victims: vec![Victim { process: "nginx".into(), samples: 30, of: 300 }],
            unread: vec!["process 7 (sshd): permission denied".into()],
        }
    }

    /// Shares are shares of busy time, and whatever was not looked at is named.
    #[test]
    fn text_has_shares_of_busy_time() {
        let text = report().text(100);
        assert!(text.contains("level 2: 1.5 % of busy time"), "{text}");
        assert!(text.contains("poly1305_blocks_avx512 in /usr/lib/libcrypto.so.3"), "{text}");
        assert!(text.contains("3.0 %      10.0 %  nginx"), "{text}");
        assert!(text.contains("not looked at: process 7 (sshd): permission denied"), "{text}");
    }

    #[test]
    fn nothing_found_is_said() {
        let report =
            SampleReport { levels: vec![], offenders: vec![], victims: vec![], ..report() };
        assert!(report.text(80).contains("No sample in a function of level 1 or above."));
        assert_eq!(report.wide(), 0);
    }

    #[test]
    fn json_round_trips() {
        let line = crate::json_line(&report());
        assert_eq!(serde_json::from_str::<SampleReport>(&line).unwrap(), report());
    }
}
