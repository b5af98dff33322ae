// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recordings of nginx in tests/data/traces (docs/experiments/nginx-trace.md): replayed by the
//! commands that a user would type, and by the papers' experiments.

use papers::published::{Paper, Use};
use serde_json::Value;

use crate::turbolane;

/// What a command prints as JSON.
fn json(args: &[&str]) -> Value {
    let output = turbolane().args(args).arg("--json").output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// How much more a server of that recording does than under the hardware's timeout: percent, under
/// the timeout of 180 us and with hints, and how many requests it answered. Cycles are as many
/// times those that the machine would have made in the recorded time.
fn replayed(name: &str, cycles: f64, policies: &str) -> (Vec<f64>, u64) {
    let recording = format!("../../tests/data/traces/{name}.trace");
    let summary = json(&["trace", &recording]);
    assert_eq!((&summary["complete"], &summary["lost_events"]), (&Value::from(true), &0.into()));
    let tasks = summary["tasks"].as_array().unwrap();
    let server = tasks.iter().find(|task| task["name"] == "nginx").unwrap()["tid"].to_string();
    let dir = tempfile::tempdir().unwrap();
    let timeline = dir.path().join("nginx.jsonl");
    let exported = turbolane()
        .args(["trace", &recording, "--task", &server, "--machine", "core-i9-7940x"])
        .args(["--no-turbo", "--hint", "ngx_ssl_recv,ngx_ssl_write", "--timeline"])
        .arg(&timeline)
        .output()
        .unwrap();
    assert!(exported.status.success(), "{exported:?}");
    let scaled = dir.path().join("scaled.jsonl");
    let text = std::fs::read_to_string(timeline).unwrap();
    let lines = text.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        if let Some(of_period) = line["cycles"].as_f64() {
            line["cycles"] = ((of_period * cycles).round() as u64).into();
        }
        line.to_string() + "\n"
    });
    std::fs::write(&scaled, lines.collect::<String>()).unwrap();
    let scaled = scaled.to_str().unwrap();
    let replay = json(&["sim", "--replay", scaled, "--no-turbo", "--dvfs", policies]);
    assert_eq!(replay["recorded"], true);
    let runs = replay["runs"].as_array().unwrap();
    let gains = runs.iter().skip(1).map(|run| run["gain_pct"].as_f64().unwrap()).collect();
    let of = |key: &str| runs[0][key].as_f64().unwrap();
    (gains, (of("work_per_s") * of("time_ns") / 1e9).round() as u64)
}

/// Hints beat the short timeout, and longer requests gain less.
#[test]
fn recorded_requests_gain_by_their_length() {
    const POLICIES: &str = "hardware,fixed:180us,hints";
    let (level_1, requests) = replayed("nginx-gzip1", 1.0, POLICIES);
    let (level_6, fewer_requests) = replayed("nginx-gzip6", 1.0, POLICIES);
    assert!(requests > fewer_requests && fewer_requests > 100, "{requests}, {fewer_requests}");
    for gains in [&level_1, &level_6] {
        assert!(gains[1] > gains[0] && gains[0] > 0.0, "{gains:?}");
    }
    assert!(level_1[0] > level_6[0] && level_1[1] > level_6[1], "{level_1:?}, {level_6:?}");
}

/// The rows that repeat DIM 6.2.2 are what the recording yields by hand: its cycles at 3.69 GHz,
/// and timeouts of 670 and 180 us that pass in the undilated time, so 3.1 / 2.4 as long at the low
/// clock.
#[test]
fn the_papers_rows_replay_the_recording() {
    let policies = "fixed:865416ns,fixed:232500ns,hints";
    let (by_hand, _) = replayed("nginx-gzip6", 3.69 / 3.1, policies);
    let dim = Paper::built_in("DIM").unwrap().unwrap();
    let result = papers::reproduce(&[dim], papers::Effort::MODEL);
    let rows = &result.papers[0].rows;
    for (id, by_hand) in ["dim-recorded-timeout-180", "dim-recorded-hints"].iter().zip(by_hand) {
        let row = rows.iter().find(|row| row.published.id == *id).unwrap();
        let simulated = row.simulated.unwrap();
        // cycles are rounded twice by hand
        assert!((simulated - by_hand).abs() < 1e-2, "{id}: {simulated}, {by_hand} by hand");
        assert_eq!(row.published.purpose, Use::Repeats);
    }
}

/// A recorded server, simulated on the machine that it is taken for, does what it did; and without
/// wide code it does more.
#[test]
fn recorded_servers_are_simulated() {
    let recording = "../../tests/data/traces/nginx-gzip1.trace";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("web.toml");
    let made = turbolane()
        .args(["trace", recording, "--machine", "core-i9-7940x", "--count", "ngx_ssl_write"])
        .args(["--none-scale", "1", "--scenario"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let text = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(text.contains("counted as: call") && text.contains("arrivals: closed"), "{text}");
    let calls = std::fs::read_to_string(&file).unwrap().matches("done = true").count() as f64;
    // Something else had its CPU for a while, which is no part of the scenario.
    let ran_s = json(&["trace", recording])["tasks"][0]["run_ns"].as_f64().unwrap() / 1e9;
    let file = file.to_str().unwrap();
    let simulated = |variant: &[&str]| {
        let sim = json(&[&["sim", file, "--policy", "fair"], variant].concat());
        sim["runs"][0]["loads"][0]["work_per_s"].as_f64().unwrap()
    };
    let (wide, none) = (simulated(&[]), simulated(&["--variant", "none"]));
    let recorded = calls / ran_s;
    assert!((wide / recorded - 1.0).abs() < 0.02, "{wide} per second, recorded were {recorded}");
    assert!(none > wide * 1.05, "{none} without wide code, {wide} with it");
}
