// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane probe` on a simulated CPU, its files, and `turbolane verify` on shell commands.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use crate::turbolane;

fn run(arguments: &[&str]) -> Output {
    turbolane().args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

/// A recording replays to the same report, byte by byte, and the CPU file that it gives is one that
/// the simulator takes, with the clocks of the CPU that was measured.
#[test]
fn a_recording_replays_and_its_machine_simulates() {
    let folder = tempfile::tempdir().unwrap();
    let (raw, html, machine) = (
        path(folder.path(), "raw.jsonl"),
        path(folder.path(), "page.html"),
        path(folder.path(), "machine.toml"),
    );
    let measured = run(&[
        "probe",
        "--simulate",
        "xeon-w-2104",
        "--quick",
        "--kernels",
        "512-fma,512-int",
        "--json",
        "--raw",
        &raw,
        "--html",
        &html,
        "--machine-file",
        &machine,
    ]);
    assert_eq!(measured.status.code(), Some(0), "{measured:?}");
    let replayed = run(&["probe", "--replay", &raw, "--json"]);
    assert!(text(&measured) == text(&replayed), "the reports differ");
    let page = fs::read_to_string(html).unwrap();
    assert!(page.contains("default-src 'none'") && page.contains("\"kernel\":\"512-fma\""));
    assert!(!page.contains("{{"), "every hole is filled");
    let steps = run(&["sim", "--break-even", &machine]);
    assert_eq!(steps.status.code(), Some(0), "{steps:?}");
    // The W-2104 runs at 3.2, 2.8 and 2.4 GHz (crates/cpumodel/data/cpus).
    for clock in ["2400 MHz", "2800 MHz", "3200 MHz"] {
        let shown = text(&steps);
        let mhz: u32 = clock[..4].parse().unwrap();
        let near =
            (mhz - 20..=mhz + 20).step_by(10).any(|mhz| shown.contains(&format!("{mhz} MHz")));
        assert!(near, "{clock}:\n{shown}");
    }
}

/// A probed machine simulates with the CPUs that it has; a scenario that needs more is refused.
#[test]
fn a_probed_machine_has_its_cpus() {
    let folder = tempfile::tempdir().unwrap();
    let (small, probed) = (path(folder.path(), "small.toml"), path(folder.path(), "probed.toml"));
    let model =
        fs::read_to_string(crate::root().join("crates/cpumodel/data/cpus/xeon-w-2104.toml"))
            .unwrap();
    let lines = model.lines().map(|line| match line.starts_with("nr_cores = { value = 4,") {
        true => line.replacen('4', "2", 1),
        false => line.to_string(),
    });
    let two_cores = lines.collect::<Vec<_>>().join("\n");
    assert_ne!(two_cores, model.trim_end());
    fs::write(&small, two_cores).unwrap();
    let arguments = ["--simulate", &small, "--quick", "--kernels", "512-fma"];
    let measured = run(&[&["probe", "--json", "--machine-file", &probed], &arguments[..]].concat());
    assert_eq!(measured.status.code(), Some(0), "{measured:?}");
    let report: report::probe::ProbeReport = serde_json::from_slice(&measured.stdout).unwrap();
    assert_eq!(report.cores.per_package, Some(2));
    let simulated = run(&["sim", "openssl-speed", "-p", "fair", "--machine", &probed]);
    assert!(text(&simulated).contains("(2 CPUs,"), "{simulated:?}");
    let refused = run(&["sim", "sfma-nginx", "--machine", &probed]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains("sfma-nginx does not fit on probed-"), "{why}");
    assert!(why.contains("the machine has 2 CPUs"), "{why}");
}

/// Recordings that are none, or cut off, are refused with the line.
#[test]
fn a_broken_recording_fails() {
    let folder = tempfile::tempdir().unwrap();
    let raw = path(folder.path(), "raw.jsonl");
    fs::write(&raw, "{\"schema\": 1}\n").unwrap();
    let output = run(&["probe", "--replay", &raw]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 1 is not a header"));
}

/// The measurement of this very CPU, cut off at once: it ends, says what it is, and has an exit
/// code of the contract, on whatever machine the tests run.
#[test]
fn this_cpu_is_measured_or_refused() {
    let output = run(&["probe", "--time", "300ms", "--active", "1"]);
    let code = output.status.code().unwrap();
    assert!([0, 77].contains(&code), "{output:?}");
    let shown = text(&output) + &String::from_utf8_lossy(&output.stderr);
    assert!(shown.contains("PARTIAL: 0 s were over") || shown.contains("why:"), "{shown}");
}

/// Samples of this very CPU replay to the report that was printed beside them, byte by byte, be it
/// complete, partial or too little to say anything.
#[test]
fn samples_of_this_cpu_replay() {
    let folder = tempfile::tempdir().unwrap();
    let raw = path(folder.path(), "raw.jsonl");
    let measured = run(&[
        "probe",
        "--time",
        "2s",
        "--active",
        "1",
        "--kernels",
        "256-fma",
        "--json",
        "--raw",
        &raw,
    ]);
    assert!(matches!(measured.status.code(), Some(0 | 77)), "{measured:?}");
    if !Path::new(&raw).exists() {
        return eprintln!("skipped: {}", String::from_utf8_lossy(&measured.stderr));
    }
    let replayed = run(&["probe", "--replay", &raw, "--json"]);
    assert_eq!(replayed.status.code(), measured.status.code());
    assert!(text(&measured) == text(&replayed), "the reports differ");
    let report: report::probe::ProbeReport = serde_json::from_slice(&replayed.stdout).unwrap();
    let traces = fs::read_to_string(&raw).unwrap().lines().count() - 1;
    assert_eq!(report.repetitions, traces);
}

/// A machine that was hardly ever quiet: what is known is printed, and that nothing can be said of
/// the CPU, which the machine cannot answer. Nor is there a CPU file.
#[test]
fn a_busy_machine_fails() {
    let folder = tempfile::tempdir().unwrap();
    let (raw, machine) = (path(folder.path(), "raw.jsonl"), path(folder.path(), "machine.toml"));
    let kernels = ["--simulate", "xeon-w-2104", "--quick", "--kernels", "512-fma"];
    run(&[&["probe", "--raw", &raw], &kernels[..]].concat());
    let samples = fs::read_to_string(&raw).unwrap();
    let cut: Vec<&str> = samples.lines().take(6).collect();
    fs::write(&raw, cut.join("\n")).unwrap();
    let output = run(&["probe", "--replay", &raw]);
    assert_eq!(output.status.code(), Some(77), "{output:?}");
    assert!(text(&output).contains("samples: 5 repetitions"), "{}", text(&output));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("there is no result for this CPU"), "{told}");
    assert!(told.contains("of 5 repetitions were quiet") && told.contains("next:"), "{told}");
    let output = run(&["probe", "--replay", &raw, "--machine-file", &machine]);
    assert_eq!(output.status.code(), Some(77), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no CPU file"), "{output:?}");
    assert!(!Path::new(&machine).exists());
}

/// What an earlier probe wrote is told by the doctor: its figures, what follows from them, and
/// nothing that the file does not say. A file that is none is an error with its line.
#[test]
fn doctor_tells_what_a_machine_file_says() {
    let output =
        run(&["doctor", "--json", "--machine", "../../docs/experiments/wide-bursts-machine.toml"]);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let found: report::doctor::Doctor = serde_json::from_slice(&output.stdout).unwrap();
    let told = found.sections.iter().find(|one| one.title == "From the machine file").unwrap();
    let seen = |id: &str| told.checks.iter().find(|check| check.id == id).unwrap().seen.clone();
    assert_eq!(
        seen("file-clock"),
        "level 1 runs at 2080 MHz, scalar code at 2500, with all cores active"
    );
    assert_eq!(seen("file-start"), "throttled for 2.04us, halted for 642ns");
    assert!(seen("file-relax").contains("46.5us"), "{}", seen("file-relax"));
    // DIM 4.3: (2.045 us (1 - 0.57 * 2.5 / 2.08) + 2 * 0.642 us) / (1 - 2.08 / 2.5)
    assert!(seen("file-break-even").contains("11.5us"), "{}", seen("file-break-even"));
    assert!(seen("file-tools").contains("turbolane run"), "{}", seen("file-tools"));

    let folder = tempfile::tempdir().unwrap();
    let broken = path(folder.path(), "broken.toml");
    fs::write(&broken, "schema = 1\nid = 3\n").unwrap();
    let output = run(&["doctor", "--machine", &broken]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("broken.toml, line"), "{output:?}");
}

/// Numbers that a command prints are compared: one that is 10 % better, one that is worse, and the
/// same command twice.
#[test]
fn verify_tells_better_from_worse() {
    let verify = |b: &str, less: &[&str]| {
        let head = ["verify", "--runs", "6", "--warmup", "0", "--metric", "rate {} /s"];
        let a = "echo rate 100 /s";
        run(&[&head[..], less, &["--a", a, "--b", b]].concat())
    };
    let better = verify("echo rate 110 /s", &[]);
    assert_eq!(better.status.code(), Some(0), "{better:?}");
    assert!(text(&better).contains("verdict: better: +10.0 %"), "{}", text(&better));
    let worse = verify("echo rate 110 /s", &["--less"]);
    assert_eq!(worse.status.code(), Some(1), "{worse:?}");
    let same = verify("echo rate 100 /s", &["--less"]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    assert!(text(&same).contains("no difference found"), "{}", text(&same));
}

/// The clock at which the runs ran is compared, where the kernel counts cycles; elsewhere it is
/// said why it is not known. Of simulated runs neither is said.
#[test]
fn verify_compares_clocks_or_says_why_not() {
    let verify = ["verify", "--runs", "4", "--warmup", "0", "--a", "true", "--b", "true"];
    let json = run(&[&verify[..], &["--json"]].concat());
    let found: report::verify::VerifyReport = serde_json::from_slice(&json.stdout).unwrap();
    let shown = text(&run(&verify));
    let samples = || found.a.samples.iter().chain(&found.b.samples);
    match &found.clock {
        Some(clock) => {
            assert!(samples().all(|sample| sample.clock_khz.is_some_and(|khz| khz > 0.0)));
            assert!(clock.a > 0.0 && found.no_clock.is_none() && shown.contains(" MHz"), "{shown}");
        }
        None => {
            assert!(samples().any(|sample| sample.clock_khz.is_none()));
            assert!(found.no_clock.is_some_and(|why| !why.is_empty()));
            assert!(shown.contains("clock: not known: "), "{shown}");
        }
    }
}

/// A command that fails, one that prints no number, one that is not there: what, why, what next.
#[test]
fn verify_of_a_broken_command_fails() {
    for (a, why) in [
        ("exit 3", "it ended with exit status: 3"),
        ("echo nothing", "its output has no number at \"rate {}\""),
    ] {
        let output = run(&["verify", "--metric", "rate {}", "--a", a, "--b", "echo rate 1"]);
        let shown = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{shown}");
        let flat = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(why), "{shown}");
    }
    let output = run(&["verify", "--", "/no/such/command"]);
    assert_eq!(output.status.code(), Some(2));
}

/// A run that fails now and then does not spoil the others: it is told, counted, and does not
/// count. Here A fails in its third and seventh run, and the seven that are left still tell.
#[test]
fn verify_goes_on_when_a_run_fails() {
    let folder = tempfile::tempdir().unwrap();
    let count = path(folder.path(), "count");
    let a =
        format!("echo x >> {count}; n=$(wc -l < {count}); test $((n % 4)) != 3 && echo rate 10");
    let head = ["verify", "--runs", "9", "--warmup", "0", "--json", "--metric", "rate {}"];
    let output = run(&[&head[..], &["--a", &a, "--b", "echo rate 11"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let found: report::verify::VerifyReport = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((found.runs, found.a.failed, found.a.samples.len()), (9, 2, 7));
    assert_eq!(found.a.failure.as_deref(), Some("it ended with exit status: 1"));
    assert_eq!((found.b.failed, found.b.samples.len(), found.b.failure), (0, 9, None));
    assert_eq!(found.effect.verdict, report::verify::Verdict::Better);
    let told = String::from_utf8_lossy(&output.stderr).matches("a run of A failed").count();
    assert_eq!(told, 2);
}

/// When fewer than four runs of a kind can be left, it is given up at once, although it has worked.
#[test]
fn verify_with_too_few_runs_left_fails() {
    let folder = tempfile::tempdir().unwrap();
    let count = path(folder.path(), "count");
    let b = format!("echo x >> {count}; test $(wc -l < {count}) -le 3");
    let output = run(&["verify", "--runs", "6", "--warmup", "0", "--a", "true", "--b", &b]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let told =
        String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("3 of 6 failed and 3 worked; a comparison takes 4"), "{told}");
    assert_eq!(fs::read_to_string(&count).unwrap().lines().count(), 6);
}

/// An encoder beside scalar work, short enough for a test.
const SCENARIO: &str = r#"
schema = 1
name = "small"
about = "for a test"
machine = "xeon-gold-6130"
duration_ns = 300_000_000
warmup_ns = 50_000_000
[code.kernels]
class = "heavy-512"
per_cycle = 0.6
[[group]]
name = "server"
tasks = 32
scalar = true
work = "request"
program = [{ work = "scalar", cycles = { mean = 500_000 } }, { done = true }]
[[group]]
name = "encoder"
tasks = 8
scalar = true
work = "row"
program = [
  { work = "scalar", cycles = { mean = 300_000 } },
  { wide = "kernels", level = 2, cycles = [40_000, 80_000] },
  { done = true },
]
"#;

/// Policies of the simulator are compared like commands: same verdict words, called simulated, the
/// same bytes for the same seed, and a run can be repeated by the seed that stands beside it. A
/// policy compared with itself is not called different (that seed is not one of the five in a
/// hundred).
#[test]
fn verify_compares_policies_on_a_scenario() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "small.toml");
    fs::write(&file, SCENARIO).unwrap();
    let verify = |more: &[&str]| {
        run(&[&["verify", "--scenario", &file, "--load", "server", "--runs", "6"], more].concat())
    };
    let shown = verify(&[]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    let shown = text(&shown);
    assert!(shown.contains("verdict, of simulated runs: better: +"), "{shown}");
    assert!(shown.contains("nothing was measured"), "{shown}");

    let json = verify(&["--json"]);
    assert_eq!(json.stdout, verify(&["--json"]).stdout);
    let found: report::verify::VerifyReport = serde_json::from_slice(&json.stdout).unwrap();
    let simulated = found.simulated.as_ref().unwrap();
    assert_eq!(
        (simulated.load.as_str(), simulated.figure),
        ("server", report::verify::Figure::Throughput)
    );
    let sample = found.b.samples[0];
    let seed = sample.seed.unwrap().to_string();
    let again = run(&["sim", &file, "-p", "lane", "--seed", &seed, "--json"]);
    let again: report::sim::SimReport = serde_json::from_slice(&again.stdout).unwrap();
    let server = again.runs[0].loads.iter().find(|load| load.name == "server").unwrap();
    assert_eq!(server.work_per_s, sample.metric);
    assert_eq!((&found.clock, &found.no_clock, sample.clock_khz), (&None, &None, None));

    let same = verify(&["--policy", "fair", "--json"]);
    let found: report::verify::VerifyReport = serde_json::from_slice(&same.stdout).unwrap();
    use report::verify::Verdict::{NoDifference, NotEnoughRuns};
    assert!(matches!(found.effect.verdict, NoDifference | NotEnoughRuns), "{}", found.verdict);
    let worse = verify(&["--against", "lane", "--policy", "fair"]);
    assert_eq!(worse.status.code(), Some(1), "{worse:?}");
    let nobody = verify(&["--figure", "p99"]);
    assert_eq!(nobody.status.code(), Some(2), "{nobody:?}");
    assert!(
        String::from_utf8_lossy(&nobody.stderr).contains("it answers no requests"),
        "{nobody:?}"
    );
}

/// A measurement that breaks off, because its CPUs change underneath, prints what it knows as it
/// was asked to: one JSON document, not text. On the CPUs of this machine; skipped with one CPU,
/// and where none can be measured.
#[test]
fn json_of_a_measurement_that_breaks_off_is_json() {
    let cpus = hw::task::get_affinity(std::process::id()).unwrap();
    if cpus.iter().count() < 2 {
        return eprintln!("skipped: one CPU cannot change");
    }
    let child = turbolane()
        .args(["probe", "--json", "--time", "30s", "--kernels", "256-fma", "--active", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while hw::task::get_affinity(child.id()).is_ok_and(|now| now.iter().count() > 1) {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never bound itself to a CPU");
        std::thread::sleep(Duration::from_millis(5));
    }
    // an error: it has ended
    _ = hw::task::set_affinity(child.id(), &cpus);
    let output = child.wait_with_output().unwrap();
    if output.status.code() == Some(77) {
        return eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot go on"), "{output:?}");
    let shown = text(&output);
    assert!(shown.starts_with("{\"schema\":") && shown.lines().count() == 1, "{shown}");
}
