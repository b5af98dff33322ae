// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each task has done: the rows that bpf/list.bpf.h writes, in the form that the control
//! socket sends.

use std::io::{self, Read};

use libbpf_rs::{Iter, Link};
use report::ctl::TASKS_MAX;
use report::lane::{LaneTask, LaneTasks};

/// Bytes of `struct tl_task_row` (bpf/lane.h).
const ROW_BYTES: usize = 88;
/// Where its members begin.
const CHARGED_AT: usize = 8;
const SCORE_AT: usize = 56;
const NAME_AT: usize = 68;
const TYPE_AT: usize = 84;

/// Tasks whose CPU time has grown since then: those that ran the most, if there are too many.
pub(crate) fn list(link: &Link, since_ns: u64, now_ns: u64) -> io::Result<LaneTasks> {
    let mut iter = Iter::new(link).map_err(io::Error::other)?;
    let mut rows = Vec::new();
    iter.read_to_end(&mut rows)?;
    Ok(tasks_of(&rows, since_ns, now_ns, TASKS_MAX))
}

fn tasks_of(rows: &[u8], since_ns: u64, now_ns: u64, max: usize) -> LaneTasks {
    let (rows, _) = rows.as_chunks::<ROW_BYTES>();
    let ran = rows.iter().filter(|row| u64_at(*row, CHARGED_AT) >= since_ns);
    let mut tasks: Vec<LaneTask> = ran.map(|row| task_of(row)).collect();
    let left_out = tasks.len().saturating_sub(max) as u64;
    if left_out > 0 {
        tasks.select_nth_unstable_by_key(max, |task| std::cmp::Reverse(task.run_ns));
        tasks.truncate(max);
    }
    LaneTasks { now_ns, tasks: Some(tasks), left_out }
}

fn task_of(row: &[u8]) -> LaneTask {
    let name = row[NAME_AT..TYPE_AT].split(|byte| *byte == 0).next().unwrap_or_default();
    let (score_q10, samples) = (u16_at(row, SCORE_AT), u32_at(row, SCORE_AT + 4));
    LaneTask {
        start_ns: u64_at(row, 0),
        run_ns: u64_at(row, 16),
        wide_run_ns: u64_at(row, 24),
        level_run_ns: u64_at(row, 32),
        migrations: u32_at(row, 40).into(),
        traps: u32_at(row, 44).into(),
        tid: u32_at(row, 48),
        pid: u32_at(row, 52),
        power_score_q10: (samples > 0).then_some(score_q10.into()),
        cpu: u32_at(row, 64),
        name: String::from_utf8_lossy(name).into_owned(),
        task_type: row[TYPE_AT].into(),
        license_level: row[TYPE_AT + 1].into(),
    }
}

fn u16_at(row: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([row[at], row[at + 1]])
}

fn u32_at(row: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([0, 1, 2, 3].map(|byte| row[at + byte]))
}

fn u64_at(row: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| row[at + byte]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(tid: u32, counted_ns: u64, run_ns: u64, samples: u32) -> Vec<u8> {
        let mut row = [5, counted_ns, run_ns, 20, 40].map(u64::to_ne_bytes).concat();
        row.extend([3u32, 4, tid, 9].map(u32::to_ne_bytes).concat());
        row.extend(1536u16.to_ne_bytes());
        row.extend([1, 0]);
        row.extend([samples, 7].map(u32::to_ne_bytes).concat());
        row.extend(*b"wide\0rest\0......");
        row.extend([2, 3, 0, 0]);
        row
    }

    /// The fields lie where bpf/lane.h says.
    #[test]
    fn rows_are_understood() {
        let expected = LaneTask {
            tid: 8,
            pid: 9,
            name: "wide".into(),
            start_ns: 5,
            task_type: 2,
            license_level: 3,
            cpu: 7,
            run_ns: 30,
            wide_run_ns: 20,
            level_run_ns: 40,
            migrations: 3,
            traps: 4,
            power_score_q10: Some(1536),
        };
        let row = row(8, 100, 30, 1);
        assert_eq!(row.len(), ROW_BYTES);
        assert_eq!(task_of(&row), expected);
    }

    /// A score that no counter has fed is unknown, not 0.
    #[test]
    fn a_score_without_samples_is_unknown() {
        assert_eq!(task_of(&row(8, 100, 30, 0)).power_score_q10, None);
    }

    /// Tasks that have not run since then are no one's business; neither is half a row.
    #[test]
    fn only_what_ran_is_listed() {
        let rows = [row(1, 99, 1, 0), row(2, 100, 1, 0), row(3, 101, 1, 0), vec![1; 20]].concat();
        let told = tasks_of(&rows, 100, 200, 10);
        let tids: Vec<u32> = told.tasks.unwrap().iter().map(|task| task.tid).collect();
        assert_eq!((tids, told.left_out, told.now_ns), (vec![2, 3], 0, 200));
    }

    /// Of too many tasks, those that ran the most are listed, and the others are counted.
    #[test]
    fn too_many_are_counted() {
        let rows: Vec<u8> = (1..=50).flat_map(|tid| row(tid, 100, tid.into(), 0)).collect();
        let told = tasks_of(&rows, 0, 200, 10);
        let mut tids: Vec<u32> = told.tasks.unwrap().iter().map(|task| task.tid).collect();
        tids.sort_unstable();
        assert_eq!((tids, told.left_out), ((41..=50).collect(), 40));
    }
}
