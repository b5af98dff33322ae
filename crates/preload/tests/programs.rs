// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that know nothing of the library run right under it, with every strategy.

#[path = "../../preloaded/tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use common::{cc, has_compiler, library, text};

/// What is preloaded.
const LIBRARY: &str = "libturbolane_preload.so";

const STRATEGIES: [&str; 5] = ["glibc", "spin", "block", "queue-spin", "queue-block"];

/// The C program; `None`, said loudly, where there is no compiler.
fn contender(folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contender.c");
    let program = folder.join("contender");
    has_compiler().then(|| {
        cc(&source, &program, &[]);
        program
    })
}

/// The command under the library with these rules.
fn under(folder: &TempDir, rules: &str, command: &mut Command) -> Output {
    let file = folder.path().join("locks");
    std::fs::write(&file, rules).unwrap();
    command.env("LD_PRELOAD", library(LIBRARY)).env("TURBOLANE_LOCKS", file).output().unwrap()
}

/// "N mutexes of ours, M acquisitions waited" of the report.
fn reported(output: &Output) -> (u64, u64) {
    let stderr = text(&output.stderr);
    let line = stderr.lines().find(|line| line.contains("mutexes of ours")).expect(&stderr);
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    (numbers[0], numbers[1])
}

#[test]
fn a_c_program_does_what_it_must() {
    let folder = TempDir::new().unwrap();
    let Some(program) = contender(folder.path()) else { return };
    for strategy in STRATEGIES {
        let rules = format!("report\nall = {strategy}\n");
        let output = under(&folder, &rules, &mut Command::new(&program));
        assert!(output.status.success(), "{strategy}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "all as it should be\n");
        let (mutexes, waits) = reported(&output);
        // The library was in the way if it was told to be.
        assert_eq!(mutexes > 0 && waits > 0, strategy != "glibc", "{strategy}: {mutexes} {waits}");
    }
}

#[test]
fn a_fork_finds_empty_queues() {
    let folder = TempDir::new().unwrap();
    let Some(program) = contender(folder.path()) else { return };
    for strategy in ["queue-spin", "queue-block"] {
        let rules = format!("all = {strategy}\n");
        let output = under(&folder, &rules, Command::new(&program).arg("fork"));
        assert!(output.status.success(), "{strategy}: {}", text(&output.stderr));
    }
}

/// A rule by object is for the mutexes of that object alone, one by contention for those that wait.
#[test]
fn rules_pick_mutexes() {
    let folder = TempDir::new().unwrap();
    let Some(program) = contender(folder.path()) else { return };
    let mutexes = |rules: &str| {
        let output = under(&folder, &format!("report\n{rules}\n"), &mut Command::new(&program));
        assert!(output.status.success(), "{}", text(&output.stderr));
        reported(&output).0
    };
    assert!(mutexes("object main = queue-spin") > 0);
    assert_eq!(mutexes("object libsomething = queue-spin"), 0);
    assert_eq!(mutexes("creator libc = queue-spin"), 0);
    assert!(mutexes("contended 1 = queue-block") > 0);
    assert_eq!(mutexes("contended 100000000 = queue-block"), 0);
    assert_eq!(mutexes("address 0x1-0x2 = spin"), 0);
}

#[test]
fn nonsense_is_said_and_changes_nothing_fails() {
    let folder = TempDir::new().unwrap();
    let output = under(&folder, "all = quick\n", Command::new("sh").args(["-c", "echo ran"]));
    assert_eq!(text(&output.stdout), "ran\n");
    let stderr = text(&output.stderr);
    assert!(stderr.contains("line 1: strategy \"quick\" is not known"), "{stderr}");
    assert!(stderr.contains("All locks stay glibc's."), "{stderr}");
    let missing = Command::new("true")
        .env("LD_PRELOAD", library(LIBRARY))
        .env("TURBOLANE_LOCKS", folder.path().join("nowhere"))
        .output()
        .unwrap();
    assert!(missing.status.success());
    assert!(text(&missing.stderr).contains("No such file"), "{}", text(&missing.stderr));
    let silent = Command::new("true").env("LD_PRELOAD", library(LIBRARY)).output().unwrap();
    assert_eq!(text(&silent.stderr), "");
}

/// Programs that happen to be here: threads in Python, in xz, in sqlite3.
#[test]
fn other_programs_run() {
    let folder = TempDir::new().unwrap();
    let python = "import threading as t\nl = t.Lock(); n = [0]\ndef f():\n  for _ in range(2000):\n    \
                  with l: n[0] += 1\nw = [t.Thread(target=f) for _ in range(4)]\n\
                  [x.start() for x in w]; [x.join() for x in w]; print(n[0])";
    let programs: [(&str, &[&str], &str); 3] = [
        ("python3", &["-c", python], "8000\n"),
        (
            "sh",
            &["-c", "head -c 3000000 /dev/zero | xz -1 -T2 --block-size=500000 | xz -d | wc -c"],
            "3000000\n",
        ),
        (
            "sqlite3",
            &[":memory:", "create table t(a); insert into t values(7); select a from t;"],
            "7\n",
        ),
    ];
    for strategy in ["queue-block", "spin"] {
        for (program, arguments, expected) in programs {
            if Command::new(program).arg("--version").output().is_err() {
                println!("skipped (77): there is no {program}");
                continue;
            }
            let rules = format!("all = {strategy}\n");
            let output = under(&folder, &rules, Command::new(program).args(arguments));
            assert_eq!(text(&output.stdout), expected, "{program}: {}", text(&output.stderr));
        }
    }
}
