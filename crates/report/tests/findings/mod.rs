// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of `scan`, `verify` and `profile`, on a desk, on a narrow window and on a phone.

use report::profile::{LevelProfile, ProfileReport, ProfileTruth};
use report::scan::{Confidence, Counts, File, Function, Marks, Scan, Source, User, Widest};
use report::verify::{Effect, Sample, Side, Verdict, VerifyReport};
use serde_json::{Value, json};

use super::{seen_at, text};

/// Widths of windows, in pixels.
const WIDTHS: [u32; 3] = [1240, 800, 390];

/// Looks at a page in each width, in which nothing may be cut; what was seen in the first.
fn looked_at(name: &str, html: &str) -> Value {
    let look = |width| {
        let clicks = include_str!("clicks.js");
        let seen = seen_at(clicks, &format!("{name}-{width}"), html, width == 800, width);
        assert_eq!(seen["width"], width, "the window is as wide as it was asked for");
        assert_eq!(seen["cut"], json!([]), "{name} at {width}");
        assert_eq!(seen["scrolls"], false, "{name} at {width}: the page itself scrolls sideways");
        assert_eq!(seen["images"], 0, "{name}: a name became an element");
        seen
    };
    let [seen, ..] = WIDTHS.map(look);
    seen
}

const HOSTILE: &str = "</script><img src=x onerror=boom()><b class=bold>";

/// Without a place to break a line.
fn long(name: &str) -> String {
    format!("/opt/{}/{name}", "x".repeat(200))
}

fn function(name: &str, license_level: u8) -> Function {
    Function {
        name: Some(name.into()),
        symbol: None,
        address: 0x1000,
        file_offset: Some(0x1000),
        section: None,
        size_bytes: 300,
        source: Source::Symtab,
        confidence: Confidence::High,
        license_level,
        sustained_level: license_level,
        widest: Widest::Zmm,
        instructions: 60,
        counts: Counts::default(),
        heavy_frac: Some(0.25),
        in_loop: Some(true),
        loops: Some(1),
        dirty_returns: 0,
        dirty_sse: 0,
        line: None,
        near: None,
    }
}

fn file(path: &str, listed: Vec<Function>) -> File {
    let license_level = listed.iter().map(|function| function.license_level).max().unwrap_or(0);
    let found = listed.len() as u64;
    let file = File::new(path, "shared object", 4_000);
    File { license_level, sustained_level: 1, found, listed, ..file }
}

/// The files with their counts and users, those that matter first; functions after a click; a
/// search leaves what it finds; names stay text.
#[test]
#[ignore = "needs a browser: ./x test page"]
fn a_scan_unfolds() {
    let mut first = file(&long(HOSTILE), vec![function("plain", 2), function(HOSTILE, 2)]);
    first.mapped_by = Some(vec![User { name: HOSTILE.into(), processes: 3 }]);
    first.marks = Some(Marks { functions: 2, at_entry: 1, ..Marks::default() });
    let second = file("/lib/other.so", vec![function("other", 1), function("a_needle", 1)]);
    let mut scan = Scan::new(1);
    scan.files = vec![file("/lib/none.so", vec![]), second, first];
    let seen = looked_at("scan", &scan.html(None));
    assert_eq!(text(&seen, "about"), "3 files, 2 with 4 functions of level 1 and above");
    let none = "\u{2013}";
    let path = long(HOSTILE);
    let other = format!("/lib/other.so|1|1|0|2|{none}|0|0|{none}");
    assert_eq!(seen["files"], json!([format!("{path}|2|1|2|2|1 of 2|0|0|{HOSTILE} (3)"), &other]),);
    assert_eq!(seen["open"], json!([false, false]));
    let row = |name: &str, level| format!("{level}|{level}|zmm|-|-|25 %|300 B|{name}");
    assert_eq!(seen["functions"], json!([row("plain", 2), row(HOSTILE, 2)]));
    let facts = seen["facts"].to_string();
    assert!(facts.contains("4000 B of code"), "{facts}");
    assert_eq!(seen["found"], json!([&other]));
    assert_eq!(seen["found_functions"], json!([row("a_needle", 1)]));
    assert_eq!(text(&seen, "matches"), "1 file");
}

/// One file is unfolded at once, its path is the title; functions beyond the limit are counted.
#[test]
#[ignore = "needs a browser: ./x test page"]
fn a_scanned_file_is_unfolded() {
    let mut scan = Scan::new(2);
    scan.files = vec![file("/bin/<i>needle", vec![function("one", 2), function("two", 2)])];
    let seen = looked_at("scan-file", &scan.html(Some(1)));
    assert_eq!((text(&seen, "title"), &seen["open"]), ("/bin/<i>needle", &json!([true])));
    assert_eq!(seen["functions"].as_array().unwrap().len(), 1, "{seen}");
    let mut empty = Scan::new(1);
    empty.files = vec![file("/bin/needle", vec![])];
    let seen = looked_at("scan-empty", &empty.html(None));
    assert_eq!(seen["functions"], json!([]));
}

fn side(command: &str, first: usize, times: [u64; 4]) -> Side {
    let run = |(at, time_ns): (usize, &u64)| Sample {
        order: first + 2 * at,
        time_ns: *time_ns,
        cpu_time_ns: time_ns / 2,
        clock_khz: None,
        metric: None,
        seed: None,
    };
    Side { samples: times.iter().enumerate().map(run).collect(), ..Side::of(command) }
}

fn comparison() -> VerifyReport {
    let effect = |a: f64, b: f64, (change_pct, low_pct, high_pct), verdict| Effect {
        a,
        b,
        change_pct,
        low_pct,
        high_pct,
        verdict,
        runs_needed: None,
    };
    let slower = effect(10.2e6, 12.2e6, (20.0, 18.0, 21.0), Verdict::Worse);
    VerifyReport {
        schema: report::SCHEMA,
        seed: 7,
        runs: 5,
        partial: Some("interrupted after 9 of 10 runs".into()),
        simulated: None,
        margin_pct: 1.0,
        a: side(&long(HOSTILE), 0, [10_000_000, 10_100_000, 10_300_000, 10_400_000]),
        b: Side {
            failed: 1,
            failure: Some(HOSTILE.into()),
            around_ns: Some(400_000_000),
            ..side("./b", 1, [12_000_000, 12_100_000, 12_300_000, 12_400_000])
        },
        metric: "time".into(),
        smaller_is_better: true,
        effect: slower,
        cpu_time: effect(
            5.1e6,
            6.1e6,
            (20.0, f64::NEG_INFINITY, f64::INFINITY),
            Verdict::NotEnoughRuns,
        ),
        clock: None,
        no_clock: Some("no counter".into()),
        verdict: slower.words(1.0),
    }
}

/// The verdict is first; every run is a point at its value, medians and interval are where the
/// figures say, and what the text notes is noted.
#[test]
#[ignore = "needs a browser: ./x test page"]
fn a_comparison_shows_its_runs() {
    let report = comparison();
    let seen = looked_at("verify", &report.html());
    assert_eq!(text(&seen, "verdict"), report.verdict);
    assert_eq!(text(&seen, "verdict_class"), "verdict down");
    assert_eq!(text(&seen, "about"), "5 runs of each in random order, seed 7");
    assert!(text(&seen, "input").contains(HOSTILE), "{seen}");
    let notes: Vec<String> = serde_json::from_value(seen["notes"].clone()).unwrap();
    let beginnings =
        ["Partial: interrupted", "Each run of B took 400", "1 of 5 runs of B", "The clock"];
    assert_eq!(notes.len(), beginnings.len(), "{notes:?}");
    for (note, beginning) in notes.iter().zip(beginnings) {
        assert!(note.starts_with(beginning), "{note}");
    }
    let [time, cpu_time] = seen["panels"].as_array().unwrap().as_slice() else { panic!("{seen}") };
    assert_eq!((&time["a"], &time["b"], &cpu_time["b"]), (&json!(4), &json!(4), &json!(4)));
    let words = text(time, "text");
    assert!(
        words.starts_with("A 10.200\u{a0}ms, B 12.200\u{a0}ms. worse: +20.0\u{a0}%"),
        "{words}"
    );
    assert!(text(cpu_time, "text").contains("unbounded to unbounded"), "{cpu_time}");
    let place = |value: &Value| value.as_f64().unwrap();
    // From A's median to B's are 19.6 % of A's: that scale holds for the interval too.
    let (a, b) = (place(&time["medians"][0]), place(&time["medians"][1]));
    let at = |pct: f64| a + (b - a) * pct / (100.0 * 20.0 / 102.0);
    for (end, pct) in [(0, 18.0), (1, 21.0)] {
        let (end, due) = (place(&time["interval"][end]), at(pct));
        assert!((end - due).abs() < 1.0, "{end} for {pct} %, {due}");
    }
    let last = place(&time["points"][3]);
    assert!((last - at(100.0 * 22.0 / 102.0)).abs() < 1.0, "{last}");
    assert!(text(&seen, "tip").starts_with("run 1, Atime10.000\u{a0}ms"), "{seen}");
    let runs: Vec<String> = serde_json::from_value(seen["runs"].clone()).unwrap();
    assert_eq!(runs.len(), 8);
    assert_eq!(runs[1], "2|B|12.000\u{a0}ms|6.0000\u{a0}ms", "in the order of the runs");
}

fn profiled(levels: Vec<LevelProfile>) -> ProfileReport {
    ProfileReport {
        schema: ProfileReport::SCHEMA,
        load: HOSTILE.into(),
        variant: Some("avx512".into()),
        machine: long("machine"),
        policy: "fair".into(),
        seed: 1,
        samples: 1_000,
        interval_ns: 2_000_000,
        pause_ns: 700_000,
        watch_ns: 20_000,
        reduced_pct: Some(50.0),
        avoidable_pct: (!levels.is_empty()).then_some(75.0),
        levels,
        truth: Some(ProfileTruth { reduced_pct: Some(41.0), avoidable_pct: None }),
    }
}

/// A bar for each level that was seen: needed and avoidable part as long as their figures, the
/// interval at their border, no border where nothing was judged.
#[test]
#[ignore = "needs a browser: ./x test page"]
fn a_profile_has_a_bar_for_each_level() {
    let level = |license_level, busy_pct, avoidable_pct: Option<f64>, seen| LevelProfile {
        license_level,
        busy_pct,
        needed_pct: avoidable_pct.map(|pct| 100.0 - pct),
        avoidable_pct,
        avoidable_low_pct: avoidable_pct.map(|pct| pct - 5.0),
        avoidable_high_pct: avoidable_pct.map(|pct| pct + 5.0),
        seen,
        held: 3,
    };
    let levels =
        vec![level(1, 10.0, None, 100), level(2, 40.0, Some(75.0), 400), level(3, 0.0, None, 0)];
    let seen = looked_at("profile", &profiled(levels).html());
    assert_eq!(text(&seen, "title"), HOSTILE);
    assert!(text(&seen, "verdict").starts_with("37.5\u{a0}% of busy time was avoidable"), "{seen}");
    let truth = "Ground truth of the simulation: 41.0\u{a0}% of busy time at a reduced level.";
    assert_eq!(text(&seen, "truth"), truth);
    let width = |kind: &str| seen["bars"][kind][0].as_f64().unwrap();
    let pct = width("unknown") / 10.0;
    for (kind, due) in [("needed", 10.0), ("avoidable", 30.0), ("interval", 4.0)] {
        assert!((width(kind) / pct - due).abs() < 0.01, "{kind}: {} %", width(kind) / pct);
    }
    let none = "\u{2013}";
    let interval = "70.0 to 80.0\u{a0}%";
    let row = format!("2|40.0\u{a0}%|25.0\u{a0}%|75.0\u{a0}%|{interval}|400|3");
    assert_eq!(seen["levels"], json!([format!("1|10.0\u{a0}%|{none}|{none}|{none}|100|3"), row]));
    let seen = looked_at("profile-none", &profiled(Vec::new()).html());
    assert_eq!(text(&seen, "verdict"), "No core was at a reduced level.");
    assert_eq!(text(&seen, "none"), "No core was seen at a reduced level.");
}
