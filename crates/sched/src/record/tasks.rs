// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is there when a recording begins: what the kernel's side writes about each task.

use std::collections::HashSet;
use std::io::{self, Read};

use cpumodel::CpuSet;
use libbpf_rs::{Iter, Link};
use trace::Name;

use super::raw::cpus_of;

/// Bytes of `struct tl_trace_task` (bpf/trace.h).
const TASK_BYTES: usize = 160;
/// Where its affinity begins, and its words.
const WORDS_AT: usize = 32;
const WORDS: u64 = 16;

/// A task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub tid: u32,
    pub tgid: u32,
    pub parent_tgid: u32,
    /// On which it runs, waits or ran last.
    pub cpu: u16,
    pub kernel: bool,
    pub running: bool,
    pub name: Name,
    pub affinity: CpuSet,
}

/// What the iterator writes.
pub(super) fn read_tasks(link: &Link) -> io::Result<Vec<Task>> {
    let mut iter = Iter::new(link).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    iter.read_to_end(&mut bytes)?;
    let (rows, _) = bytes.as_chunks::<TASK_BYTES>();
    Ok(rows.iter().map(|row| task_of(row)).collect())
}

fn task_of(bytes: &[u8]) -> Task {
    let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
    Task {
        tid: word(0),
        tgid: word(4),
        parent_tgid: word(8),
        cpu: word(12) as u16,
        kernel: bytes[14] != 0,
        running: bytes[15] != 0,
        name: Name::new(&bytes[16..WORDS_AT]),
        affinity: cpus_of(&bytes[WORDS_AT..], WORDS),
    }
}

/// The threads of this process, of its children, and of theirs.
pub(super) fn descendants(tasks: &[Task], root: u32) -> HashSet<u32> {
    let mut family = HashSet::from([root]);
    loop {
        let children = tasks.iter().filter(|task| family.contains(&task.parent_tgid));
        let new: Vec<u32> =
            children.map(|task| task.tgid).filter(|tgid| !family.contains(tgid)).collect();
        if new.is_empty() {
            break;
        }
        family.extend(new);
    }
    tasks.iter().filter(|task| family.contains(&task.tgid)).map(|task| task.tid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(tid: u32, tgid: u32, parent_tgid: u32) -> Vec<u8> {
        let mut bytes = [tid, tgid, parent_tgid].map(u32::to_ne_bytes).concat();
        bytes.extend(5u16.to_ne_bytes());
        bytes.extend([0, 1]);
        bytes.extend(*b"a name\0rubbish..");
        bytes.extend(0b11u64.to_ne_bytes());
        bytes.resize(TASK_BYTES, 0);
        bytes
    }

    /// The fields lie where bpf/trace.h says.
    #[test]
    fn tasks_are_understood() {
        let task = task_of(&bytes(7, 6, 1));
        assert_eq!((task.tid, task.tgid, task.parent_tgid, task.cpu), (7, 6, 1, 5));
        assert!(task.running && !task.kernel);
        assert_eq!(
            (task.name.to_string().as_str(), task.affinity.to_string().as_str()),
            ("a name", "0-1")
        );
    }

    /// A family is threads and children and their children, not parents or strangers.
    #[test]
    fn families_are_whole() {
        let tasks = [(1, 1, 0), (10, 10, 1), (11, 10, 1), (20, 20, 10), (30, 30, 20), (40, 40, 1)];
        let tasks: Vec<Task> = tasks.map(|(a, b, c)| task_of(&bytes(a, b, c))).into();
        assert_eq!(descendants(&tasks, 10), HashSet::from([10, 11, 20, 30]));
        assert_eq!(descendants(&tasks, 99), HashSet::new());
    }
}
