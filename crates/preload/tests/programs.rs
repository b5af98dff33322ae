// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that know nothing of the library run right under it, with every strategy.

#[path = "../../preloaded/tests/common/mod.rs"]
mod common;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use common::{cc, has_compiler, library, text};

/// What is preloaded.
const LIBRARY: &str = "libturbolane_preload.so";

const STRATEGIES: [&str; 5] = ["glibc", "spin", "block", "queue-spin", "queue-block"];
const BOOSTING: [&str; 2] = ["owner", "delegate"];

/// The C program; `None`, said loudly, where there is no compiler.
fn contender(folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/contender.c");
    let program = folder.join("contender");
    has_compiler().then(|| {
        cc(&source, &program, &[]);
        program
    })
}

/// What the command does under the library with these rules.
fn under(folder: &TempDir, rules: &str, command: &mut Command) -> Output {
    prepared(folder, rules, command).output().unwrap()
}

fn prepared<'a>(folder: &TempDir, rules: &str, command: &'a mut Command) -> &'a mut Command {
    let file = folder.path().join("locks");
    std::fs::write(&file, rules).unwrap();
    command.env("LD_PRELOAD", library(LIBRARY)).env("TURBOLANE_LOCKS", file)
}

/// "N mutexes of ours, M acquisitions waited, B boosts" of the report.
fn reported(output: &Output) -> [u64; 3] {
    let stderr = text(&output.stderr);
    let line = stderr.lines().find(|line| line.contains("mutexes of ours")).expect(&stderr);
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().unwrap()
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
        let [mutexes, waits, boosts] = reported(&output);
        // The library was in the way if it was told to be.
        assert_eq!(mutexes > 0 && waits > 0, strategy != "glibc", "{strategy}: {mutexes} {waits}");
        assert_eq!(boosts, 0);
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
        reported(&output)[0]
    };
    assert!(mutexes("object main = queue-spin") > 0);
    assert_eq!(mutexes("object libsomething = queue-spin"), 0);
    assert_eq!(mutexes("creator libc = queue-spin"), 0);
    assert!(mutexes("contended 1 = queue-block") > 0);
    assert_eq!(mutexes("contended 100000000 = queue-block"), 0);
    assert_eq!(mutexes("address 0x1-0x2 = spin"), 0);
}

/// Where P-states are, and how many CPUs there may be.
fn machine(folder: &TempDir, cpus: u32) -> PathBuf {
    let root = folder.path().join("machine");
    // the CPUs of this machine: threads run on them
    let cpus = format!("cpus = 0-{}", cpus - 1);
    let (_, text) = pstate::fake::MACHINES.iter().find(|(name, _)| *name == MACHINE).unwrap();
    let lines = text.lines().map(|line| if line.starts_with("cpus = ") { &cpus } else { line });
    pstate::fake::build_from(&lines.collect::<Vec<_>>().join("\n"), &root).unwrap();
    std::fs::create_dir_all(root.join("run")).unwrap();
    root
}

/// One whose P-states are set by registers, of each CPU by itself.
const MACHINE: &str = "msr-i7-4770";

/// The text of all of a machine's files.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push((entry.path(), std::fs::read(entry.path()).unwrap())),
        }
    }
    found.sort();
    found
}

/// One with as many CPUs as this, and the text of its registers.
fn this_machine(folder: &TempDir) -> (PathBuf, Vec<(PathBuf, Vec<u8>)>) {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let root = machine(folder, u32::try_from(cpus).unwrap());
    let before = files(&root.join("dev"));
    (root, before)
}

/// Holders are boosted, and all P-states are as before at the end: of a program that ends as it
/// should, in the children of its forks too, and of one that is killed.
#[test]
fn holders_are_boosted() {
    let folder = TempDir::new().unwrap();
    let Some(program) = contender(folder.path()) else { return };
    let (root, before) = this_machine(&folder);
    for strategy in BOOSTING {
        let rules = format!("report\nall = {strategy}\nmachine {}\n", root.display());
        let output = under(&folder, &rules, Command::new(&program).arg("fork"));
        assert!(output.status.success(), "{strategy}: {}", text(&output.stderr));
        let [_, waits, boosts] = reported(&output);
        assert!(waits > 0 && boosts > 0, "{strategy}: {waits} waits, {boosts} boosts");
        assert!(files(&root.join("dev")) == before, "{strategy}: a P-state is not restored");
        let mut kills = Command::new(&program);
        prepared(&folder, &rules, kills.arg("kill"));
        let mut killed = kills.stdout(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while files(&root.join("dev")) == before && killed.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "{strategy}: nothing is boosted");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(
            killed.try_wait().unwrap().is_none(),
            "{strategy}: it ended before anything was boosted"
        );
        assert_eq!(killed.wait().unwrap().signal(), Some(9), "{strategy}");
        let restored = || files(&root.join("dev")) == before;
        let deadline = Instant::now() + Duration::from_secs(10);
        while !restored() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(restored(), "{strategy}: a P-state is not restored after SIGKILL");
    }
}

/// A thread ends while it holds a plain mutex for which it is boosted: the mutex stays taken, and
/// the P-state is restored at the end of the program.
#[test]
fn a_holder_that_ends_is_restored_at_the_end() {
    let folder = TempDir::new().unwrap();
    let Some(program) = contender(folder.path()) else { return };
    let (root, before) = this_machine(&folder);
    for strategy in BOOSTING {
        let rules = format!("report\nall = {strategy}\nmachine {}\n", root.display());
        let output = under(&folder, &rules, Command::new(&program).arg("die"));
        assert!(output.status.success(), "{strategy}: {}", text(&output.stderr));
        assert!(reported(&output)[2] > 0, "{strategy}: nothing is boosted");
        assert!(files(&root.join("dev")) == before, "{strategy}: a P-state is not restored");
    }
}

/// So are those for whom a barrier waits; mutexes have no strategy then.
#[test]
fn late_threads_are_boosted() {
    let folder = TempDir::new().unwrap();
    let Some(program) = contender(folder.path()) else { return };
    let (root, before) = this_machine(&folder);
    for strategy in BOOSTING {
        let rules = format!("report\nbarriers = {strategy}\nmachine {}\n", root.display());
        let output = under(&folder, &rules, &mut Command::new(&program));
        assert!(output.status.success(), "{strategy}: {}", text(&output.stderr));
        let [mutexes, _, boosts] = reported(&output);
        assert!(mutexes == 0 && boosts > 10, "{strategy}: {mutexes} mutexes, {boosts} boosts");
        assert!(files(&root.join("dev")) == before, "{strategy}: a P-state is not restored");
    }
}

/// A second process, and one without P-states, do without.
#[test]
fn one_process_boosts_fails() {
    let folder = TempDir::new().unwrap();
    let Some(program) = contender(folder.path()) else { return };
    let root = machine(&folder, 2);
    let rules = format!("report\nall = owner\nmachine {}\n", root.display());
    let lock = std::fs::File::create(root.join("run/turbolane-pstates.lock")).unwrap();
    lock.lock().unwrap();
    let second = under(&folder, &rules, &mut Command::new(&program));
    assert!(second.status.success(), "{}", text(&second.stderr));
    assert_eq!(reported(&second)[2], 0);
    drop(lock);
    std::fs::remove_dir_all(root.join("dev")).unwrap();
    let without = under(&folder, &rules, &mut Command::new(&program));
    assert!(without.status.success(), "{}", text(&without.stderr));
    assert_eq!(reported(&without)[2], 0);
    let said = text(&without.stderr);
    assert!(said.contains("Nothing is boosted; all other settings apply."), "{said}");
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
