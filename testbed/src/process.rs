// SPDX-License-Identifier: MIT OR Apache-2.0
//! Child processes that cannot outlive us.
//!
//! Three nets, because each has a hole: `Drop` ends a child on return, error
//! and panic; the signal thread ends all of them on Ctrl-C, SIGTERM and
//! SIGHUP; PDEATHSIG ends them when this process is killed outright.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Process groups that are alive now, and folders to remove with them.
static LIVE: Mutex<Live> = Mutex::new(Live { groups: Vec::new(), folders: Vec::new() });

struct Live {
    groups: Vec<i32>,
    folders: Vec<std::path::PathBuf>,
}

fn live() -> MutexGuard<'static, Live> {
    // A panic elsewhere must not keep us from ending the children.
    LIVE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A child in its own process group; the whole group ends with this value.
pub(crate) struct Group {
    child: Child,
}

impl Group {
    /// Starts `command` as the leader of a new group.
    pub(crate) fn spawn(command: &mut Command) -> Result<Self> {
        command.process_group(0);
        let parent = std::process::id();
        // SAFETY: the closure calls only prctl, getppid and _exit, which are
        // async-signal-safe, and touches no memory but a copied integer.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // The parent may have died before the line above took effect.
                if libc::getppid().cast_unsigned() != parent {
                    libc::_exit(1);
                }
                Ok(())
            });
        }
        // Held over the spawn: the signal thread must not exit between the
        // start of a child and its entry in the list.
        let mut live = live();
        let child = command.spawn().with_context(|| {
            let program = command.get_program().display();
            format!("cannot start {program}; is it installed? `./x build` installs what is missing")
        })?;
        live.groups.push(child.id().cast_signed());
        Ok(Self { child })
    }

    /// The child's status if it has ended. Forgets the group then: its number
    /// may be given to somebody else from now on.
    pub(crate) fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait().context("cannot wait for the child")?;
        if status.is_some() {
            self.forget();
        }
        Ok(status)
    }

    /// CPU time that the leader has used; nothing when it has been waited for.
    pub(crate) fn cpu_s(&self) -> Option<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        // The program's name may hold blanks, and ends with the last bracket.
        let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace().skip(11);
        let ticks = fields.next()?.parse::<f64>().ok()? + fields.next()?.parse::<f64>().ok()?;
        // SAFETY: sysconf takes no pointers.
        Some(ticks / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64)
    }

    /// Writes to the child's standard input, if that is a pipe.
    pub(crate) fn tell(&mut self, text: &str) -> Result<()> {
        match &mut self.child.stdin {
            Some(stdin) => stdin.write_all(text.as_bytes()).context("the child does not listen"),
            None => Ok(()),
        }
    }

    pub(crate) fn wait(&mut self) -> Result<ExitStatus> {
        let status = self.child.wait().context("cannot wait for the child")?;
        self.forget();
        Ok(status)
    }

    fn forget(&self) {
        let group = self.child.id().cast_signed();
        live().groups.retain(|&other| other != group);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            kill_group(self.child.id().cast_signed());
            // It was just killed: this can neither block nor fail.
            let _ = self.child.wait();
        }
        self.forget();
    }
}

fn kill_group(group: i32) {
    // SAFETY: kill takes no pointers. The leader is not reaped yet, so the
    // number cannot belong to anyone else.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}

/// A folder that is removed on a signal too, not only by its owner's `Drop`.
pub(crate) struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new(dir: tempfile::TempDir) -> Self {
        live().folders.push(dir.path().to_owned());
        Self { dir }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        live().folders.retain(|other| other != self.dir.path());
    }
}

/// Ends all children and removes their folders on Ctrl-C, SIGTERM or SIGHUP,
/// then exits with 128 + the signal's number. Call it once, at the start of
/// `main`.
///
/// # Errors
/// When the handlers cannot be installed.
pub fn end_children_on_signals() -> Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot install signal handlers")?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // Never unlocked again: nobody starts a child from here on.
            let live = live();
            for &group in &live.groups {
                kill_group(group);
                // SAFETY: a null status pointer is allowed. Reaping it here
                // leaves no zombie; the other thread may have been faster.
                unsafe { libc::waitpid(group, std::ptr::null_mut(), 0) };
            }
            for folder in &live.folders {
                // Best effort: we are on our way out.
                let _ = std::fs::remove_dir_all(folder);
            }
            eprintln!("interrupted; guests ended");
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Runs a command to its end; it ends with us, if we end before it.
///
/// # Errors
/// When it cannot be started.
pub fn run_child(command: &mut Command) -> Result<ExitStatus> {
    Group::spawn(command.stdin(Stdio::null()))?.wait()
}

/// Runs a command to its end with its output in `log`; on failure the error
/// carries the log's last lines.
pub(crate) fn run_logged(command: &mut Command, log: &Path) -> Result<()> {
    let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let err = out.try_clone().context("cannot share the log")?;
    let status = run_child(command.stdout(out).stderr(err))?;
    if status.success() {
        return Ok(());
    }
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let program = command.get_program().display();
    bail!(
        "{program} ended with {status}; its last lines:\n{}\n(all of it: {})",
        last_lines(&text, 12),
        log.display()
    )
}

/// Runs a short command and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let out = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {program}; is it installed?"))?;
    if !out.status.success() {
        let err = String::from_utf8_lossy(&out.stderr);
        bail!("{program} ended with {}:\n{}", out.status, last_lines(&err, 8));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The last `count` lines of a text.
#[must_use]
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a process exists, zombies not counted.
    fn runs(pid: &str) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn dropping_a_group_ends_grandchildren_too() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        let script = format!("sleep 100 & echo $! > {}; wait", pids.display());
        let group = Group::spawn(Command::new("sh").args(["-c", &script])).unwrap();
        let pid = loop {
            match std::fs::read_to_string(&pids) {
                Ok(text) if text.ends_with('\n') => break text.trim().to_owned(),
                _ => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
        };
        assert!(runs(&pid));
        drop(group);
        // The grandchild is reaped by init, not by us: give it a moment.
        for _ in 0..200 {
            if !runs(&pid) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("grandchild {pid} survived");
    }

    #[test]
    fn failing_command_shows_its_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let error =
            run_logged(Command::new("sh").args(["-c", "echo first; echo why >&2; exit 3"]), &log)
                .unwrap_err();
        assert!(format!("{error:#}").contains("why"));
    }
}
