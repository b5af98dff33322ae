// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics of a run, and what dist/ makes of them: every metric that the dashboard and the alerts
//! use exists, and Prometheus's own promtool accepts metrics, rules and what the rules do. Its
//! tests are ignored without the stage `./x test metrics`, which fetches it and sets PROMTOOL.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use report::lane::{CpuTimes, LaneStats, LaneStatus};
use report::metrics::{Format, Scrape};
use report::stats::Statistics;
use serde_json::Value;

use crate::live::{PATIENCE, affinity_run, lane, send, text};
use crate::{root, turbolane};

/// A run that knows every statistic.
fn complete() -> Scrape {
    let keys = LaneStats::ABOUT.iter().map(|about| (about.key.to_string(), Value::from(1)));
    let stats = serde_json::from_value(Value::Object(keys.collect())).unwrap();
    let cpu =
        CpuTimes { cpu: 0, license_level: 2, wide_run_ns: 1, scalar_run_ns: 2, default_run_ns: 3 };
    let status = LaneStatus {
        pid: 1,
        mode: "scx".into(),
        uptime_ns: 1,
        wide_cpus: "0".into(),
        scalar_cpus: "1".into(),
        standby: None,
        pause_left_ns: None,
        marks: vec![],
        lost_marks: Vec::new(),
        scope: Vec::new(),
        cpus: vec![cpu],
    };
    Scrape { version: "1".into(), status, stats }
}

/// The names after `# TYPE` in Prometheus's format, which are those of the samples.
fn names(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split(' ').next()).map(str::to_string).collect()
}

/// Words of a text that look like our metrics.
fn used(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("turbolane_"));
    words.map(str::to_string).collect()
}

const RULES: &str = "dist/prometheus/turbolane.rules.yml";
const DASHBOARD: &str = "dist/grafana/turbolane.json";

/// Each statistic is a metric; dashboard and alerts use only metrics that exist.
#[test]
fn what_is_used_exists() {
    let names = names(&complete().text(Format::Prometheus));
    // Those of a run and of its CPUs are no statistics.
    assert_eq!(names.len(), LaneStats::ABOUT.len() + 3);
    for file in [RULES, DASHBOARD] {
        let used = used(&fs::read_to_string(root().join(file)).unwrap());
        assert!(used.len() > 4, "{file}: {used:?}");
        let unknown: Vec<_> = used.difference(&names).collect();
        assert!(unknown.is_empty(), "{file} uses metrics that do not exist: {unknown:?}");
    }
}

/// The dashboard is JSON; each panel has its own number and place, a title, a unit and a query of
/// the chosen machine.
#[test]
fn the_dashboard_is_complete() {
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(root().join(DASHBOARD)).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        assert!(places.insert(panel["gridPos"].to_string()), "{panel}");
        assert!(!panel["title"].as_str().unwrap().is_empty());
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{panel}");
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            assert!(query.contains(r#"{instance=~"$instance""#), "{query}");
        }
    }
    assert!(panels.len() > 5);
}

/// A run that writes its metrics to `path`, when the first file is there.
fn measured_run(path: &Path) -> (Child, String) {
    let mut command = affinity_run();
    command.arg("--metrics").arg(path).stdin(Stdio::null()).stderr(Stdio::null());
    let mut run = command.spawn().unwrap();
    let begun = Instant::now();
    loop {
        if let Ok(text) = fs::read_to_string(path) {
            return (run, text);
        }
        assert!(run.try_wait().unwrap().is_none(), "the run ended at once");
        assert!(begun.elapsed() < PATIENCE, "the run writes no metrics");
        sleep(Duration::from_millis(20));
    }
}

/// The file has what `stats` says, in the other format too, and is gone with the run. The folder
/// has no other file.
#[test]
fn metrics_last_as_long_as_the_run() {
    let Some(_lane) = lane() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("turbolane.prom");
    let (mut run, written) = measured_run(&path);
    assert!(written.contains(",mode=\"affinity\"} 1\n"), "{written}");
    assert!(names(&written).contains("turbolane_interval_seconds_total"), "{written}");
    // A run that is refused leaves the file of the one that holds the lane.
    let refused = affinity_run().arg("--metrics").arg(&path).args(["--", "true"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(path.exists());
    let asked = turbolane().args(["stats", "--openmetrics"]).output().unwrap();
    let asked = text(&asked.stdout);
    assert!(asked.ends_with("# EOF\n"), "{asked}");
    let samples = |text: &str| -> BTreeSet<String> {
        text.lines().filter_map(|line| line.split([' ', '{']).next()).map(str::to_string).collect()
    };
    assert_eq!(samples(&written), samples(&asked));
    send(&run, "-TERM");
    assert!(run.wait().unwrap().success());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A file of someone else is refused before the run begins, and kept; a name that nothing reads is
/// noted.
#[test]
fn other_files_fail() {
    let Some(_lane) = lane() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("passwd");
    fs::write(&path, "root:x:0:0:root:/root:/bin/bash\n").unwrap();
    let run = |path: &Path| {
        affinity_run().arg("--metrics").arg(path).args(["--", "echo", "begun"]).output().unwrap()
    };
    let refused = run(&path);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(refused.stdout.is_empty() && text(&refused.stderr).contains("did not write"));
    assert!(fs::read_to_string(&path).unwrap().starts_with("root:"));
    let noted = run(&folder.path().join("metrics.txt"));
    assert!(noted.status.success(), "{noted:?}");
    assert!(text(&noted.stderr).contains("reads only files whose names end in .prom"));
}

fn promtool(arguments: &[&str], input: Stdio) {
    let program = PathBuf::from(std::env::var_os("PROMTOOL").expect("run it by ./x test metrics"));
    let output = Command::new(program).args(arguments).stdin(input).output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
}

/// Prometheus finds nothing wrong with the names, types and help of all metrics, nor with those of
/// a real run.
#[test]
#[ignore = "needs promtool: ./x test metrics"]
fn promtool_accepts_the_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let all = folder.path().join("all.prom");
    fs::write(&all, complete().text(Format::Prometheus)).unwrap();
    let check = |path: &Path| promtool(&["check", "metrics"], File::open(path).unwrap().into());
    check(&all);
    let Some(_lane) = lane() else { return };
    let path = folder.path().join("turbolane.prom");
    let (mut run, _) = measured_run(&path);
    check(&path);
    send(&run, "-TERM");
    assert!(run.wait().unwrap().success());
}

/// The alerts are valid, and fire for the series of tests/data/metrics as written there.
#[test]
#[ignore = "needs promtool: ./x test metrics"]
fn promtool_accepts_the_alerts() {
    let path = |file: &str| root().join(file).display().to_string();
    promtool(&["check", "rules", &path(RULES)], Stdio::null());
    promtool(&["test", "rules", &path("tests/data/metrics/alerts.test.yml")], Stdio::null());
}
