// SPDX-License-Identifier: MIT OR Apache-2.0
//! The alternative to the lane: the same load with narrower code instead of its wide code.

use serde::{Deserialize, Serialize};

/// How it compares with the lane, at each simulated length of wide sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ThanLane {
    /// More is gained, however many cycles narrower code needs within the range.
    Better,
    /// Less is gained, however few it needs.
    Worse,
    /// It depends on that, or on the length of sections.
    Undecided,
}

/// What would be gained if the wide code were switched off instead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Narrower {
    /// What is left out: "AVX-512", "wide registers".
    pub without: String,
    /// The files with the code, most samples first.
    pub files: Vec<String>,
    /// Gain: the mean of all simulations.
    pub gain_pct: f64,
    /// The lowest of them.
    pub least_pct: f64,
    /// The highest of them.
    pub most_pct: f64,
    /// Cycles of the narrower code over those of the wide code, the fewest that were simulated.
    pub least_cycles_ratio: f64,
    /// The most.
    pub most_cycles_ratio: f64,
    /// How that range is known.
    pub basis: String,
    /// Licence levels that the narrower code was simulated with.
    pub license_levels: Vec<u8>,
    /// Simulations that it is made of.
    pub runs: u32,
    /// Compared with the lane.
    pub than_lane: ThanLane,
    /// Environment variables that switch the wide code off; empty if none are known.
    pub switch: Vec<String>,
}

impl Narrower {
    /// What it is, such as "without AVX-512 in libcrypto.so.3".
    pub fn subject(&self) -> String {
        let names = self.files.iter().map(|file| file.rsplit('/').next().unwrap_or(file));
        let mut names: Vec<&str> = names.collect();
        let more = names.len().saturating_sub(2);
        names.truncate(2);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("without {} in {}{more}", self.without, names.join(", "))
    }

    /// The gain with its range.
    pub fn gain(&self, figure: &str) -> String {
        let &Narrower { gain_pct, least_pct, most_pct, .. } = self;
        format!("{figure} {gain_pct:+.1} % ({least_pct:+.1}..{most_pct:+.1})")
    }

    pub(super) fn text(&self, figure: &str) -> String {
        let levels: Vec<String> = self.license_levels.iter().map(u8::to_string).collect();
        let than_lane = match self.than_lane {
            ThanLane::Better => "more than with the lane, throughout this range",
            ThanLane::Worse => "less than with the lane, throughout this range",
            ThanLane::Undecided => "the simulations do not decide between it and the lane",
        };
        let switch = match self.switch.is_empty() {
            true => "; no setting is known that switches it off".to_owned(),
            false => format!("; switched off by {}", self.switch.join(" ")),
        };
        format!(
            "{}: {} if narrower code (level {}) needs {:.2}..{:.2} times the cycles ({}): {than_lane}{switch} [simulated, {} runs]",
            self.subject(),
            self.gain(figure),
            levels.join(" or "),
            self.least_cycles_ratio,
            self.most_cycles_ratio,
            self.basis,
            self.runs
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[&str], than_lane: ThanLane) -> Narrower {
        Narrower {
            without: "AVX-512".into(),
            files: files.iter().map(|file| (*file).to_owned()).collect(),
            gain_pct: 5.9,
            least_pct: 2.0,
            most_pct: 9.0,
            least_cycles_ratio: 1.0,
            most_cycles_ratio: 2.0,
            basis: "not known".into(),
            license_levels: vec![0, 1],
            runs: 8,
            than_lane,
            switch: vec![],
        }
    }

    /// The line has what was left out, the gain with its range, and under which assumption.
    #[test]
    fn assumptions_are_in_the_line() {
        let text = found(&["/lib/libcrypto.so.3"], ThanLane::Undecided).text("throughput");
        let says = "without AVX-512 in libcrypto.so.3: throughput +5.9 % (+2.0..+9.0) if narrower \
            code (level 0 or 1) needs 1.00..2.00 times the cycles (not known): the simulations do \
            not decide";
        assert!(text.starts_with(says), "{text}");
        assert!(text.contains("no setting is known"), "{text}");
    }

    /// More than two files are counted.
    #[test]
    fn many_files_are_shortened() {
        let subject = found(&["/a", "/b", "/c", "/d"], ThanLane::Worse).subject();
        assert_eq!(subject, "without AVX-512 in a, b and 2 more");
    }
}
