// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a kernel log for signs that something went wrong in the kernel.
//!
//! A test that passed while the kernel complained has not passed. So every
//! line that starts a complaint is a *finding*, unless the run's allow-list
//! has a text that occurs in it: some tests provoke a complaint on purpose.
//!
//! Complaints come with a tail (registers, a call trace). The tail belongs to
//! the finding before it and is no finding of its own; a tail without a head
//! is one, because then the head was lost.

/// Texts that begin a complaint, wherever they stand in the line.
const HEADS: [&str; 21] = [
    "BUG: ",
    "kernel BUG at ",
    "WARNING: ",
    "Oops: ",
    "Kernel panic",
    "general protection fault",
    "Unable to handle kernel",
    "stack segment: ",
    "divide error: ",
    "double fault: ",
    "int3: ",
    "invalid opcode: 0000",
    "soft lockup",
    "hard LOCKUP",
    "blocked for more than",
    "detected stalls on CPU",
    "self-detected stall on CPU",
    "starved for",
    "list_add corruption",
    "list_del corruption",
    "refcount_t: ",
];

/// Texts of the tail of a complaint.
const TAILS: [&str; 2] = ["Call Trace:", "RIP: 0010:"];

/// How many lines after its head a tail may still stand.
const TAIL_LINES: usize = 120;

/// The line with which a warning's report ends.
const END: &str = "---[ end trace";

/// How sched_ext says that a scheduler ended. The reasons in `SCX_FINE` are
/// ordinary, all others mean that the kernel threw it out.
const SCX_ENDED: &str = "disabled (";
const SCX_FINE: [&str; 2] =
    ["disabled (unregistered from user space)", "disabled (unregistered from the main kernel)"];

/// One complaint of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its first line, as in the log.
    pub line: String,
    /// Number of that line, from 1.
    pub number: usize,
}

/// Returns the complaints in `log` that no text in `allowed` covers.
#[must_use]
pub fn scan(log: &str, allowed: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut head: Option<usize> = None;
    for (index, line) in log.lines().enumerate() {
        let is_head = is_head(line);
        let in_tail = head.is_some_and(|start| index - start <= TAIL_LINES);
        let orphan = !in_tail && TAILS.iter().any(|tail| line.contains(tail));
        if is_head {
            head = Some(index);
        }
        let covered = allowed.iter().any(|text| line.contains(text.as_str()));
        if (is_head || orphan) && !covered {
            findings.push(Finding { line: line.to_owned(), number: index + 1 });
        }
        if line.contains(END) {
            head = None;
        }
    }
    findings
}

fn is_head(line: &str) -> bool {
    if line.contains("sched_ext: ") && line.contains(SCX_ENDED) {
        return !SCX_FINE.iter().any(|reason| line.contains(reason));
    }
    HEADS.iter().any(|head| line.contains(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(log: &str, allowed: &[&str]) -> Vec<usize> {
        let allowed: Vec<String> = allowed.iter().map(|text| (*text).to_owned()).collect();
        scan(log, &allowed).iter().map(|f| f.number).collect()
    }

    #[test]
    fn a_quiet_boot_has_no_findings() {
        assert_eq!(found(include_str!("../fixtures/quiet.log"), &[]), []);
    }

    #[test]
    fn a_warning_with_its_trace_is_one_finding() {
        let log = include_str!("../fixtures/warning.log");
        assert_eq!(found(log, &[]), [3]);
    }

    #[test]
    fn an_allowed_warning_takes_its_trace_with_it() {
        let log = include_str!("../fixtures/warning.log");
        assert_eq!(found(log, &["WARNING: kernel/sched/ext.c"]), []);
        assert_eq!(found(log, &["something else"]), [3]);
    }

    #[test]
    fn an_oops_is_found_even_behind_an_allowed_warning() {
        let warning = include_str!("../fixtures/warning.log");
        let oops = include_str!("../fixtures/oops.log");
        let first = warning.lines().count();
        let log = format!("{warning}{oops}");
        assert_eq!(found(&log, &["WARNING: kernel/sched/ext.c"]), [first + 2, first + 4]);
    }

    #[test]
    fn a_scheduler_that_left_by_itself_is_fine_a_stalled_one_is_not() {
        let log = include_str!("../fixtures/scx.log");
        assert_eq!(found(log, &[]), [4]);
        assert_eq!(found(log, &["runnable task stall"]), []);
    }

    #[test]
    fn a_call_trace_without_a_head_is_a_finding() {
        assert_eq!(found("a\n[ 1.0] Call Trace:\n", &[]), [2]);
    }

    #[test]
    fn lockups_stalls_and_hung_tasks_are_found() {
        for line in [
            "watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [sh:99]",
            "INFO: task sh:12 blocked for more than 120 seconds.",
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "rcu: INFO: rcu_preempt self-detected stall on CPU",
            "Oops: general protection fault, maybe for address 0x0: 0000 [#1] SMP",
            "Kernel panic - not syncing: Attempted to kill init!",
        ] {
            assert_eq!(found(line, &[]), [1], "{line}");
        }
    }
}
