// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane advise` on this machine: a command is started, sampled, judged and ended.

use report::advise::{Advice, Worth};

use crate::sample::burner;
use crate::turbolane;

/// The wide function is found with its share, whatever started it: a shell's child belongs to the
/// command. The clock that counts is the named CPU's, and the program, which would never end, is
/// ended.
#[test]
fn a_command_is_sampled_and_ended() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = burner(folder.path()) else {
        return eprintln!("skipped (77): a C compiler and a CPU with FMA are needed");
    };
    let mut advise = turbolane();
    advise.args([
        "advise",
        "--machine",
        "xeon-gold-6130",
        "--for",
        "1s",
        "--json",
        "--",
        "sh",
        "-c",
    ]);
    let script = format!("echo noise; {}; echo $?", program.display());
    let output = advise.arg(script).output().unwrap();
    if output.status.code() == Some(77) {
        return eprintln!("skipped (77): {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("noise"));
    let advice: Advice = serde_json::from_slice(&output.stdout).unwrap();
    let [found] = advice.found.as_slice() else { panic!("{:?}", advice.found) };
    assert_eq!((found.function.as_str(), found.process.as_str()), ("burn", "burner"));
    assert_eq!(found.sustained_level, 1);
    assert!(advice.cpu.is_other && advice.prediction.is_some(), "{advice:?}");
    // Sections of milliseconds: the hold after them is next to nothing.
    assert!(advice.verdict.worth != Worth::Yes, "{:?}", advice.verdict);
}

/// A command that ends at once leaves nothing to judge, and that is an answer.
#[test]
fn a_short_command_is_answered() {
    let mut advise = turbolane();
    let output =
        advise.args(["advise", "--machine", "xeon-gold-6130", "--", "true"]).output().unwrap();
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(77) => assert!(errors.contains("cannot sample the CPUs"), "{errors}"),
        code => assert!(code == Some(0) && text.contains("Worth it: N"), "{text}{errors}"),
    }
}
