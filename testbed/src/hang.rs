// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a guest hangs: it is asked by an interrupt that nothing can mask, panics at it, and says
//! what each CPU and each task does.

/// For the kernel command line: what the interrupt does (bits 0 and 6: all tasks, all CPUs), and
/// that a CPU that finds itself locked up shows what the others do, of which one is the cause.
pub(crate) const KERNEL_ARGS: &str =
    "unknown_nmi_panic panic_print=0x41 sysctl.kernel.softlockup_all_cpu_backtrace=1";

/// For QEMU's monitor.
pub(crate) const INTERRUPT: &str = "nmi\n";

/// With what the answer begins.
const ANSWER: &str = "Uhhuh. NMI received for unknown reason";

/// What is shown of each CPU and task, lines.
const FRAMES: usize = 8;

/// Parts a console's text in what came before the answer, and the gist of the answer.
pub(crate) fn part(console: &str) -> (&str, String) {
    match console.find(ANSWER) {
        None => (console, String::new()),
        Some(at) => {
            let line = console[..at].rfind('\n').map_or(0, |end| end + 1);
            (&console[..line], gist(&console[line..]))
        }
    }
}

/// The guest's time, and the calls of each CPU and task that is not a kernel thread at rest.
fn gist(answer: &str) -> String {
    let mut text = format!("{}\n", answer.lines().next().unwrap_or_default());
    let mut frames = FRAMES;
    for line in answer.lines().map(without_time) {
        if let Some(task) = line.strip_prefix("task:") {
            let rests = line.contains("state:I") || line.contains("state:S");
            let is_kernel_thread = line.contains(" ppid:2 ") || line.contains(" ppid:0 ");
            frames = if rests && is_kernel_thread { FRAMES } else { 0 };
            if frames == 0 {
                let words: Vec<&str> = task.split_whitespace().take(4).collect();
                text += &format!("task {}\n", words.join(" "));
            }
        } else if line.starts_with("NMI backtrace for") || line.starts_with("CPU: ") {
            frames = 0;
            text += &format!("{line}\n");
        } else if frames < FRAMES && is_call(line) {
            frames += 1;
            text += &format!("    {}\n", line.trim());
        }
    }
    text
}

/// A line without the kernel's time stamp.
fn without_time(line: &str) -> &str {
    match line.split_once("] ") {
        Some((time, rest)) if time.starts_with('[') => rest,
        _ => line,
    }
}

/// Whether a line names a function, surely called: `name+0x12/0x34`, without a question mark.
fn is_call(line: &str) -> bool {
    let line = line.trim().trim_start_matches("RIP: 0010:");
    !line.contains(' ') && line.contains("+0x")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSOLE: &str = "\
[    1.0] before
[   23.1] Uhhuh. NMI received for unknown reason 21 on CPU 0.
[   23.2] Kernel panic - not syncing: NMI: Not continuing
[   23.3] CPU: 0 UID: 0 PID: 0 Comm: swapper/0
[   23.4]  <NMI>
[   23.5]  vpanic+0x166/0x360
[   23.6]  ? doubtful+0x1/0x2
[   23.7] NMI backtrace for cpu 3
[   23.8] RIP: 0010:pv_native_safe_halt+0xf/0x20
[   23.9] RAX: ffffffffffffffda
[   24.0] task:kworker/0:0     state:I stack:0     pid:9     tgid:9     ppid:2      flags:0
[   24.1]  worker_thread+0x1/0x2
[   24.2] task:cpuhp/3         state:D stack:0     pid:34    tgid:34    ppid:2      flags:0
[   24.3]  wait_for_completion+0x1/0x2
[   24.4] task:vmtests         state:S stack:0     pid:90    tgid:90    ppid:1      flags:0
[   24.5]  do_wait+0x58/0x110
";

    #[test]
    fn the_answer_is_no_part_of_the_log() {
        assert_eq!(part("[1] all\n"), ("[1] all\n", String::new()));
        assert_eq!(part(CONSOLE).0, "[    1.0] before\n");
    }

    #[test]
    fn who_is_at_rest_is_left_out() {
        let expected = "\
[   23.1] Uhhuh. NMI received for unknown reason 21 on CPU 0.
CPU: 0 UID: 0 PID: 0 Comm: swapper/0
    vpanic+0x166/0x360
NMI backtrace for cpu 3
    RIP: 0010:pv_native_safe_halt+0xf/0x20
task cpuhp/3 state:D stack:0 pid:34
    wait_for_completion+0x1/0x2
task vmtests state:S stack:0 pid:90
    do_wait+0x58/0x110
";
        assert_eq!(part(CONSOLE).1, expected);
    }
}
