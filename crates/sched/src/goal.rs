// SPDX-License-Identifier: MIT OR Apache-2.0
//! The application's own figure (policy/goal.h): reads it, and passes it to the decision.
//!
//! A thread reads a file, or what a command prints, once per period, so that neither a slow disk
//! nor a command that hangs delays the scheduler. The first number in the text counts; the figure
//! of a counter is by how much it has grown per second. The policy takes integers: figures
//! are scaled so that the first one is about a million.
//!
//! The file may lie where another user can put links in its place, and any user may ask for the
//! status. So only regular files and pipes are opened, since opening a device can do something, and
//! no message quotes what was read.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use policy::{GoalFound, GoalInput};
use report::problem::Problem;

use crate::config::{Config, Goal, GoalKind, Mode, WideCpus};
use crate::error::{Error, Result};
use crate::lock::lock;

/// Enough for a number and what may surround it.
const TEXT_MAX: u64 = 4096;
/// What the first figure is scaled to.
const FIRST: f64 = 1_048_576.0;
/// While a command runs it is looked at so often.
const LOOK: Duration = Duration::from_millis(10);

/// How long the end waits for the thread.
const END: Duration = Duration::from_secs(1);

type Sample = std::result::Result<f64, String>;

/// Refuses a figure that would decide nothing.
pub fn check(config: &Config, mode: Mode) -> std::result::Result<(), Problem> {
    let (why, next) = match (&config.goal, &config.wide_cpus, mode) {
        (Goal::None, _, _) => return Ok(()),
        (_, _, Mode::Affinity) => (
            "affinity mode always keeps wide code apart",
            "leave it out, or use a kernel with sched_ext",
        ),
        (_, WideCpus::Auto, _) => return Ok(()),
        _ => (
            "--wide-cpus names fixed CPUs or a fixed number, which --goal does not change",
            "leave out one of the two: --wide-cpus auto lets the figure decide",
        ),
    };
    Err(Problem::new("cannot use --goal", why, next))
}

/// What has come, and whether more is wanted.
#[derive(Default)]
struct Shared {
    latest: Option<Sample>,
    is_over: bool,
}

/// Reads the figure while it lives.
struct Sampler {
    shared: Arc<(Mutex<Shared>, Condvar)>,
    thread: JoinHandle<()>,
}

impl Sampler {
    fn start(config: &Config) -> std::io::Result<Self> {
        let shared = Arc::new((Mutex::new(Shared::default()), Condvar::new()));
        let (theirs, source, kind) = (shared.clone(), config.goal.clone(), config.goal_kind);
        let every = Duration::from_nanos(config.goal_every_ns);
        let thread = std::thread::Builder::new()
            .name("goal".into())
            .spawn(move || sample(&theirs, &source, kind, every))?;
        Ok(Sampler { shared, thread })
    }

    /// What has come since the last call.
    fn take(&self) -> Option<Sample> {
        lock(&self.shared.0).latest.take()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        lock(&self.shared.0).is_over = true;
        self.shared.1.notify_all();
        // Ends a command that runs; but a file system that hangs must not hold up the end of a run.
        let until = Instant::now() + END;
        while !self.thread.is_finished() && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }
}

/// The thread: until it is over.
fn sample(shared: &(Mutex<Shared>, Condvar), source: &Goal, kind: GoalKind, every: Duration) {
    let is_over = || lock(&shared.0).is_over;
    let mut count: Option<(f64, Instant)> = None;
    let mut next = Instant::now();
    loop {
        let read = read(source, every, &is_over).and_then(|text| number(&text));
        let now = Instant::now();
        let figure = match (kind, read) {
            (GoalKind::Counter, Ok(value)) => {
                count.replace((value, now)).map(|before| rate(before, (value, now)))
            }
            (_, read) => Some(read),
        };
        next = (next + every).max(now);
        let mut guard = lock(&shared.0);
        guard.latest = figure.or(guard.latest.take());
        while !guard.is_over && Instant::now() < next {
            let wait = next.saturating_duration_since(Instant::now());
            guard = match shared.1.wait_timeout(guard, wait) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        if guard.is_over {
            return;
        }
    }
}

fn rate((before, then): (f64, Instant), (value, now): (f64, Instant)) -> Sample {
    if value < before {
        return Err("the counter has fallen".into());
    }
    Ok((value - before) / now.duration_since(then).as_secs_f64().max(1e-6))
}

fn read(
    source: &Goal,
    every: Duration,
    is_over: &dyn Fn() -> bool,
) -> std::result::Result<String, String> {
    match source {
        Goal::None => Err("there is none".into()),
        Goal::File(path) => read_file(path).map_err(|error| error.to_string()),
        Goal::Command(command) => output_of(command, every, is_over),
    }
}

/// Opens regular files and pipes only, and does not wait for a pipe's writer.
fn read_file(path: &Path) -> std::io::Result<String> {
    let place = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
    let kind = place.metadata()?.file_type();
    if !kind.is_file() && !kind.is_fifo() {
        return Err(std::io::Error::other("it is neither a regular file nor a pipe"));
    }
    let opened = format!("/proc/self/fd/{}", place.as_raw_fd());
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(opened)?;
    let mut text = String::new();
    file.take(TEXT_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// What a command prints, if it ends within a period.
fn output_of(
    command: &str,
    every: Duration,
    is_over: &dyn Fn() -> bool,
) -> std::result::Result<String, String> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| error.to_string())?;
    let until = Instant::now() + every;
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => break,
            Some(status) => return Err(format!("the command ended with {status}")),
            None if is_over() || Instant::now() >= until => {
                end(&mut child);
                return Err(format!("the command takes longer than {} s", every.as_secs_f64()));
            }
            None => std::thread::sleep(LOOK),
        }
    }
    let mut text = String::new();
    let output = child.stdout.take().ok_or("it has no output")?;
    // What outlives the command may hold the pipe open, but not this thread.
    set_nonblocking(&output).map_err(|error| error.to_string())?;
    match output.take(TEXT_MAX).read_to_string(&mut text) {
        Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => Err(error.to_string()),
        _ => Ok(text),
    }
}

/// Ends a command and what it started.
fn end(child: &mut Child) {
    // SAFETY: no memory; the group is the child's own, which was not waited for yet.
    unsafe { libc::killpg(child.id() as libc::pid_t, libc::SIGKILL) };
    _ = child.wait();
}

fn set_nonblocking(file: &impl AsRawFd) -> std::io::Result<()> {
    // SAFETY: no memory; the descriptor is open as long as `file` is.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The first word must be a number that can be a figure.
fn number(text: &str) -> Sample {
    let Some(word) = text.split_whitespace().next() else {
        return Err("it is empty".into());
    };
    match word.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        Ok(_) => Err("it is negative, or not finite".into()),
        Err(_) => Err("its first word is not a number".into()),
    }
}

/// The figure and the decision by it.
pub(crate) struct GoalLoop {
    sampler: Sampler,
    goal: policy::Goal,
    kind: GoalKind,
    every_ns: u64,
    /// What a figure is multiplied with; 0 before the first that is not 0.
    scale: f64,
    /// Why the last sample was none.
    trouble: Option<String>,
}

impl GoalLoop {
    /// `None` if no figure is given.
    pub fn start(config: &Config) -> Result<Option<Self>> {
        if config.goal == Goal::None {
            return Ok(None);
        }
        let sampler = Sampler::start(config)
            .map_err(|error| Error::failed("cannot start a thread for --goal", error))?;
        Ok(Some(GoalLoop {
            sampler,
            goal: policy::Goal::default(),
            kind: config.goal_kind,
            every_ns: config.goal_every_ns,
            scale: 0.0,
            trouble: None,
        }))
    }

    /// To be called often: whether wide code is to be kept apart now.
    pub fn decide(&mut self, elapsed_ns: u64) -> bool {
        let value = match self.sampler.take() {
            Some(Ok(value)) => {
                self.trouble = None;
                if self.scale == 0.0 && value > 0.0 {
                    self.scale = FIRST / value;
                }
                Some((value * self.scale) as u64)
            }
            Some(Err(why)) => {
                self.trouble = Some(why);
                None
            }
            None => None,
        };
        self.goal.update(&GoalInput {
            elapsed_ns,
            every_ns: self.every_ns,
            value: value.unwrap_or_default(),
            has_value: value.is_some().into(),
            lower: (self.kind == GoalKind::Lower).into(),
        });
        self.goal.apart()
    }

    /// What was found, in words that follow "stands by" or "separates wide code".
    pub fn in_words(&self) -> String {
        let gain = self.goal.gain_frac().map_or(String::new(), |(gain, error)| {
            format!(" ({:+.1} % with separation, standard error {:.1})", gain * 1e2, error * 1e2)
        });
        if self.goal.measures() {
            return format!("--goal is measured{gain}");
        }
        let trouble = self.trouble.as_deref().unwrap_or("it has not come yet");
        match self.goal.found() {
            GoalFound::NothingYet => format!("waiting for --goal: {trouble}"),
            GoalFound::Better => format!("separation makes --goal better{gain}"),
            GoalFound::Worse => format!("separation makes --goal worse{gain}"),
            GoalFound::NoDifference => format!("--goal shows no difference{gain}"),
            GoalFound::Constant => "--goal never changes".into(),
            GoalFound::Silent => format!("--goal is missing: {trouble}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_over() -> bool {
        false
    }

    fn of_command(command: &str) -> std::result::Result<String, String> {
        output_of(command, Duration::from_millis(300), &not_over)
    }

    /// The first word counts; what cannot be a figure is refused.
    #[test]
    fn numbers_are_read() {
        assert_eq!(number("1234.5 requests/s\n7"), Ok(1234.5));
        assert_eq!(number("\n 3e2"), Ok(300.0));
        for (text, says) in
            [("", "empty"), ("-3", "negative"), ("inf", "not finite"), ("x1", "not a number")]
        {
            assert!(number(text).unwrap_err().contains(says), "{text}");
        }
    }

    /// A counter's figure is its growth per second; one that starts anew says nothing.
    #[test]
    fn counters_become_rates() {
        let then = Instant::now();
        let later = then + Duration::from_millis(500);
        assert_eq!(rate((100.0, then), (150.0, later)), Ok(100.0));
        assert!(rate((100.0, then), (3.0, later)).unwrap_err().contains("fallen"));
    }

    /// What a command prints is read; if it fails, or takes too long, that is said, and neither it
    /// nor what it started goes on.
    #[test]
    fn commands_are_run() {
        assert_eq!(of_command("echo 42"), Ok("42\n".into()));
        assert!(of_command("exit 3").unwrap_err().contains("exit status: 3"));
        let dir = tempfile::tempdir().unwrap();
        let pid_file = dir.path().join("pid");
        let slow = format!("sleep 60 & echo $! > {}; wait", pid_file.display());
        assert!(of_command(&slow).unwrap_err().contains("longer than 0.3 s"));
        let pid: i32 = std::fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let has_ended = || state().is_empty() || state().contains(") Z ");
        assert!((0..200).any(|_| has_ended() || {
            std::thread::sleep(LOOK);
            false
        }));
        // what stays in the background keeps nobody waiting
        assert_eq!(of_command("echo 7; sleep 2 &"), Ok("7\n".into()));
    }

    /// A pipe that nobody writes to holds nothing up.
    #[test]
    fn a_pipe_without_writer_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let status = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(status.success());
        assert_eq!(read_file(&path).unwrap(), "");
    }

    /// A link to a device opens no device, and what a link to another file holds is not shown.
    #[test]
    fn links_do_and_show_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let link = |target: &str| {
            let path = dir.path().join("link");
            _ = std::fs::remove_file(&path);
            std::os::unix::fs::symlink(target, &path).unwrap();
            read_file(&path).map_err(|error| error.to_string()).and_then(|text| number(&text))
        };
        assert!(link("/dev/zero").unwrap_err().contains("neither a regular file nor a pipe"));
        assert_eq!(link("/etc/passwd").unwrap_err(), "its first word is not a number");
        assert!(link("/etc").unwrap_err().contains("neither"));
    }

    /// The figure of a file reaches the decision, and an absent file is said to be missing.
    #[test]
    fn figures_reach_the_decision() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("figure");
        let config = Config {
            goal: Goal::File(path.clone()),
            goal_every_ns: 1_000_000,
            ..Config::default()
        };
        let mut goal = GoalLoop::start(&config).unwrap().unwrap();
        let mut until = |says: &str| {
            let found = (0..1000).any(|_| {
                std::thread::sleep(Duration::from_millis(2));
                goal.decide(1_000_000);
                goal.in_words().contains(says)
            });
            assert!(found, "{says}: {}", goal.in_words());
        };
        until("--goal is missing: No such file");
        std::fs::write(&path, "17").unwrap();
        until("--goal is measured");
        std::fs::write(&path, "many").unwrap();
        until("its first word is not a number");
    }

    /// A figure that could decide nothing is refused.
    #[test]
    fn a_figure_without_a_decision_fails() {
        let with = |wide_cpus| Config {
            goal: Goal::File("/figure".into()),
            wide_cpus,
            ..Config::default()
        };
        assert!(check(&with(WideCpus::Auto), Mode::Scx).is_ok());
        let fixed = check(&with(WideCpus::Cores(2)), Mode::Scx).unwrap_err();
        assert!(fixed.why.contains("fixed number"));
        let masks = check(&with(WideCpus::Auto), Mode::Affinity).unwrap_err();
        assert!(masks.why.contains("affinity mode"));
        assert!(check(&Config::default(), Mode::Affinity).is_ok());
    }
}
