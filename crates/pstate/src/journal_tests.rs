// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the journal on plain files.

use super::*;
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

fn journal(root: &Path, specs: Specs) -> Journal {
    let root = CString::new(root.as_os_str().as_encoded_bytes()).unwrap();
    Journal::new(&root, specs).unwrap()
}

fn first_line(path: &Path) -> String {
    fs::read_to_string(path).unwrap().lines().next().unwrap().to_string()
}

/// Changes go back in reverse, registers by their own bits only, and a second restore has nothing
/// to do.
#[test]
fn changes_go_back() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("governor"), "schedutil\n").unwrap();
    let msr = fs::File::create(root.path().join("msr")).unwrap();
    msr.write_all_at(&0x1122_3344_5566_7788u64.to_le_bytes(), plain_offset(0x199)).unwrap();
    let mut specs = Specs::default();
    let governor = specs.text("governor".into(), true);
    let ratio = Spec { path: "msr".into(), form: Form::Msr(0x199), mask: 0xff00, yields: false };
    let ratio = specs.add(ratio);
    let journal = journal(root.path(), specs);
    journal.change_surely(governor, Value::of_text(b"userspace")).unwrap();
    journal.change(ratio, Value::of_register(0xffff_ffff)).unwrap();
    assert_eq!(journal.read(ratio).unwrap().register(), 0x1122_3344_5566_ff88);
    assert_eq!(first_line(&root.path().join("governor")), "userspace");

    // somebody else changes a bit of the register that is not ours
    msr.write_all_at(&0x0u64.to_le_bytes(), plain_offset(0x199)).unwrap();
    assert_eq!(journal.restore_all(), Restored { restored: 2, left: 0, failed: 0 });
    assert_eq!(first_line(&root.path().join("governor")), "schedutil");
    assert_eq!(journal.read(ratio).unwrap().register(), 0x7700, "only our bits went back");
    assert_eq!(journal.restore_all(), Restored::default());
}

/// A governor that somebody else has set since stays; so does what we wrote before last count as
/// ours: a kill may come between the note and the write.
#[test]
fn somebody_elses_change_stays() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("governor");
    fs::write(&path, "schedutil\n").unwrap();
    let mut specs = Specs::default();
    let governor = specs.text("governor".into(), true);
    let journal = journal(root.path(), specs);
    journal.change(governor, Value::of_text(b"userspace")).unwrap();
    fs::write(&path, "performance\n").unwrap();
    assert!(matches!(journal.put_back(governor), Err(Error::Taken(_))));
    assert_eq!(journal.restore_all(), Restored { restored: 0, left: 1, failed: 0 });
    assert_eq!(first_line(&path), "performance");

    journal.change(governor, Value::of_text(b"userspace")).unwrap();
    journal.change(governor, Value::of_text(b"powersave")).unwrap();
    fs::write(&path, "userspace\n").unwrap();
    assert_eq!(journal.restore_all().restored, 1);
    assert_eq!(first_line(&path), "performance");
}

/// A file that takes no write is refused with the reason, and nothing is left to restore; a file
/// that vanished (its CPU went offline) counts as restored.
#[test]
fn refusals_leave_nothing_fail() {
    let root = tempfile::tempdir().unwrap();
    let mut specs = Specs::default();
    let missing = specs.text("missing".into(), false);
    let setting = specs.text("setting".into(), false);
    let journal = journal(root.path(), specs);
    let error = journal.change(missing, Value::of_decimal(1)).unwrap_err();
    assert_eq!(error.errno(), libc::ENOENT);
    assert_eq!(journal.restore_all(), Restored::default());

    fs::write(root.path().join("setting"), "5\n").unwrap();
    journal.change(setting, Value::of_decimal(7)).unwrap();
    fs::remove_file(root.path().join("setting")).unwrap();
    assert_eq!(journal.restore_all(), Restored { restored: 1, left: 0, failed: 0 });
}
