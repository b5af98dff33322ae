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
    // The W-2104 runs at 3.2, 2.8 and 2.4 GHz (data/cpus).
    for clock in ["2400 MHz", "2800 MHz", "3200 MHz"] {
        let shown = text(&steps);
        let mhz: u32 = clock[..4].parse().unwrap();
        let near =
            (mhz - 20..=mhz + 20).step_by(10).any(|mhz| shown.contains(&format!("{mhz} MHz")));
        assert!(near, "{clock}:\n{shown}");
    }
}

/// Recordings that are none, or cut off, are refused with the line.
#[test]
fn a_broken_recording_fails() {
    let folder = tempfile::tempdir().unwrap();
    let raw = path(folder.path(), "raw.jsonl");
    fs::write(&raw, "{\"schema\": 1}\n").unwrap();
    let output = run(&["probe", "--replay", &raw]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 1 is no header"));
}

/// The measurement of this very CPU, cut off at once: it ends, says what it is, and has an exit code
/// of the contract, on whatever machine the tests run.
#[test]
fn this_cpu_is_measured_or_refused() {
    let output = run(&["probe", "--time", "300ms", "--active", "1"]);
    let code = output.status.code().unwrap();
    assert!([0, 77].contains(&code), "{output:?}");
    let shown = text(&output) + &String::from_utf8_lossy(&output.stderr);
    assert!(shown.contains("PARTIAL: 0 s were over") || shown.contains("why:"), "{shown}");
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

/// A measurement that breaks off, because its CPUs change underneath, prints what it knows as it was asked
/// to: one JSON document, not text. On the CPUs of this machine; skipped with one CPU, and where none
/// can be measured.
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
