// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane profile --pid` on this machine, whatever it is. What it says of loads, a test
//! machine's test shows.

use crate::turbolane;

fn refused(pid: &str, why: &str) {
    let output = turbolane().args(["profile", "--pid", pid]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
    let stderr = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    let start = format!("error: cannot profile process {pid} why: {why}");
    assert!(stderr.starts_with(&start), "{stderr}");
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(output.stdout.is_empty());
}

/// The first process is never stopped, and a number that no process has is no fault of the CPU.
#[test]
fn wrong_processes_fail_on_any_cpu() {
    refused("1", "the first process cannot be stopped");
    refused("4194304", "there is no such process");
}
