// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the journal on plain files.

use super::*;
use crate::setting::{Form, Spec, plain_offset};
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
    let ratio = Spec {
        path: "msr".into(),
        form: Form::Msr(0x199),
        mask: 0xff00,
        others_are_reserved: false,
        yields: false,
    };
    let ratio = specs.add(ratio);
    let journal = journal(root.path(), specs);
    journal.change_surely(governor, Value::of_text(b"userspace")).unwrap();
    journal.change(ratio, Value::of_register(0xffff_ffff)).unwrap();
    assert_eq!(journal.read(ratio).unwrap().register(), 0x1122_3344_5566_ff88);
    assert_eq!(first_line(&root.path().join("governor")), "userspace");

    // someone else changes a bit of the register that is not ours
    msr.write_all_at(&0x0u64.to_le_bytes(), plain_offset(0x199)).unwrap();
    assert_eq!(journal.restore_all(), Restored { restored: 2, left: 0, failed: 0 });
    assert_eq!(first_line(&root.path().join("governor")), "schedutil");
    assert_eq!(journal.read(ratio).unwrap().register(), 0x7700, "only our bits went back");
    assert_eq!(journal.restore_all(), Restored::default());
}

/// A governor that someone else has set since stays; so does what we wrote before last count as
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

/// A program scribbles over the memory that it shares with its watchdog and is killed: the watchdog
/// writes nothing but what it noted itself, to where it noted it.
#[test]
fn a_scribbled_journal_changes_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let line = |name: &str| first_line(&root.path().join(name));
    for name in ["governor", "innocent", "governos"] {
        fs::write(root.path().join(name), format!("{name}'s\n")).unwrap();
    }
    // SAFETY: the child makes a journal, changes files and kills itself; it takes no lock of this
    // process.
    let child = unsafe { libc::fork() };
    if child == 0 {
        scribble_and_die(root.path());
    }
    let mut status = 0;
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, libc::SIGKILL, "it got as far as it should");
    // The watchdog restores a moment later.
    let start = std::time::Instant::now();
    while line("governor") != "governor's" && start.elapsed().as_secs() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let lines = ["governor", "innocent", "governos"].map(line);
    assert_eq!(lines, ["governor's", "innocent's", "governos's"]);
}

fn scribble_and_die(root: &Path) -> ! {
    let mut specs = Specs::default();
    let governor = specs.text("governor".into(), false);
    specs.text("governos".into(), false);
    let journal = journal(root, specs);
    let _watchdog = crate::watchdog::Watchdog::start(&journal).unwrap();
    journal.change(governor, Value::of_text(b"userspace")).unwrap();
    let length = journal.own.len() * size_of::<Shared>();
    // SAFETY: the shared mapping, all of it; no one else runs in this process.
    let shared =
        unsafe { std::slice::from_raw_parts_mut(journal.shared.as_ptr().cast::<u8>(), length) };
    replace(shared, b"governos", b"innocent");
    replace(shared, b"governor's", b"attacked!!");
    replace(shared, b"userspace", b"attacked!");
    for slot in 0..journal.own.len() as u32 {
        journal.slot(SettingId(slot)).shared.order.store(7 - slot, Release);
    }
    // SAFETY: ends this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    unreachable!("killed")
}

fn replace(all: &mut [u8], from: &[u8], to: &[u8]) {
    for at in 0..all.len() - from.len() {
        if all[at..].starts_with(from) {
            all[at..at + to.len()].copy_from_slice(to);
        }
    }
}
