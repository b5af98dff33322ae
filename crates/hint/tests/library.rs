// SPDX-License-Identifier: MIT OR Apache-2.0
//! libturbolane_hint.so, as C programs use it that want hints and nothing else.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

use turbolane_hint::page::MODE_SCX;
use turbolane_hint::protocol::SOCKET_ENV;

/// Cargo builds the library for this test, and leaves it beside it.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libturbolane_hint.so")
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// It exports the hint's four functions and nothing else.
#[test]
fn it_exports_the_hint() {
    let symbols = output(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let mut names: Vec<&str> =
        symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    names.sort_unstable();
    assert_eq!(names, ["tl_scalar_for", "tl_wide_begin", "tl_wide_end", "tl_wide_status"]);
}

/// A program with the public header that is linked against it; `source` from the root.
fn program(source: &str, folder: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = folder.join("program");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Werror", "-pthread", "-I"]).arg(root.join("include"));
    cc.arg("-o").arg(&program).arg(root.join(source)).arg(library());
    output(cc.arg(format!("-Wl,-rpath,{}", library().parent().unwrap().display())));
    program
}

/// A thread that is to be cancelled is not cancelled while the library asks a scheduler: what waits
/// for a socket would be a place for it.
#[test]
fn a_cancelled_thread_gives_hints() {
    let folder = tempfile::tempdir().unwrap();
    let program = program("crates/hint/tests/cancelled.c", folder.path());
    let socket = folder.path().join("hint.sock");
    let daemon = common::FakeDaemon::start(&socket, MODE_SCX, 8).unwrap();
    let text = output(Command::new(&program).env(SOCKET_ENV, &socket));
    assert_eq!(text, "begin 0, end 0, cancelled\n");
    daemon.stop();
}

/// A C program finds a scheduler, and its sections arrive.
#[test]
fn a_c_program_gives_hints_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let program = program("crates/turbolane/examples/c/hint.c", folder.path());
    let socket = folder.path().join("hint.sock");
    let mut run = Command::new(&program);
    run.env(SOCKET_ENV, &socket);
    assert!(output(&mut run).starts_with("scheduler: none\n"));
    let daemon = common::FakeDaemon::start(&socket, MODE_SCX, 8).unwrap();
    daemon.make_all_fit();
    // On a loaded machine the daemon may need longer than the library's patience.
    let served = (0..8).position(|_| output(&mut run).starts_with("scheduler: scx\n"));
    let slot = &daemon.page.slot[served.expect("no try was served")];
    assert_eq!(slot.seq.load(Relaxed), 1000);
    daemon.stop();
}
