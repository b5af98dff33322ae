// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recordings of nginx in tests/data/traces (docs/experiments/nginx-trace.md): replayed by the commands that
//! a user would type, and by `turbolane reproduce`.

use serde_json::Value;

use crate::turbolane;

/// What a command prints as JSON.
fn json(args: &[&str]) -> Value {
    let output = turbolane().args(args).arg("--json").output().unwrap();
    // 1: a ranking of a paper does not hold
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{args:?}: {told}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// How much more a server of that recording does than under the hardware's timeout: percent, under the timeout
/// of 180 us and with hints, and how many requests it answered.
fn replayed(name: &str) -> (Vec<f64>, u64) {
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
    let policies = "hardware,fixed:180us,hints";
    let timeline = timeline.to_str().unwrap();
    let replay = json(&["sim", "--replay", timeline, "--no-turbo", "--dvfs", policies]);
    assert_eq!(replay["recorded"], true);
    let runs = replay["runs"].as_array().unwrap();
    let gains = runs.iter().skip(1).map(|run| run["gain_pct"].as_f64().unwrap()).collect();
    let of = |key: &str| runs[0][key].as_f64().unwrap();
    (gains, (of("work_per_s") * of("time_ns") / 1e9).round() as u64)
}

/// The rows that repeat DIM 6.2.2 are what the recordings yield: exported and replayed by hand, the one of
/// nginx's default is the row, that of the other level the experiment that explains its miss. In both, hints beat
/// the short timeout, and the longer requests gain less.
#[test]
fn reproduce_replays_the_recordings() {
    let (default, requests) = replayed("nginx-gzip1");
    let (level_6, fewer_requests) = replayed("nginx-gzip6");
    assert!(requests > fewer_requests && fewer_requests > 100, "{requests}, {fewer_requests}");
    for gains in [&default, &level_6] {
        assert!(gains[1] > gains[0] && gains[0] > 0.0, "{gains:?}");
    }
    let document = json(&["reproduce", "DIM"]);
    let rows = document["papers"][0]["rows"].as_array().unwrap();
    for (at, id) in ["dim-recorded-timeout-180", "dim-recorded-hints"].iter().enumerate() {
        let row = rows.iter().find(|row| row["published"]["id"] == *id).unwrap();
        assert!(default[at] > level_6[at], "{default:?}, {level_6:?}");
        let near = |ours: &Value, gain: f64| {
            let ours = ours.as_f64().unwrap();
            assert!((ours - gain).abs() < 1e-6, "{id}: {ours}, {gain} by hand");
        };
        near(&row["simulated"], default[at]);
        near(&row["what_if"]["simulated"][0], level_6[at]);
        assert_eq!(row["published"]["use"], "repeats");
    }
}
