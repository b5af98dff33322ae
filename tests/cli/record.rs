// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane record --system` for real, judged by `turbolane trace --check`. As root, on a kernel
//! that lets BPF programs watch it; skipped elsewhere. And `--perf-script`, which needs no machine.

use std::process::{Command, Output, Stdio};

use crate::turbolane;

/// What recording needs and this machine lacks: exit code 77.
const CANNOT: i32 = 77;

/// Whether this machine lacks something. A kernel that reads our programs and refuses them does
/// not: that is a fault of the programs.
fn cannot(output: &Output) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("PROG LOAD LOG"), "the kernel refuses a program: {said}");
    output.status.code() == Some(CANNOT)
}

/// This machine's own scheduler, beside tasks that come and go, keeps the order, and nobody waits
/// for long.
#[test]
fn this_machine_keeps_the_rules() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("machine.trace");
    let mut record = turbolane();
    record.args(["record", "--quiet", "--system", "--stalls", "--duration", "1s", "-o"]).arg(&file);
    let recorder = record.stderr(Stdio::piped()).spawn().unwrap();
    let mut load = Command::new("sh");
    load.args(["-c", "for i in 1 2 3 4 5 6 7 8 9; do /bin/true & sleep 0.1; done; wait"]);
    assert!(load.status().unwrap().success());
    let output = recorder.wait_with_output().unwrap();
    if cannot(&output) {
        return eprintln!("skipped: this machine cannot be recorded");
    }
    assert!(output.status.success(), "{output:?}");
    // A machine that builds something else meanwhile lets tasks wait, but not for ever.
    let mut check = turbolane();
    check.args(["trace", "--check", "--longest-wait", "20s"]).arg(&file);
    let output = check.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("kept"), "{text}");
}

/// Samples of perf become a recording: levels by task and CPU, and what was left out is told; the
/// same from standard input.
#[test]
fn samples_of_perf_are_imported() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("levels.trace");
    let text = "../../tests/data/traces/licenses.perf.txt";
    let output =
        turbolane().args(["record", "--perf-script", text, "-o"]).arg(&file).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("9 samples of licence levels"), "{told}");
    assert!(told.contains("1 samples are of other events"), "{told}");
    assert!(told.contains("the first is line 48"), "{told}");
    let shown = turbolane().arg("trace").arg(&file).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for line in [
        "levels      level 0 33.3 %, level 1 22.2 %, level 2 44.4 % of the cycles in 9",
        " TID  CYCLES %  LEVEL 0 %  LEVEL 1 %  LEVEL 2 %  NAME",
        "4711      55.6       40.0       40.0       20.0  nginx",
        "4800      33.3        0.0        0.0      100.0  x265 frame 0.1",
        "  2      44.4        0.0        0.0      100.0",
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
    let again = dir.path().join("again.trace");
    let mut pipe = turbolane();
    pipe.args(["record", "--quiet", "--perf-script", "-", "-o"]).arg(&again);
    pipe.stdin(std::fs::File::open(text).unwrap());
    assert!(pipe.output().unwrap().status.success());
    assert_eq!(std::fs::read(&file).unwrap(), std::fs::read(&again).unwrap());
}

/// Functions with the names of the library's: five sections, which end in both ways, and four times
/// their work behind each.
const HINTED: &str = r#"
__attribute__((noinline)) int tl_wide_begin(unsigned level) { __asm__ volatile("" :: "r"(level)); return 0; }
__attribute__((noinline)) int tl_wide_end(void) { __asm__ volatile(""); return 0; }
__attribute__((noinline)) int tl_scalar_for(unsigned long ns) { __asm__ volatile("" :: "r"(ns)); return 0; }
static void work(long n) { for (volatile long i = 0; i < n; i++) {} }
int main(void)
{
    for (int i = 0; i < 5; i++) {
        tl_wide_begin(2);
        work(1000000);
        if (i % 2)
            tl_wide_end();
        else
            tl_scalar_for(1000);
        work(4000000);
    }
    return 0;
}
"#;

/// The sections of a program with hints are marked periods: each is counted, and some of the
/// program's time is in them, some is not. Skipped without a C compiler, and where nothing can be
/// recorded.
#[test]
fn hinted_sections_are_periods() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("hinted.c"), HINTED).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-O0", "-o"]).arg(at("hinted")).arg(at("hinted.c"));
    if !cc.status().is_ok_and(|status| status.success()) {
        return eprintln!("skipped: no C compiler");
    }
    let hints = format!("{}@2", at("hinted").display());
    let mut record = turbolane();
    record.args(["record", "--quiet", "--hints", &hints, "-o"]).arg(at("trace")).arg("--");
    let output = record.arg(at("hinted")).output().unwrap();
    if cannot(&output) {
        return eprintln!("skipped: this machine cannot be recorded");
    }
    assert!(output.status.success(), "{output:?}");
    let shown = turbolane().args(["trace", "--json"]).arg(at("trace")).output().unwrap();
    let found: report::record::RecordSummary = serde_json::from_slice(&shown.stdout).unwrap();
    let mark = &found.marks[0];
    assert_eq!(
        (mark.name.as_str(), mark.level, mark.calls),
        ("hinted:tl_wide_begin to tl_wide_end", 2, 5)
    );
    let task = found.tasks.iter().find(|task| task.name == "hinted").unwrap();
    assert!(0 < task.wide_ns && task.wide_ns < task.run_ns / 2, "{task:?}");
}
