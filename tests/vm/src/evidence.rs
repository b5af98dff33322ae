// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel says of a task that waits for too long: where it is, whether each CPU gets its
//! ticks, and the entry of the task in the kernel's own dump of the scheduler (SysRq-D, which
//! writes to the trace).

use std::fs;
use std::process::Command;
use std::time::Duration;

/// Lines of the dump that belong to a task's entry: the line with its name, and what follows up to
/// its stack.
const ENTRY_LINES: usize = 5;
const TRACING: &str = "/sys/kernel/tracing";

/// Some lines of text; what cannot be read is said in its place.
pub fn of_task(pid: i32) -> String {
    let status = read(&format!("/proc/{pid}/status"));
    let keys = ["State:", "Cpus_allowed_list:", "voluntary_ctxt_switches:", "nonvoluntary_ctxt"];
    let lines = status.lines().filter(|line| keys.iter().any(|key| line.starts_with(key)));
    let status = lines.collect::<Vec<_>>().join(", ");
    let stat = read(&format!("/proc/{pid}/stat"));
    let cpu = processor(&stat);
    let wchan = read(&format!("/proc/{pid}/wchan"));
    format!(
        "{status}; on CPU {cpu}, in the kernel at {wchan}\nticks of each CPU in a second: {:?}\n{}",
        ticks_in_a_second(),
        dump_of(pid)
    )
}

/// The last CPU of a task, by its line in /proc/PID/stat.
fn processor(stat: &str) -> &str {
    // The name in parentheses may hold anything; the CPU is field 39.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name.split_whitespace().nth(36).unwrap_or("?")
}

fn ticks_in_a_second() -> Vec<u64> {
    let before = ticks();
    std::thread::sleep(Duration::from_secs(1));
    ticks().iter().zip(before).map(|(now, then)| now - then).collect()
}

/// Timer interrupts of each CPU so far.
fn ticks() -> Vec<u64> {
    let text = read("/proc/interrupts");
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("LOC:"));
    line.unwrap_or("").split_whitespace().map_while(|word| word.parse().ok()).collect()
}

/// The task's entry in the dump.
fn dump_of(pid: i32) -> String {
    let _ = Command::new("mount").args(["-t", "tracefs", "none", TRACING]).status();
    let switch = format!("{TRACING}/events/sched_ext/sched_ext_dump/enable");
    let written = fs::write(&switch, "1")
        .and_then(|()| fs::write("/proc/sys/kernel/sysrq", "1"))
        .and_then(|()| fs::write("/proc/sysrq-trigger", "D"));
    if let Err(error) = written {
        return format!("the scheduler cannot be dumped: {error}");
    }
    std::thread::sleep(Duration::from_millis(500));
    let _ = fs::write(&switch, "0");
    entry(&read(&format!("{TRACING}/trace")), pid)
}

fn entry(dump: &str, pid: i32) -> String {
    let name = format!("[{pid}] ");
    let mut lines =
        dump.lines().skip_while(|line| !line.contains(&name)).take(ENTRY_LINES).peekable();
    if lines.peek().is_none() {
        return format!("no queue of the scheduler's dump has task {pid}");
    }
    lines.collect::<Vec<_>>().join("\n")
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_found_after_any_name() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194304 5 0 0 0 9 8 0 0 20 0 1 0 100 0 0 \
                    18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0";
        assert_eq!(processor(stat), "3");
        assert_eq!(processor(""), "?");
    }

    #[test]
    fn the_entry_of_a_task_is_found() {
        let dump = "x: R one[12] -3ms\nx: a\nx: R two[123] -9000ms\nx: b\nx: c\nx: d\nx: e\nx: f\n";
        assert_eq!(entry(dump, 123), "x: R two[123] -9000ms\nx: b\nx: c\nx: d\nx: e");
        assert!(entry(dump, 99).contains("task 99"));
    }
}
