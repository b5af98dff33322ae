// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane profile --pid` on this machine, whatever it is. What it says of loads, a test machine's test shows.

use crate::turbolane;

/// The first process is never stopped: where there are no counters that is the reason, and where there are, that it
/// is the first.
#[test]
fn the_first_process_fails() {
    let output = turbolane().args(["profile", "--pid", "1"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("error: cannot profile process 1 why:"), "{told}");
    let code = if told.contains("the first process cannot be stopped") { 2 } else { 77 };
    assert_eq!(output.status.code(), Some(code), "{told}");
    assert!(output.stdout.is_empty());
}
