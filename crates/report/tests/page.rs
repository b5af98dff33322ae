// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages in a real browser: they draw what their reports say, their buttons, tooltips and zoom do
//! what they say, and they make no request.
//!
//! How: the page is written to a file with one more script after its own (`page_clicks.js` for
//! simulations, `locks_clicks.js` for lock benchmarks, `fleet_clicks.js` for fleets,
//! `flame_clicks.js` for flame graphs, `findings/clicks.js` for scans, comparisons and profiles),
//! which clicks through it by the events that a user's pointer makes and leaves what it saw as JSON
//! in the page. A headless Chromium loads the file and prints the page as it is then.
//!
//! A browser is taken from `TURBOLANE_CHROMIUM` or found by name. `cargo test` leaves these tests
//! out; `./x test` installs a browser and runs them. Without one they end with 77, "skipped", never
//! as passed.

mod common;
mod findings;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use report::advise::{Advice, Cpu, LevelClock, Verdict, Worth};
use report::fleet::Fleet;
use report::locks::{BreakEven, LockBench, Point, Sweep};
use report::sample::{CallChains, Frame, Offender, SampleReport, SampledLevel};
use report::sim::SimReport;
use serde_json::Value;

/// Names under which distributions install it.
const NAMES: [&str; 4] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];

/// Longest time that a browser may take; it needs about two seconds.
const LIMIT: Duration = Duration::from_secs(120);

const CLICKS: &str = include_str!("page_clicks.js");

fn browser() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("TURBOLANE_CHROMIUM").filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&paths).collect();
    NAMES
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

/// The browser, or the end of all tests here. Past the test harness, which keeps what a test says
/// to itself until it has ended.
fn browser_or_skip() -> PathBuf {
    browser().unwrap_or_else(|| {
        let names = NAMES.join(", ");
        let next = "install chromium-headless-shell, or name one in TURBOLANE_CHROMIUM";
        let _ = writeln!(io::stderr(), "skipped (77): no browser among {names}; {next}");
        std::process::exit(77)
    })
}

/// What the clicks saw on a simulation's page.
fn clicked(name: &str, report: &SimReport, dark: bool) -> Value {
    seen_by(CLICKS, name, &report.html(), dark)
}

/// What a script saw on a page in a large window.
fn seen_by(clicks: &str, name: &str, html: &str, dark: bool) -> Value {
    seen_at(clicks, name, html, dark, 1240)
}

/// What a script saw on a page in a window of this width.
fn seen_at(clicks: &str, name: &str, html: &str, dark: bool, width: u32) -> Value {
    let browser = browser_or_skip();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    let page = folder.join("page.html");
    fs::write(folder.join("report.html"), html).unwrap();
    let script = format!("<pre id=\"seen\"></pre><script>{clicks}</script></body>");
    fs::write(&page, html.replace("</body>", &script)).unwrap();
    let dom = dump(&browser, &page, &folder, dark, width);
    let seen = dom.split_once("<pre id=\"seen\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let seen = seen.unwrap_or_else(|| panic!("the page is not there: {dom:.200}")).0;
    let seen = seen.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let seen: Value = serde_json::from_str(&seen).unwrap_or_else(|e| panic!("{e} in: {seen}"));
    assert_eq!(seen["errors"], Value::Array(Vec::new()), "errors in the page");
    seen
}

/// The page as it is after its scripts.
fn dump(browser: &Path, page: &Path, folder: &Path, dark: bool, width: u32) -> String {
    let out = folder.join("dom.html");
    let mut command = Command::new(browser);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .arg("--hide-scrollbars")
        .arg(format!("--window-size={width},1000"))
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }))
        .arg("--dump-dom")
        .arg(format!("file://{}", page.display()))
        .stdout(fs::File::create(&out).unwrap())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{}: {e}", browser.display()));
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("the browser did not end within {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    fs::read_to_string(out).unwrap()
}

fn text<'a>(seen: &'a Value, key: &str) -> &'a str {
    seen[key].as_str().unwrap_or_else(|| panic!("no {key} in {seen:.400}"))
}

/// A share as the page shows it.
fn percent(cell: &Value) -> f64 {
    cell.as_str().unwrap().trim_end_matches('%').trim().parse().unwrap()
}

/// The head, the table and the bars show the report's figures, and a button changes the figure.
#[test]
#[ignore = "needs a browser: ./x test page"]
fn figures_are_those_of_the_report() {
    let seen = clicked("figures", &common::sample(), false);
    assert_eq!(text(&seen, "title"), "nginx-openssl");
    assert!(text(&seen, "input").contains("Intel Xeon Gold 6130"), "{seen:.400}");
    assert!(text(&seen, "input").contains("20.0\u{a0}ms"), "{seen:.400}");
    assert_eq!(seen["rows"], 6, "three policies, two loads each");
    // LEVEL>0 of the text: per load, never that of all CPUs.
    let load_levels: Vec<f64> = common::sample()
        .runs
        .iter()
        .flat_map(|run| run.loads.iter().map(|load| 100.0 * load.reduced_frac))
        .collect();
    let shown: Vec<f64> = seen["level_cells"].as_array().unwrap().iter().map(percent).collect();
    assert_eq!(shown.len(), load_levels.len(), "{shown:?}");
    for (shown, level) in shown.iter().zip(&load_levels) {
        assert!((shown - level).abs() < 0.06, "{shown} for {level}");
    }
    let first = text(&seen, "lane_row");
    assert!(first.contains("static-2") && first.contains("8,712"), "{first}");
    assert!(first.contains("+9.7\u{a0}%"), "change against the first run: {first}");
    assert_eq!(seen["best"], serde_json::json!(["8,790", "8.79"]), "most work is best");
    assert!(text(&seen, "bars_work").contains("8,712"), "{seen:.400}");
    assert!(text(&seen, "bars_clock").contains("GHz"), "another figure after a click");
    assert_eq!(seen["pressed"], 1, "one button is pressed");
    assert!(text(&seen, "bar_tip").contains("against unmodified"), "{}", text(&seen, "bar_tip"));
}

/// Each CPU has its bar in each run, the lane's CPUs are marked, and a tooltip gives the shares.
#[test]
#[ignore = "needs a browser: ./x test page"]
fn residency_is_drawn_for_each_cpu() {
    let seen = clicked("residency", &common::sample(), false);
    assert_eq!(seen["cpus"], 36, "12 CPUs in three runs");
    assert!((seen["bar_heights"].as_f64().unwrap() - 64.0).abs() < 0.5, "shares add up to the bar");
    let tip = text(&seen, "cpu_tip");
    assert!(tip.contains("CPU 0, core 0, wide") && tip.contains("level 2 (AVX-512)"), "{tip}");
}

/// The timeline draws its colours, tells what is under the pointer, zooms by drag, button and key,
/// comes back, shows all cores and other policies on demand.
#[test]
#[ignore = "needs a browser: ./x test page"]
fn the_timeline_answers() {
    for dark in [false, true] {
        let report = common::sample();
        let seen = clicked("timeline", &report, dark);
        assert_eq!(seen["dark"], dark);
        assert_eq!(seen["panels"], 2);
        let colours = &seen["colours"];
        for (name, least) in [("l0", 2000), ("l2", 2000), ("victim", 500), ("slowed", 500)] {
            assert!(colours[name].as_u64().unwrap() > least, "dark {dark}: {name}: {colours}");
        }
        let tip = text(&seen, "core_tip");
        assert!(tip.contains("core 0 at 10.0\u{a0}ms") && tip.contains("licence level"), "{tip}");
        assert!(tip.contains("CPU 0") && tip.contains("CPU 6"), "both siblings: {tip}");
        assert_eq!(text(&seen, "window_all"), "0\u{a0}ns to 20.0\u{a0}ms");
        assert_eq!(text(&seen, "window_dragged"), "5.00\u{a0}ms to 10.0\u{a0}ms");
        assert_eq!(text(&seen, "window_button"), "6.25\u{a0}ms to 8.75\u{a0}ms");
        assert_eq!(text(&seen, "window_key"), "6.75\u{a0}ms to 9.25\u{a0}ms");
        assert_eq!(text(&seen, "window_back"), text(&seen, "window_all"));
        assert_eq!(text(&seen, "other_policy"), "static-2");
        let (few, all) =
            (seen["height_few"].as_f64().unwrap(), seen["height_all"].as_f64().unwrap());
        assert!(all > 1.4 * few, "six cores need more room than four: {few}, {all}");
        assert!(text(&seen, "halt_tip").contains("halted"), "{}", text(&seen, "halt_tip"));
    }
}

/// Without timelines there is no timeline section; without runs the page still stands.
#[test]
#[ignore = "needs a browser: ./x test page"]
fn missing_parts_leave_no_holes() {
    let mut report = common::sample();
    for run in &mut report.runs {
        run.timeline = None;
    }
    let seen = clicked("no-timeline", &report, false);
    assert_eq!(seen["timeline_hidden"], true);
    assert_eq!(seen["rows"], 6);
    let empty = SimReport::new("nothing", "No run at all.", 1, Vec::new());
    let seen = clicked("empty", &empty, false);
    assert_eq!((&seen["rows"], text(&seen, "title")), (&Value::from(0), "nothing"));
}

/// Names that look like markup are shown as text.
#[test]
#[ignore = "needs a browser: ./x test page"]
fn names_stay_text() {
    let mut report = common::sample();
    report.runs[0].policy = "<img src=x onerror=boom()>".into();
    report.scenario = "</script><b>bold".into();
    let seen = clicked("names", &report, false);
    assert_eq!(text(&seen, "title"), "</script><b>bold");
    assert_eq!(seen["images"], 0);
}

/// A machine with two strategies at three sizes; the second has no value in the middle.
fn sweep(model: Option<&str>, has_energy: bool) -> Sweep {
    let point = |section_cycles: u64, strategy: &str, time_ns: Option<f64>| Point {
        section_cycles,
        strategy: strategy.into(),
        sections: Some(100),
        time_ns,
        cpu_time_ns: time_ns,
        effective_khz: time_ns.map(|ns| (section_cycles as f64 / ns * 1e6) as u64),
        energy_nj: time_ns.filter(|_| has_energy).map(|ns| ns * 50.0),
    };
    let sizes = [1_000, 10_000, 100_000];
    let spin = sizes.map(|size| point(size, "spin", Some(size as f64 / 3.0)));
    let owner =
        sizes.map(|size| point(size, "owner", (size != 10_000).then_some(size as f64 / 4.0)));
    Sweep {
        model: model.map(String::from),
        threads: 2,
        pstates: model.is_none().then(|| "none: as requested".to_string()),
        points: spin.into_iter().chain(owner).collect(),
        break_evens: vec![
            BreakEven { strategy: "owner".into(), section_cycles: Some(50_000.0) },
            BreakEven { strategy: "delegate".into(), section_cycles: None },
        ],
    }
}

/// Each machine has its panel with a line per strategy, a gap where nothing was measured, and a
/// mark for what is known of the break-even; a figure that a machine does not know is told.
#[test]
#[ignore = "needs a browser: ./x test page"]
fn lock_curves_are_drawn() {
    let bench = LockBench::new(vec![sweep(Some("fx-8120"), true), sweep(None, false)]);
    let seen = seen_by(include_str!("locks_clicks.js"), "locks", &bench.html(), false);
    assert_eq!(seen["legend"], serde_json::json!(["spin", "owner"]));
    let model = &seen["clock"]["panels"][0];
    assert_eq!(
        (&model["points"], &model["lines"], &model["evens"]),
        (&5.into(), &2.into(), &1.into())
    );
    let here = &seen["clock"]["panels"][1];
    assert!(text(here, "about").contains("P-states: none: as requested"), "{here}");
    assert!(text(&seen, "tip").contains("3.00\u{a0}GHz"), "{}", text(&seen, "tip"));
    assert_eq!(seen["energy"]["pressed"], serde_json::json!(["Energy"]));
    assert_eq!(seen["energy"]["panels"][0]["points"], 5);
    let unknown = &seen["energy"]["panels"][1];
    assert_eq!(unknown["points"], 0);
    assert!(text(unknown, "note").contains("Energy: not known"), "{unknown}");
}

/// A fleet's page has a row for each machine, and its buttons show those of one verdict.
#[test]
#[ignore = "needs a browser: ./x test page"]
fn a_fleet_is_sorted_by_verdict() {
    let advice = |name: &str, worth| {
        let clock = |license_level, clock_khz| LevelClock { license_level, clock_khz };
        let cpu = Cpu {
            name: "Xeon <6130>".into(),
            basis: Some("table".into()),
            is_other: false,
            clocks: vec![clock(0, 2_800_000), clock(2, 1_900_000)],
            held_ns: None,
            worst_drop_pct: None,
        };
        (name.to_string(), Advice::new(cpu, Verdict::new(worth, "for a reason", "do it")))
    };
    let machines =
        [advice("a", Worth::No), advice("b", Worth::Yes), advice("</script>", Worth::Unknown)];
    let clicks = include_str!("fleet_clicks.js");
    let seen = seen_by(clicks, "fleet", &Fleet::new(&machines).html(), false);
    let about = "3 machines: worth it on 1, not known on 1, not worth it on 1";
    assert_eq!(text(&seen, "about"), about);
    let rows = |key: &str| -> Vec<String> { serde_json::from_value(seen[key].clone()).unwrap() };
    let known = "\u{2013}|900 of 2,800|Xeon <6130>|";
    let all = [
        format!("b|yes|{known}do it"),
        format!("</script>|not known|{known}do it"),
        format!("a|no|{known}for a reason"),
    ];
    assert_eq!(rows("all"), all);
    assert_eq!(rows("no"), all[2..]);
    assert_eq!(rows("models"), ["Xeon <6130>|3|1|1|900 of 2,800"]);
    assert!(text(&seen, "services").contains("none was looked for"), "{seen}");
}

/// A flame graph has a box for each frame, as wide as its share and in its level's colour; it
/// enlarges, comes back and finds names, and names stay text.
#[test]
#[ignore = "needs a browser: ./x test page"]
fn a_flame_graph_answers() {
    let frame = |function: &str, license_level| Frame {
        function: function.into(),
        file: Some("/usr/lib/<b>lib.so".into()),
        license_level,
    };
    let (main, wide) = (frame("[main]", 0), frame("wide_function", 2));
    let markup = frame("<img src=x onerror=boom()>", 1);
    let chains = CallChains::new([
        ("nginx".to_string(), vec![main.clone(), wide], 250),
        ("nginx".to_string(), vec![main.clone(), markup.clone()], 250),
        ("redis".to_string(), vec![main], 500),
    ]);
    let offender = |function: &str, license_level| Offender {
        function: function.into(),
        file: "/usr/lib/<b>lib.so".into(),
        file_offset: None,
        process: "nginx".into(),
        license_level,
        sustained_level: license_level,
        samples: 250,
    };
    let report = SampleReport {
        busy: 1_000,
        samples: 2_000,
        levels: vec![
            SampledLevel { license_level: 1, samples: 250 },
            SampledLevel { license_level: 2, samples: 250 },
        ],
        offenders: vec![offender(&markup.function, 1), offender("wide_function", 2)],
        ..SampleReport::default()
    };
    let clicks = include_str!("flame_clicks.js");
    let seen = seen_by(clicks, "flame", &report.html(&chains), true);
    assert_eq!(text(&seen, "title"), "Who executes wide code");
    assert!(text(&seen, "graph").starts_with("Flame graph: "), "{seen}");
    let legend = "level 2: 25.0\u{a0}%level 1: 25.0\u{a0}%scalar: 50.0\u{a0}%";
    assert_eq!(text(&seen, "legend"), legend);
    let boxes = |key: &str| -> Vec<String> { serde_json::from_value(seen[key].clone()).unwrap() };
    let of =
        |name: &str, samples: &str, pct: &str| format!("{name}: {samples} samples, {pct}\u{a0}%");
    let all = [
        of("all", "1,000", "100.0"),
        of("nginx", "500", "50.0"),
        of("[main]", "500", "50.0"),
        of(&markup.function, "250", "25.0"),
        of("wide_function", "250", "25.0"),
        of("redis", "500", "50.0"),
        of("[main]", "500", "50.0"),
    ];
    assert_eq!(boxes("boxes"), all);
    assert!((seen["wide_share"].as_f64().unwrap() - 0.25).abs() < 0.01, "{seen}");
    assert_eq!(seen["fills"], serde_json::json!(["var(--l2)", "var(--line)", "var(--line)"]));
    let tip = text(&seen, "tip");
    assert!(tip.contains("samples250") && tip.contains("25.0\u{a0}%"), "{tip}");
    assert!((seen["zoomed_share"].as_f64().unwrap() - 1.0).abs() < 0.01, "{seen}");
    assert_eq!((boxes("zoomed").len(), boxes("back")), (4, all.to_vec()));
    assert_eq!((&seen["found"], &seen["images"]), (&1.into(), &0.into()));
    assert_eq!(text(&seen, "matches"), "1 name, 25.0\u{a0}% of samples");
    assert_eq!(boxes("functions"), [markup.function, "wide_function".into()]);
}
