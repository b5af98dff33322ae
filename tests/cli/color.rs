// SPDX-License-Identifier: MIT OR Apache-2.0
//! Colours of verdicts: on a terminal, unless the user wants none; never in a file.

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Command;

use crate::turbolane;

const DOCTOR: [&str; 3] = ["doctor", "--machine", "../../tests/data/machines/skylake-sp"];
/// The status of a check that is fine.
const GREEN: &str = "\u{1b}[1m\u{1b}[32mok \u{1b}[0m";

/// The command in an environment without the variables that ask for colours: a build service sets
/// CI, and has colours even on a terminal that says that it has none.
fn doctor(arguments: &[&str], no_color: &str) -> Command {
    let mut command = turbolane();
    command.args(DOCTOR).args(arguments).env("NO_COLOR", no_color);
    for asks in ["CI", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(asks);
    }
    command
}

fn piped(arguments: &[&str], no_color: &str) -> String {
    let mut command = doctor(arguments, no_color);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// What the command writes to a terminal of that kind.
fn on_terminal(arguments: &[&str], no_color: &str, term: &str) -> String {
    let (mut ours, mut theirs) = (0, 0);
    // SAFETY: writes two descriptors, which are nobody's yet; the rest is not given.
    let (mut ours, theirs) = unsafe {
        let (none, default, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
        assert_eq!(libc::openpty(&mut ours, &mut theirs, none, default, size), 0);
        (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    };
    let mut command = doctor(arguments, no_color);
    command.env("TERM", term).stdout(theirs);
    let mut child = command.spawn().unwrap();
    // It holds the terminal's other side; without it the end can be read.
    drop(command);
    let (mut shown, mut part) = (Vec::new(), [0; 4096]);
    // Linux ends the output of a terminal that no one has open with EIO.
    while let Ok(read @ 1..) = ours.read(&mut part) {
        shown.extend_from_slice(&part[..read]);
    }
    child.wait().unwrap();
    String::from_utf8(shown).unwrap()
}

#[test]
fn a_terminal_has_colours() {
    assert!(on_terminal(&[], "", "xterm").contains(GREEN));
    assert!(!on_terminal(&[], "1", "xterm").contains('\u{1b}'), "NO_COLOR");
    assert!(!on_terminal(&[], "", "dumb").contains('\u{1b}'), "a terminal without colours");
    assert!(!on_terminal(&["--color", "never"], "", "xterm").contains('\u{1b}'));
}

/// Text for a file has none, unless it is asked for; JSON never has.
#[test]
fn a_file_has_colours_if_it_should() {
    assert!(!piped(&[], "").contains('\u{1b}'));
    let always = piped(&["--color", "always"], "1");
    assert!(always.contains(GREEN), "{always}");
    let plain: String = ["\u{1b}[1m", "\u{1b}[32m", "\u{1b}[33m", "\u{1b}[31m", "\u{1b}[0m"]
        .iter()
        .fold(always, |text, code| text.replace(code, ""));
    assert_eq!(plain, piped(&[], ""), "the text is the same");
    assert!(!piped(&["--color", "always", "--json"], "").contains('\u{1b}'));
}

/// A word that is none of the three is refused.
#[test]
fn other_words_fail() {
    let output = turbolane().args(DOCTOR).args(["--color", "green"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("always, never, auto") || said.contains("auto, always, never"), "{said}");
}
