// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane record --system` for real, judged by `turbolane trace --check`. As root, on a kernel that lets
//! BPF programs watch it; skipped elsewhere.

use std::process::Command;

use crate::turbolane;

/// What recording needs and this machine lacks: exit code 77.
const CANNOT: i32 = 77;

/// This machine's own scheduler, beside tasks that come and go, keeps the order, and nobody waits for long.
#[test]
fn this_machine_keeps_the_rules() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("machine.trace");
    let mut record = turbolane();
    record.args(["record", "--quiet", "--system", "--stalls", "--duration", "1s", "-o"]).arg(&file);
    let recorder = record.spawn().unwrap();
    let mut load = Command::new("sh");
    load.args(["-c", "for i in 1 2 3 4 5 6 7 8 9; do /bin/true & sleep 0.1; done; wait"]);
    assert!(load.status().unwrap().success());
    let code = recorder.wait_with_output().unwrap().status.code();
    if code == Some(CANNOT) {
        return eprintln!("skipped: this machine cannot be recorded");
    }
    assert_eq!(code, Some(0));
    // A machine that builds something else meanwhile lets tasks wait, but not for ever.
    let mut check = turbolane();
    check.args(["trace", "--check", "--longest-wait", "20s"]).arg(&file);
    let output = check.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("kept"), "{text}");
}
