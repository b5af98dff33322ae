// SPDX-License-Identifier: MIT OR Apache-2.0
//! What CPUs and threads are doing, from /proc and cpufreq: counts that only grow, of which two
//! readings make a rate.
//!
//! Times are in clock ticks, as the kernel reports them to user space: 100 a second on x86
//! (`USER_HZ`), so that a share over a second is known to a hundredth. Frequencies are the kernel's
//! averages where it has some: `scaling_cur_freq` on x86 comes from APERF and MPERF of the last
//! tick, and `cpuinfo_avg_freq` of newer kernels says so in its name.
//!
//! Sources: proc_stat(5), proc_pid_stat(5), Documentation/admin-guide/pm/cpufreq.rst.

use std::io::{self, ErrorKind};

use crate::Source;
use crate::task::{Stat, stat_of};

/// Time of one CPU since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTicks {
    /// Linux's number.
    pub cpu: u32,
    /// Clock ticks in which it worked: user, nice, system, interrupts.
    pub busy_ticks: u64,
    /// All clock ticks, those that a hypervisor took included.
    pub all_ticks: u64,
}

/// CPU time of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskTicks {
    /// Its number.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its name; any text, control characters included.
    pub name: String,
    /// When it started, in clock ticks since boot: with the number, a name for good.
    pub start_ticks: u64,
    /// CPU time, user and system.
    pub run_ticks: u64,
    /// The CPU on which it runs or ran last.
    pub last_cpu: u32,
}

/// Clock ticks per second of all times here.
pub fn ticks_per_second() -> u64 {
    // SAFETY: asks for a number, without memory.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100).max(1)
}

/// The online CPUs' times.
pub fn cpus(source: &dyn Source) -> io::Result<Vec<CpuTicks>> {
    let text = source.read("/proc/stat")?;
    let cpus: Vec<CpuTicks> = text.lines().filter_map(cpu_of).collect();
    if cpus.is_empty() { Err(ErrorKind::InvalidData.into()) } else { Ok(cpus) }
}

/// `cpuN user nice system idle iowait irq softirq steal ...`; the line of all CPUs has no number.
fn cpu_of(line: &str) -> Option<CpuTicks> {
    let mut fields = line.strip_prefix("cpu")?.split_ascii_whitespace();
    let cpu = fields.next().filter(|_| !line.starts_with("cpu "))?.parse().ok()?;
    let ticks: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks.try_into().ok()?;
    let busy_ticks = user + nice + system + irq + softirq;
    Some(CpuTicks { cpu, busy_ticks, all_ticks: busy_ticks + idle + iowait + steal })
}

/// The threads of these processes, or of all if none is named. Those that end meanwhile are left
/// out.
pub fn tasks(source: &dyn Source, pids: &[u32]) -> io::Result<Vec<TaskTicks>> {
    let pids = if pids.is_empty() { processes(source)? } else { pids.to_vec() };
    let mut tasks = Vec::new();
    for pid in pids {
        for tid in numbers(source, &format!("/proc/{pid}/task")).unwrap_or_default() {
            let stat = source.read(&format!("/proc/{pid}/task/{tid}/stat"));
            tasks.extend(stat.ok().and_then(|text| task_of(&text, pid, tid)));
        }
    }
    Ok(tasks)
}

/// Numbers of all processes.
pub fn processes(source: &dyn Source) -> io::Result<Vec<u32>> {
    numbers(source, "/proc")
}

/// Whether there is such a process.
pub fn has_process(source: &dyn Source, pid: u32) -> bool {
    source.exists(&format!("/proc/{pid}/task"))
}

fn numbers(source: &dyn Source, dir: &str) -> io::Result<Vec<u32>> {
    Ok(source.list(dir)?.iter().filter_map(|name| name.parse().ok()).collect())
}

fn task_of(text: &str, pid: u32, tid: u32) -> Option<TaskTicks> {
    let name = text.get(text.find('(')? + 1..text.rfind(')')?)?.to_string();
    let Stat { start_ticks, run_ticks, last_cpu, .. } = stat_of(text.as_bytes())?;
    Some(TaskTicks { tid, pid, name, start_ticks, run_ticks, last_cpu: last_cpu as u32 })
}

/// Frequency of a CPU, kHz; `None` where the kernel controls none, as in most virtual machines.
pub fn frequency_khz(source: &dyn Source, cpu: u32) -> Option<u32> {
    let khz = |file: &str| {
        let text = source.read(&format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}"));
        text.ok()?.trim().parse().ok().filter(|khz| *khz > 0)
    };
    khz("cpuinfo_avg_freq").or_else(|| khz("scaling_cur_freq"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Live, Rooted};
    use std::fs;
    use std::path::Path;

    fn write(root: &Path, path: &str, text: &[u8]) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The sum of all CPUs is none of them; time that a hypervisor took is neither busy nor idle.
    #[test]
    fn cpu_times_are_read() {
        let root = tempfile::tempdir().unwrap();
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 1 2 100 5 3 4 7 0 0\n\
                    cpu12 1 0 0 1 0 0 0 0 0 0\nintr 5\n";
        write(root.path(), "proc/stat", stat.as_bytes());
        let read = cpus(&Rooted::new(root.path())).unwrap();
        assert_eq!(
            read,
            [
                CpuTicks { cpu: 0, busy_ticks: 20, all_ticks: 132 },
                CpuTicks { cpu: 12, busy_ticks: 1, all_ticks: 2 },
            ]
        );
    }

    /// A machine without the file, or with another one of that name, is an error.
    #[test]
    fn foreign_files_fail() {
        let root = tempfile::tempdir().unwrap();
        let machine = Rooted::new(root.path());
        assert_eq!(cpus(&machine).unwrap_err().kind(), ErrorKind::NotFound);
        for text in ["", "cpu 1 2 3\n", "cpu0 1 2 3\n", "cpux 1 2 3 4 5 6 7 8\n"] {
            write(root.path(), "proc/stat", text.as_bytes());
            assert_eq!(cpus(&machine).unwrap_err().kind(), ErrorKind::InvalidData, "{text}");
        }
    }

    fn stat(name: &[u8], start: u32) -> Vec<u8> {
        let head = [b"7 (", name, b") R 1 2 3 4 5 6 7 8 9 10 30 12 "].concat();
        let tail = format!(
            "13 14 15 16 17 18 {start} 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 6 37"
        );
        [head, tail.into_bytes()].concat()
    }

    /// Threads of the named processes, whatever they are called; one that has gone is left out.
    #[test]
    fn tasks_are_read() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "proc/7/task/7/stat", &stat(b"a) (R \x1b[2J", 400));
        write(root.path(), "proc/7/task/9/stat", &stat(b"", 401));
        write(root.path(), "proc/8/task/8/stat", b"8 (cut");
        write(root.path(), "proc/self/task/1/stat", &stat(b"no number", 1));
        let machine = Rooted::new(root.path());
        let all = tasks(&machine, &[]).unwrap();
        assert_eq!(all.len(), 2);
        let first = TaskTicks {
            tid: 7,
            pid: 7,
            name: "a) (R \u{1b}[2J".into(),
            start_ticks: 400,
            run_ticks: 42,
            last_cpu: 6,
        };
        assert_eq!(all[0], first);
        assert_eq!((all[1].tid, all[1].name.as_str()), (9, ""));
        assert_eq!(tasks(&machine, &[8, 99]).unwrap(), []);
        assert!(has_process(&machine, 7) && !has_process(&machine, 99));
    }

    /// What the hardware counted goes before what was set; no cpufreq, no frequency.
    #[test]
    fn frequencies_are_read() {
        let root = tempfile::tempdir().unwrap();
        let machine = Rooted::new(root.path());
        assert_eq!(frequency_khz(&machine, 1), None);
        let dir = "sys/devices/system/cpu/cpu1/cpufreq";
        write(root.path(), &format!("{dir}/scaling_cur_freq"), b"2800000\n");
        assert_eq!(frequency_khz(&machine, 1), Some(2_800_000));
        write(root.path(), &format!("{dir}/cpuinfo_avg_freq"), b"2790123\n");
        assert_eq!(frequency_khz(&machine, 1), Some(2_790_123));
        write(root.path(), &format!("{dir}/cpuinfo_avg_freq"), b"<unknown>\n");
        assert_eq!(frequency_khz(&machine, 1), Some(2_800_000));
    }

    /// This thread is among this process's, and this machine's CPUs have times.
    #[test]
    fn the_live_machine_answers() {
        let me = std::process::id();
        assert!(tasks(&Live, &[me]).unwrap().iter().any(|task| task.tid == me));
        assert!(cpus(&Live).unwrap().iter().all(|cpu| cpu.busy_ticks <= cpu.all_ticks));
        assert!(ticks_per_second() >= 100);
    }
}
