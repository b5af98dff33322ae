// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run's statistics as metrics of Prometheus.
//!
//! **Problem.** Operators watch a fleet in Prometheus, where a metric has a name with its base
//! unit, a type and a help text. A second list of the statistics would soon disagree with the
//! first.
//!
//! **Idea.** Metrics derive from the definitions in [`crate::lane`]. The prefix is `turbolane`, and
//! the key becomes the name by its end and kind, as Prometheus's guide on names asks:
//!
//! | key | metric |
//! |---|---|
//! | counter `wide_run_ns` | `turbolane_wide_run_seconds_total`, in seconds |
//! | counter `migrations` | `turbolane_migrations_total` |
//! | gauge `wide_cpus` | `turbolane_wide_cpus` |
//! | gauge `winnable_permille` | `turbolane_winnable_ratio`, from 0 to 1 |
//!
//! Added are `turbolane_run_info` (version and mode as labels) and, for each CPU, its class and its
//! CPU time by type of task. A value that is unknown is left out: 0 would be a claim.
//!
//! Two formats: Prometheus's text format 0.0.4, which node_exporter's textfile collector reads, and
//! OpenMetrics, where a counter's type and help have the name without `_total`, so that the former
//! would take it for another metric.
//!
//! **Limits.** Labels by CPU give four series for each CPU. Tasks are not exported: their number
//! has no bound.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::lane::{CpuTimes, LaneStats, LaneStatus};
use crate::stats::{Kind, Statistic, Statistics};

/// First part of each name.
const PREFIX: &str = "turbolane";

const NS_PER_S: f64 = 1e9;

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus's text format, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// What a run says at one moment.
#[derive(Clone, Debug)]
pub struct Scrape {
    /// Version of the program that runs.
    pub version: String,
    /// Its state.
    pub status: LaneStatus,
    /// Its statistics since its start.
    pub stats: LaneStats,
}

impl Scrape {
    /// All metrics as text.
    pub fn text(&self, format: Format) -> String {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(self.clone()));
        let mut written = String::new();
        let encode = match format {
            Format::Prometheus => prometheus_text::encode,
            Format::OpenMetrics => text::encode,
        };
        encode(&mut written, &registry).expect("a String takes any text");
        written
    }
}

impl Collector for Scrape {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let labels =
            [("version", self.version.as_str()), ("mode", self.status.mode.as_str())].to_vec();
        let help = "The run that holds the lane: always 1";
        Info::new(labels).encode(to.encode_descriptor("run", help, None, MetricType::Info)?)?;
        for (about, value) in LaneStats::ABOUT.iter().zip(self.stats.values()) {
            if let Some(value) = value {
                encode_statistic(about, value, &mut to)?;
            }
        }
        if self.status.cpus.is_empty() { Ok(()) } else { encode_cpus(&self.status.cpus, &mut to) }
    }
}

/// The end of a key that is its unit.
enum KeyUnit {
    Nanoseconds,
    Permille,
    None,
}

/// The key without its unit.
fn split_unit(key: &str) -> (&str, KeyUnit) {
    if let Some(name) = key.strip_suffix("_ns") {
        return (name, KeyUnit::Nanoseconds);
    }
    match key.strip_suffix("_permille") {
        Some(name) => (name, KeyUnit::Permille),
        None => (key, KeyUnit::None),
    }
}

fn encode_statistic(about: &Statistic, value: u64, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let (name, key_unit) = split_unit(about.key);
    let (unit, scaled) = match key_unit {
        KeyUnit::Nanoseconds => (Some(Unit::Seconds), Some(value as f64 / NS_PER_S)),
        KeyUnit::Permille => (Some(Unit::Other("ratio".into())), Some(value as f64 / 1e3)),
        KeyUnit::None => (None, None),
    };
    let metric: Box<dyn EncodeMetric> = match (about.kind, scaled) {
        (Kind::Counter, Some(scaled)) => Box::new(ConstCounter::new(scaled)),
        (Kind::Counter, None) => Box::new(ConstCounter::new(value)),
        (Kind::Gauge, Some(scaled)) => Box::new(ConstGauge::new(scaled)),
        (Kind::Gauge, None) => Box::new(ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))),
    };
    let help = sentence(about.about);
    metric.encode(to.encode_descriptor(name, &help, unit.as_ref(), metric.metric_type())?)
}

/// A meaning begins in lower case, since it is a cell of a table; a help text is a sentence.
fn sentence(about: &str) -> String {
    let mut rest = about.chars();
    rest.next().map_or(String::new(), |first| first.to_uppercase().chain(rest).collect())
}

fn encode_cpus(cpus: &[CpuTimes], to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Highest licence level that may run on the CPU; 0 is a scalar CPU";
    let mut levels = to.encode_descriptor("cpu_license_level", help, None, MetricType::Gauge)?;
    for cpu in cpus {
        let labels = [("cpu", cpu.cpu.to_string())];
        ConstGauge::new(i64::from(cpu.license_level)).encode(levels.encode_family(&labels)?)?;
    }
    let help = "CPU time of the CPU by type of task";
    let unit = Unit::Seconds;
    let mut times = to.encode_descriptor("cpu_run", help, Some(&unit), MetricType::Counter)?;
    for cpu in cpus {
        let by_type = [
            ("wide", cpu.wide_run_ns),
            ("scalar", cpu.scalar_run_ns),
            ("default", cpu.default_run_ns),
        ];
        for (task_type, run_ns) in by_type {
            let labels = [("cpu", cpu.cpu.to_string()), ("type", task_type.to_string())];
            let counter = ConstCounter::new(run_ns as f64 / NS_PER_S);
            counter.encode(times.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrape() -> Scrape {
        let status = LaneStatus {
            pid: 7,
            mode: "scx".into(),
            uptime_ns: 1,
            wide_cpus: "3".into(),
            scalar_cpus: "0-2".into(),
            standby: None,
            pause_left_ns: None,
            marks: vec![],
            lost_marks: Vec::new(),
            scope: Vec::new(),
            cpus: vec![CpuTimes {
                cpu: 3,
                license_level: 2,
                wide_run_ns: 1_500_000_000,
                scalar_run_ns: 0,
                default_run_ns: 250_000,
            }],
        };
        let stats = LaneStats {
            interval_ns: Some(60_500_000_000),
            wide_cpus: Some(1),
            winnable_permille: Some(25),
            migrations: Some(12),
            ..LaneStats::default()
        };
        Scrape { version: "1.0".into(), status, stats }
    }

    /// Names have base units, counters end in `_total`, and what is unknown is left out.
    #[test]
    fn names_are_those_of_prometheus() {
        let expected = "\
# HELP turbolane_run_info The run that holds the lane: always 1
# TYPE turbolane_run_info gauge
turbolane_run_info{version=\"1.0\",mode=\"scx\"} 1
# HELP turbolane_interval_seconds_total Time that the counters cover
# TYPE turbolane_interval_seconds_total counter
turbolane_interval_seconds_total 60.5
# HELP turbolane_wide_cpus Wide CPUs
# TYPE turbolane_wide_cpus gauge
turbolane_wide_cpus 1
# HELP turbolane_winnable_ratio Most CPU time that separating wide code could save, when last estimated
# TYPE turbolane_winnable_ratio gauge
turbolane_winnable_ratio 0.025
# HELP turbolane_migrations_total Tasks that started on a different CPU from the one they last ran on
# TYPE turbolane_migrations_total counter
turbolane_migrations_total 12
# HELP turbolane_cpu_license_level Highest licence level that may run on the CPU; 0 is a scalar CPU
# TYPE turbolane_cpu_license_level gauge
turbolane_cpu_license_level{cpu=\"3\"} 2
# HELP turbolane_cpu_run_seconds_total CPU time of the CPU by type of task
# TYPE turbolane_cpu_run_seconds_total counter
turbolane_cpu_run_seconds_total{cpu=\"3\",type=\"wide\"} 1.5
turbolane_cpu_run_seconds_total{cpu=\"3\",type=\"scalar\"} 0.0
turbolane_cpu_run_seconds_total{cpu=\"3\",type=\"default\"} 0.00025
";
        assert_eq!(scrape().text(Format::Prometheus), expected);
    }

    /// OpenMetrics names the family without `_total`, states the unit and marks the end.
    #[test]
    fn openmetrics_has_units_and_an_end() {
        let text = scrape().text(Format::OpenMetrics);
        for line in [
            "# TYPE turbolane_interval_seconds counter",
            "# UNIT turbolane_interval_seconds seconds",
            "turbolane_interval_seconds_total 60.5",
            "# TYPE turbolane_run info",
            "# UNIT turbolane_winnable_ratio ratio",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
        assert!(text.ends_with("\n# EOF\n"));
    }
}
