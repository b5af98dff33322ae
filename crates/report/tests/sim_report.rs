// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulation's report as JSON, as a table and as a trace for Perfetto.

mod common;

use report::sim::SimReport;
use serde_json::Value;

/// The schema number comes first, and a document reads back as it was written.
#[test]
fn json_round_trip() {
    let report = common::sample();
    let line = report::json_line(&report);
    assert!(line.starts_with("{\"schema\":1,"), "{}", &line[..40]);
    assert!(!line.contains('\n'), "one document is one line");
    assert!(serde_json::from_str::<SimReport>(&line).unwrap() == report, "it reads back as it was");
}

/// What is unknown is null, never left out and never 0.
#[test]
fn unknown_is_null() {
    let value: Value = serde_json::from_str(&report::json_line(&common::sample())).unwrap();
    let run = &value["runs"][0];
    assert_eq!(run["total"].get("energy_j"), Some(&Value::Null));
    assert_eq!(run["loads"][1].get("latency"), Some(&Value::Null));
    assert_eq!(run["cpus"][0].get("class"), Some(&Value::Null));
}

/// The page and the text give one name to one figure: the clock and LEVEL>0 are those of a load,
/// and those of all CPUs are called so. `./x test page` reads the cells.
#[test]
fn names_in_page_and_text_mean_the_same() {
    let page = common::sample().html();
    let metric = |name: &str| {
        let at = page.find(&format!("{{ name: \"{name}\"")).unwrap_or_else(|| panic!("no {name}"));
        page[at..].lines().next().unwrap().to_string()
    };
    for (name, scope) in [("Clock", "of this load"), ("Level > 0", "of this load's time")] {
        let line = metric(name);
        assert!(line.contains(scope) && !line.contains("whole: true"), "{line}");
    }
    for name in ["All CPUs: clock", "All CPUs: level > 0"] {
        assert!(metric(name).contains("whole: true"), "{name}");
    }
}

/// Every key that holds a quantity ends in its unit.
#[test]
fn keys_end_in_their_unit() {
    fn walk(value: &Value, key: &str, seen: &mut Vec<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| walk(value, key, seen)),
            Value::Array(list) => list.iter().for_each(|value| walk(value, key, seen)),
            Value::Number(_) => seen.push(key.to_string()),
            _ => {}
        }
    }
    let value: Value = serde_json::from_str(&report::json_line(&common::sample())).unwrap();
    let mut seen = Vec::new();
    walk(&value, "", &mut seen);
    seen.sort();
    seen.dedup();
    // Numbers without a unit: counts, and names of things.
    let plain = [
        "schema", "seed", "count", "cpu", "core", "class", "task", "asks", "level", "load",
        "dropped",
    ];
    let units = ["_ns", "_khz", "_frac", "_per_s", "_j"];
    for key in seen {
        let fits = plain.contains(&key.as_str()) || units.iter().any(|unit| key.ends_with(unit));
        assert!(fits, "{key}");
    }
}

/// The table: a line for each policy and load, changes against the first run, `-` for unknown,
/// columns aligned.
#[test]
fn the_table_is_aligned() {
    let text = common::sample().text(120);
    let lines: Vec<&str> = text.lines().collect();
    let head = lines.iter().position(|line| line.contains("POLICY")).expect("a head");
    let rows = &lines[head + 1..head + 7];
    assert_eq!(rows.iter().filter(|row| row.contains("nginx")).count(), 3, "{text}");
    assert_eq!(rows.iter().filter(|row| row.contains("kernel build")).count(), 3, "{text}");
    let end = lines[head].find("WORK/s").unwrap() + "WORK/s".len();
    for row in rows {
        assert!(row.as_bytes()[end - 1].is_ascii_digit(), "right-aligned: {row}");
        assert_eq!(row.as_bytes()[end], b' ', "{row}");
    }
    assert!(
        !rows[0].contains('%') || !rows[0].contains('+'),
        "the first has no change: {}",
        rows[0]
    );
    assert!(rows[2].contains("+9.7%"), "{}", rows[2]);
    assert!(rows[0].contains(" - "), "energy is unknown: {}", rows[0]);
    assert!(text.contains("assumed, because not published: "), "{text}");
    assert!(lines.iter().all(|line| line.trim_end() == *line), "no blanks at the ends");
}

/// A gain needs work on both sides.
#[test]
fn gains_need_two_runs() {
    let mut report = common::sample();
    let base = report.runs[0].clone();
    let gain = report.runs[1].gain_pct(&base, "nginx").unwrap();
    assert!((gain - 100.0 * (8_712.0 / 7_940.0 - 1.0)).abs() < 1e-9);
    assert_eq!(report.runs[1].gain_pct(&base, "mysql"), None);
    report.runs[1].loads[0].work_per_s = Some(0.0);
    assert_eq!(report.runs[1].gain_pct(&base, "nginx"), None);
    report.runs[1].loads[0].work_per_s = None;
    assert_eq!(report.runs[1].gain_pct(&base, "nginx"), None);
}

fn perfetto(report: &SimReport) -> Value {
    let mut bytes = Vec::new();
    report.write_perfetto(&mut bytes).unwrap();
    serde_json::from_slice(&bytes).expect("the trace is JSON")
}

/// The trace holds every span with its exact times, and the licence as counters.
#[test]
fn the_trace_holds_every_span() {
    let report = common::sample();
    let trace = perfetto(&report);
    let events = trace["traceEvents"].as_array().unwrap();
    let count = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    let timelines = report.runs.iter().map(|run| run.timeline.as_ref().unwrap());
    let spans: usize =
        timelines.clone().flat_map(|line| &line.cpus).map(|track| track.task.len()).sum();
    let steps: usize = timelines.flat_map(|line| &line.cores).map(|track| track.at_ns.len()).sum();
    assert_eq!(count("X"), spans);
    assert_eq!(count("C"), 3 * steps);
    assert_eq!(count("M"), report.runs.len() * (1 + report.runs[0].cpus.len()));

    let track = &report.runs[1].timeline.as_ref().unwrap().cpus[3];
    let of_cpu = |event: &&Value| event["ph"] == "X" && event["pid"] == 2 && event["tid"] == 4;
    for (at, event) in events.iter().filter(of_cpu).enumerate() {
        let ns = |key: &str| (event[key].as_f64().unwrap() * 1e3).round() as u64;
        assert_eq!(ns("ts"), track.start_ns[at]);
        assert_eq!(ns("ts") + ns("dur"), track.end_ns[at]);
        assert_eq!(event["cat"], if track.asks[at] > 0 { "wide" } else { "scalar" });
    }
}

/// Runs without a timeline are left out, and a trace of none is still a trace.
#[test]
fn a_trace_may_be_empty() {
    let mut report = common::sample();
    for run in &mut report.runs {
        run.timeline = None;
    }
    assert_eq!(perfetto(&report)["traceEvents"].as_array().map(Vec::len), Some(0));
}

/// A core that stands still has a clock of 0 in the trace, and one that waits is marked.
#[test]
fn the_trace_shows_halts_and_throttling() {
    let trace = perfetto(&common::sample());
    let events = trace["traceEvents"].as_array().unwrap();
    let counter = |what: &str, value: f64| {
        events.iter().any(|event| event["args"][what].as_f64() == Some(value))
    };
    assert!(counter("clock MHz", 0.0) && counter("clock MHz", 3400.0));
    assert!(counter("licence level", 2.0) && counter("throttled", 1.0));
}
