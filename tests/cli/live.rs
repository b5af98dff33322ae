// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane run` for real, in affinity mode, which any kernel has: start, signals, exit codes,
//! control socket. As root; skipped without, and while another Turbolane runs.

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::thread::sleep;
use std::time::{Duration, Instant};

use report::times::Times;
use report::verify::VerifyReport;

use crate::schemas::follows;
use crate::turbolane;

/// One run at a time: a machine has one lane.
static LANE: Mutex<()> = Mutex::new(());

/// Long enough for a machine that builds something else meanwhile.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The right to run, or `None` where a run is not possible.
pub(crate) fn lane() -> Option<MutexGuard<'static, ()>> {
    let guard = LANE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let output = run(&["true"]);
    if output.status.success() {
        return Some(guard);
    }
    let why = text(&output.stderr);
    let expected = ["only root", "runs here already"];
    assert!(expected.iter().any(|words| why.contains(words)), "{why}");
    eprintln!("skipped: {why}");
    None
}

pub(crate) fn affinity_run() -> Command {
    let mut command = turbolane();
    command.args(["run", "--mode", "affinity", "--wide-cpus", "1"]);
    command
}

fn run(command: &[&str]) -> Output {
    affinity_run().arg("--").args(command).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Starts a run and waits until it answers on its socket.
fn started(command: &[&str]) -> Child {
    let mut child = affinity_run()
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    loop {
        let status = turbolane().args(["ctl", "status", "--json"]).output().unwrap();
        if text(&status.stdout).contains(&format!("\"pid\":{},", child.id())) {
            return child;
        }
        assert!(child.try_wait().unwrap().is_none(), "the run ended at once");
        assert!(begun.elapsed() < PATIENCE, "the run does not answer");
        sleep(Duration::from_millis(20));
    }
}

pub(crate) fn send(child: &Child, signal: &str) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// The command's exit code is passed on, and 128 + N says that signal N ended it.
#[test]
fn exit_codes_are_those_of_the_command() {
    let Some(_lane) = lane() else { return };
    assert_eq!(run(&["sh", "-c", "exit 3"]).status.code(), Some(3));
    assert_eq!(run(&["sh", "-c", "kill -9 $$"]).status.code(), Some(137));
    let missing = run(&["/no/such/program"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("error: cannot run /no/such/program"));
}

/// The times told are the command's own: within what it sees of itself and what is seen from
/// outside, and its CPU time is that of its children too.
#[test]
fn times_are_those_of_the_command() {
    let Some(_lane) = lane() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("times.json");
    std::fs::write(&file, "kept until there is something in its place").unwrap();
    let spin = "date +%s%N; sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; sleep 0.1; date +%s%N; times";
    let begun = Instant::now();
    let output =
        affinity_run().arg("--times").arg(&file).args(["--", "sh", "-c", spin]).output().unwrap();
    let outside_ns = begun.elapsed().as_nanos() as u64;
    assert!(output.status.success(), "{output:?}");
    follows("times", &std::fs::read(&file).unwrap());
    let times: Times = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let said = text(&output.stdout);
    let mut lines = said.lines();
    let [first, last] = [(); 2].map(|()| lines.next().unwrap().parse::<u64>().unwrap());
    assert!((last - first..outside_ns).contains(&times.time_ns), "{times:?}, {said}");
    // "0m0.120s 0m0.000s" for the shell, then for its children
    let seconds =
        |text: &str| text.trim_start_matches("0m").trim_end_matches('s').parse::<f64>().unwrap();
    let cpu_s: f64 = lines.flat_map(str::split_whitespace).map(seconds).sum();
    let told_s = times.cpu_time_ns as f64 / 1e9;
    assert!(
        cpu_s > 0.0 && told_s >= 0.98 * cpu_s - 0.02 && told_s <= cpu_s + 0.1,
        "{times:?}, {said}"
    );
}

/// Where the times cannot be written, nothing is begun.
#[test]
fn times_need_a_place() {
    let Some(_lane) = lane() else { return };
    let output = affinity_run()
        .args(["--times", "/no/such/folder/times", "--", "echo", "begun"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let told = text(&output.stderr);
    assert!(
        told.contains("cannot write /no/such/folder/times") && !told.contains("wide CPUs"),
        "{told}"
    );
}

/// A comparison with `run` compares the command: what taking over takes stands beside it.
#[test]
fn verify_leaves_out_what_run_takes() {
    let Some(_lane) = lane() else { return };
    let verify = |options: &str| {
        let mut command = turbolane();
        command.args(["verify", "--json", "--runs", "4", "--warmup", "0", "--run", options]);
        command.args(["--", "sleep", "0.02"]).output().unwrap()
    };
    let output = verify("--mode affinity --wide-cpus 1");
    assert!(matches!(output.status.code(), Some(0 | 1 | 77)), "{output:?}");
    let report: VerifyReport = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report.a.around_ns, report.b.samples.len()), (None, 4));
    assert!(report.b.around_ns.is_some_and(|ns| ns > 0), "{report:?}");
    assert!(report.b.samples.iter().all(|run| run.time_ns >= 20_000_000), "{report:?}");

    let nothing_run = verify("--mode affinity --check");
    assert_eq!(nothing_run.status.code(), Some(2), "{nothing_run:?}");
    assert!(text(&nothing_run.stderr).contains("did not run the command"), "{nothing_run:?}");
}

/// Standard output belongs to the command; what the run has to say goes to standard error.
#[test]
fn output_is_left_to_the_command() {
    let Some(_lane) = lane() else { return };
    let output = run(&["echo", "hello"]);
    assert_eq!(text(&output.stdout), "hello\n");
    assert!(text(&output.stderr).starts_with("turbolane: affinity mode, wide CPUs "));
}

/// Without a command a signal is the regular end; with one, SIGTERM is passed on to it.
#[test]
fn signals_end_a_run() {
    let Some(_lane) = lane() else { return };
    for signal in ["-INT", "-TERM", "-HUP"] {
        let mut run = started(&[]);
        send(&run, signal);
        assert_eq!(run.wait().unwrap().code(), Some(0), "{signal}");
    }
    let mut run = started(&["sleep", "60"]);
    send(&run, "-TERM");
    assert_eq!(run.wait().unwrap().code(), Some(143));
}

/// Settings change while it runs; a refused change says why and changes nothing.
#[test]
fn settings_change_while_it_runs() {
    let Some(_lane) = lane() else { return };
    let mut run = started(&[]);
    let ctl = |arguments: &[&str]| turbolane().arg("ctl").args(arguments).output().unwrap();
    assert!(ctl(&["set", "slice=3ms"]).status.success());
    let settings = text(&ctl(&["get", "--json", "slice"]).stdout);
    assert!(settings.contains(r#""value":"3ms""#), "{settings}");

    let status = text(&ctl(&["status", "--json"]).stdout);
    let cpus = |key: &str| status.split(&format!("\"{key}\":\"")).nth(1)?.split('"').next();
    let (wide, scalar) = (cpus("wide_cpus").unwrap(), cpus("scalar_cpus").unwrap());
    let mut impossible = vec![("1000".to_string(), "this machine has")];
    if !scalar.is_empty() {
        impossible.push((format!("{scalar},{wide}"), "no scalar CPU would be left"));
    }
    for (value, why) in impossible {
        let refused = ctl(&["set", &format!("wide-cpus={value}")]);
        assert_eq!(refused.status.code(), Some(2));
        let told = text(&refused.stderr);
        assert!(told.starts_with("error: cannot use --wide-cpus "), "{told}");
        assert!(told.contains(why) && told.contains("next:"), "{told}");
    }
    let settings = text(&ctl(&["get", "--json", "wide-cpus"]).stdout);
    assert!(settings.contains(r#""value":"1""#), "{settings}");

    send(&run, "-INT");
    assert!(run.wait().unwrap().success());
}

/// The second one is refused and told about the first.
#[test]
fn two_runs_at_once_fail() {
    let Some(_lane) = lane() else { return };
    let mut first = started(&[]);
    let second = run(&["true"]);
    assert_eq!(second.status.code(), Some(2));
    assert!(text(&second.stderr).contains(&first.id().to_string()));
    send(&first, "-INT");
    assert!(first.wait().unwrap().success());
}

/// After kill -9 nothing stands in the way of the next run.
#[test]
fn a_killed_run_leaves_nothing_in_the_way() {
    let Some(_lane) = lane() else { return };
    let mut first = started(&[]);
    send(&first, "-KILL");
    first.wait().unwrap();
    assert!(run(&["true"]).status.success());
}

/// A service manager hears when the run is ready, that its loop is alive, and when it stops.
#[test]
fn a_service_manager_is_notified() {
    let Some(_lane) = lane() else { return };
    let dir = tempfile::tempdir().unwrap();
    let address = dir.path().join("notify");
    let manager = UnixDatagram::bind(&address).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut child = affinity_run()
        .env("NOTIFY_SOCKET", &address)
        .env("WATCHDOG_USEC", "200000")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let message = || {
        let mut buffer = [0; 512];
        let bytes = manager.recv(&mut buffer).unwrap();
        text(&buffer[..bytes])
    };
    let ready = message();
    assert!(ready.starts_with("READY=1\nSTATUS=affinity mode, wide CPUs "), "{ready}");
    assert_eq!(message(), "WATCHDOG=1");
    assert_eq!(message(), "WATCHDOG=1");
    send(&child, "-TERM");
    let last = (0..100).map(|_| message()).find(|message| message != "WATCHDOG=1");
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
    assert!(child.wait().unwrap().success());
}
