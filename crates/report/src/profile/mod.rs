// SPDX-License-Identifier: MIT OR Apache-2.0
//! An overhead profile: how much of the time at a reduced licence level was needed.

mod html;

use serde::{Deserialize, Serialize};

use crate::SCHEMA;
use crate::text::{Align, Table, wrap};

/// What `turbolane profile` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProfileReport {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// What was profiled: a scenario's name, or a process.
    pub load: String,
    /// Its variant; `null` if it ran as in its file.
    pub variant: Option<String>,
    /// The machine.
    pub machine: String,
    /// The scheduler; of a process, that of its machine.
    pub policy: String,
    /// The seed; 0 for a process.
    pub seed: u64,
    /// Samples taken, one of all cores each.
    pub samples: u64,
    /// Mean time between two of them.
    pub interval_ns: u64,
    /// How long the load was paused for each.
    pub pause_ns: u64,
    /// How long was watched for a level to come back.
    pub watch_ns: u64,
    /// Part of the cores' busy time at a reduced level; `null` if no core was busy.
    pub reduced_pct: Option<f64>,
    /// Of that time, over all levels; `null` where nothing was seen.
    pub avoidable_pct: Option<f64>,
    /// By reduced level, lowest first.
    pub levels: Vec<LevelProfile>,
    /// What was so, where that is known: in a simulation.
    pub truth: Option<ProfileTruth>,
}

/// Time at one level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LevelProfile {
    /// The level.
    pub license_level: u32,
    /// Part of the cores' busy time.
    pub busy_pct: f64,
    /// Of that, needed: the level came back at once.
    pub needed_pct: Option<f64>,
    /// Of that, avoidable.
    pub avoidable_pct: Option<f64>,
    /// Ends of the interval that holds the true avoidable part in 95 of 100 cases.
    pub avoidable_low_pct: Option<f64>,
    /// See `avoidable_low_pct`.
    pub avoidable_high_pct: Option<f64>,
    /// Samples of it.
    pub seen: u64,
    /// Samples that could not be judged: the level stayed through the pause.
    pub held: u64,
}

/// Ground truth, shown with a profile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProfileTruth {
    /// As [`ProfileReport::reduced_pct`].
    pub reduced_pct: Option<f64>,
    /// As [`ProfileReport::avoidable_pct`].
    pub avoidable_pct: Option<f64>,
}

fn pct(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.1} %"))
}

impl ProfileReport {
    /// A report of this version.
    pub const SCHEMA: u32 = SCHEMA;

    /// As text of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let variant = self.variant.as_ref().map_or(String::new(), |name| format!(" ({name})"));
        let mut text =
            format!("{}{variant} on {} under {}\n", self.load, self.machine, self.policy);
        let facts = format!(
            "{} samples, one in {} of load; each with a pause of {} and an observation of {}",
            self.samples,
            crate::text::duration(self.interval_ns),
            crate::text::duration(self.pause_ns),
            crate::text::duration(self.watch_ns)
        );
        text += &wrap("  ", &facts, width);
        let says = match (self.reduced_pct, self.avoidable_pct) {
            (None, _) => "no core was busy".to_string(),
            (Some(_), None) => "no core was at a reduced level".to_string(),
            (Some(reduced), Some(avoidable)) => format!(
                "{reduced:.1} % of busy time at a reduced level; {avoidable:.1} % of that was \
                 avoidable: {:.1} % of busy time",
                reduced * avoidable / 100.0
            ),
        };
        text += &wrap("  ", &says, width);
        if self.levels.iter().any(|level| level.seen > 0) {
            text.push('\n');
            text += &self.table().text(width);
        }
        if let Some(truth) = &self.truth {
            let avoidable = match truth.avoidable_pct {
                Some(avoidable) => format!(", {avoidable:.1} % of that avoidable"),
                None => String::new(),
            };
            let says = format!(
                "Ground truth of the simulation: {} of busy time at a reduced level{avoidable}.",
                pct(truth.reduced_pct)
            );
            text.push('\n');
            text += &wrap("", &says, width);
        }
        text
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&[
            ("LEVEL", Align::Right),
            ("OF BUSY TIME", Align::Right),
            ("NEEDED", Align::Right),
            ("AVOIDABLE", Align::Right),
            ("95 % INTERVAL", Align::Right),
            ("SAMPLES", Align::Right),
            ("NOT JUDGED", Align::Right),
        ]);
        for level in self.levels.iter().filter(|level| level.seen > 0) {
            let interval = match (level.avoidable_low_pct, level.avoidable_high_pct) {
                (Some(low), Some(high)) => format!("{low:.1} to {high:.1} %"),
                _ => "-".into(),
            };
            table.row(vec![
                level.license_level.to_string(),
                pct(Some(level.busy_pct)),
                pct(level.needed_pct),
                pct(level.avoidable_pct),
                interval,
                level.seen.to_string(),
                level.held.to_string(),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn report() -> ProfileReport {
        ProfileReport {
            schema: ProfileReport::SCHEMA,
            load: "web".into(),
            variant: Some("avx512".into()),
            machine: "xeon".into(),
            policy: "fair".into(),
            seed: 1,
            samples: 1_000,
            interval_ns: 2_000_000,
            pause_ns: 700_000,
            watch_ns: 20_000,
            reduced_pct: Some(40.0),
            avoidable_pct: Some(75.0),
            levels: vec![LevelProfile {
                license_level: 2,
                busy_pct: 40.0,
                needed_pct: Some(25.0),
                avoidable_pct: Some(75.0),
                avoidable_low_pct: Some(70.2),
                avoidable_high_pct: Some(79.3),
                seen: 400,
                held: 0,
            }],
            truth: Some(ProfileTruth { reduced_pct: Some(41.0), avoidable_pct: Some(76.0) }),
        }
    }

    /// The text says what part of all busy time could be had.
    #[test]
    fn the_text_says_what_is_to_be_had() {
        let text = report().text(100);
        assert!(text.contains("avoidable: 30.0 % of busy time"), "{text}");
        assert!(text.contains("70.2 to 79.3 %"), "{text}");
        assert!(text.contains("76.0 % of that avoidable"), "{text}");
    }

    /// Nothing seen is said, not printed as zero.
    #[test]
    fn nothing_seen_is_said() {
        let none = ProfileReport { avoidable_pct: None, levels: vec![], truth: None, ..report() };
        assert!(none.text(100).contains("no core was at a reduced level"));
        assert!(ProfileReport { reduced_pct: None, ..none }.text(100).contains("was busy"));
    }

    /// The document survives a round trip.
    #[test]
    fn json_round_trip() {
        let line = crate::json_line(&report());
        assert!(line.starts_with("{\"schema\":1,"), "{line}");
        assert_eq!(serde_json::from_str::<ProfileReport>(&line).unwrap(), report());
    }
}
