// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running process as a load of the profiler: its levels by the counters of the CPUs where its
//! threads run, its pauses by [`hw::pause`].
//!
//! **Level of a CPU.** Its counters are read twice, [`WINDOW`] apart; the level with most cycles in
//! between is the CPU's. A CPU that sleeps counts nothing, so after a pause, when nothing of the
//! load runs, the profiler itself computes there for a moment.
//!
//! **Which CPUs.** Those where a thread of the process runs or waits at the moment of the sample,
//! one thread each. When the load goes on, a thread may do so elsewhere, and is looked for there.
//!
//! **Cutting tails.** A pause ends the hold of a level for good, where the simulator's pauses
//! happen in a copy. A sample that came before the hold would have ended anyway would miss it; so
//! the shortest time between two samples is at least the relax time ([`shortest_interval`]).
//!
//! Limits. Other code on the CPUs, or on their siblings, has the same level: it is counted as the
//! load's, or keeps the level through the pause, which is reported ("not judged"). A thread takes
//! about [`LATENCY`] to resume, in which code may begin to need a level that did not at the moment
//! of the sample. Each sample reads /proc once per thread.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cpumodel::{CpuSet, Times};
use hw::levels::{LEVELS, LevelCounters, LevelCycles, why_not};
use hw::pause::Pausable;
use hw::plr::Plr;
use hw::{Source, task};
use profile::{Load, Seen, Settings};
use report::problem::Problem;
use signal_hook::consts::SIGCHLD;

use crate::command::watch_signals;
use crate::failure::Failure;
use crate::progress::Progress;

/// Between two reads of a CPU's counters: some ten times what a read takes.
const WINDOW: Duration = Duration::from_micros(30);
/// From SIGCONT to a thread that runs, and from our timer to us: some switches and an interrupt.
const LATENCY: Duration = Duration::from_micros(50);
/// Longest wait for threads to stop; one that is in the kernel for longer executes no wide code
/// there.
const STOP_LIMIT: Duration = Duration::from_millis(20);

/// The process and what is needed to watch it.
pub(super) struct Live {
    pid: u32,
    name: String,
    start_ticks: u64,
    process: Pausable,
    counters: LevelCounters,
    /// Where the profiler itself may run.
    own_cpus: CpuSet,
    /// CPUs of the last sample, in the order of its levels, with the thread that was met there.
    met: BTreeMap<u32, u32>,
    signals: Receiver<i32>,
    progress: Progress,
    /// Samples so far, and in all.
    samples: (u32, u32),
    ended: Option<Ended>,
}

/// Why there are no more samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The process has.
    Process,
    /// Ctrl-C or another signal.
    Signal,
}

/// The profiler's settings for a live process on a CPU with these times.
pub(super) fn settings(times: &Times, samples: u32, interval: Duration) -> Settings {
    let latency_ns = LATENCY.as_nanos() as u64;
    let on_model =
        Settings::new(times.throttle_ns, times.halts_ns(0, LEVELS as u8 - 1), times.relax_ns);
    Settings {
        samples,
        interval_ns: interval.as_nanos() as u64,
        pause_ns: on_model.pause_ns + latency_ns,
        watch_ns: on_model.watch_ns + latency_ns,
    }
}

/// Shortest mean time between samples, half of which may lie between two of them.
pub(super) fn shortest_interval(times: &Times) -> Duration {
    Duration::from_nanos(2 * times.relax_ns)
}

impl Live {
    /// Looks whether this process can be profiled here; nothing happens to it yet.
    pub(super) fn open(pid: u32, samples: u32) -> Result<Self, Failure> {
        may_be_stopped(pid)?;
        let unsupported = |why: String| Failure::unsupported(problem(pid, why, MODEL));
        let mut counters = LevelCounters::of_this_machine(&hw::Live)
            .map_err(|why| Failure::unsupported(problem(pid, why, instead(&hw::Live))))?;
        let own_cpus =
            task::get_affinity(std::process::id()).map_err(|error| broken(pid, &error))?;
        let here = own_cpus.iter().next().unwrap_or(0) as u32;
        counters.read(here).map_err(|error| unsupported(why_not(&error)))?;
        let start_ticks = task::start_ticks(pid).map_err(|error| refused(pid, &error))?;
        let process = Pausable::new(pid).map_err(|error| refused(pid, &error))?;
        be_woken_in_time();
        let name = task::name(pid).map_err(|error| refused(pid, &error))?;
        Ok(Live {
            pid,
            name,
            start_ticks,
            process,
            counters,
            own_cpus,
            met: BTreeMap::new(),
            signals: watch_signals()?,
            progress: Progress::new(),
            samples: (0, samples),
            ended: None,
        })
    }

    /// The process's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Why it ended before all samples were taken, if it did.
    pub(super) fn ended(&self) -> Option<Ended> {
        self.ended
    }

    fn read(&mut self, cpu: u32) -> Result<LevelCycles, Failure> {
        let pid = self.pid;
        self.counters
            .read(cpu)
            .map_err(|error| Failure::failed(problem(pid, why_not(&error), "see turbolane doctor")))
    }

    fn threads(&self) -> Result<Vec<(u32, usize)>, Failure> {
        match task::running(self.pid) {
            Ok(threads) => Ok(threads),
            // It has ended; the next look at it says so.
            Err(error) if is_gone(&error) => Ok(Vec::new()),
            Err(error) => Err(broken(self.pid, &error)),
        }
    }

    /// Waits until no thread runs any more.
    fn wait_until_stopped(&self) -> Result<(), Failure> {
        let start = Instant::now();
        while !self.threads()?.is_empty() && start.elapsed() < STOP_LIMIT {
            sleep(WINDOW);
        }
        Ok(())
    }

    /// The level of a CPU where nothing of the load runs: we do for a moment.
    fn level_at_rest(&mut self, cpu: u32) -> Result<u8, Failure> {
        let there: CpuSet = std::iter::once(cpu as usize).collect();
        task::set_affinity(task::own_tid(), &there).map_err(|error| broken(self.pid, &error))?;
        let before = self.read(cpu)?;
        let start = Instant::now();
        while start.elapsed() < WINDOW {
            std::hint::spin_loop();
        }
        let after = self.read(cpu)?;
        Ok(prevailing(&grown(&before, &after)).unwrap_or(0))
    }

    fn stand_still(&mut self, pause: Duration) -> Result<Vec<u8>, Failure> {
        self.process.stop().map_err(|error| refused(self.pid, &error))?;
        self.wait_until_stopped()?;
        sleep(pause);
        let cpus: Vec<u32> = self.met.keys().copied().collect();
        let levels = cpus.into_iter().map(|cpu| self.level_at_rest(cpu)).collect();
        task::set_affinity(task::own_tid(), &self.own_cpus)
            .map_err(|error| broken(self.pid, &error))?;
        levels
    }

    /// Lets the load go on and returns the highest level of each thread since.
    fn go_on(&mut self, watch: Duration) -> Result<Vec<u8>, Failure> {
        let all = self.own_cpus.iter().map(|cpu| cpu as u32);
        let all: BTreeSet<u32> = all.chain(self.met.keys().copied()).collect();
        let mut before = BTreeMap::new();
        for cpu in all {
            before.insert(cpu, self.read(cpu)?);
        }
        self.process.go_on().map_err(|error| refused(self.pid, &error))?;
        sleep(watch);
        let met: Vec<(u32, u32)> = self.met.iter().map(|(cpu, tid)| (*cpu, *tid)).collect();
        let mut back = Vec::new();
        for (cpu, tid) in met {
            // One that has ended needs nothing any more.
            let now = task::last_cpu(tid).map_or(cpu, |cpu| cpu as u32);
            let after = self.read(now)?;
            let highest = before.get(&now).map_or(0, |before| highest(&grown(before, &after)));
            back.push(highest);
        }
        Ok(back)
    }

    fn pause_and_watch(&mut self, pause_ns: u64, watch_ns: u64) -> Result<Vec<Seen>, Failure> {
        let paused = self.stand_still(Duration::from_nanos(pause_ns))?;
        let back = self.go_on(Duration::from_nanos(watch_ns))?;
        Ok(paused.into_iter().zip(back).map(|(paused, back)| Seen { paused, back }).collect())
    }

    fn show_progress(&mut self) {
        self.samples.0 += 1;
        self.progress.part(self.samples.0 as usize, self.samples.1 as usize, "samples");
    }
}

impl Load for Live {
    type Error = Failure;

    fn run(&mut self, time_ns: u64) -> Result<bool, Failure> {
        self.show_progress();
        let until = Instant::now() + Duration::from_nanos(time_ns);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.signals.recv_timeout(left) {
                // The end of a child is no request of the user.
                Ok(SIGCHLD) => {}
                Ok(_) | Err(RecvTimeoutError::Disconnected) => {
                    self.ended = Some(Ended::Signal);
                    return Ok(false);
                }
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        if !task::lives_since(self.pid, self.start_ticks) {
            self.ended = Some(Ended::Process);
        }
        Ok(self.ended.is_none())
    }

    fn levels(&mut self) -> Result<Vec<Option<u8>>, Failure> {
        self.met = self.threads()?.into_iter().map(|(tid, cpu)| (cpu as u32, tid)).collect();
        let cpus: Vec<u32> = self.met.keys().copied().collect();
        let before: Vec<LevelCycles> =
            cpus.iter().map(|cpu| self.read(*cpu)).collect::<Result<_, _>>()?;
        sleep(WINDOW);
        let mut levels = Vec::new();
        for (cpu, before) in cpus.into_iter().zip(before) {
            let after = self.read(cpu)?;
            levels.push(prevailing(&grown(&before, &after)));
        }
        Ok(levels)
    }

    fn pause(&mut self, pause_ns: u64, watch_ns: u64) -> Result<Vec<Seen>, Failure> {
        let seen = self.pause_and_watch(pause_ns, watch_ns);
        // However that went, the load goes on.
        let went_on = self.process.go_on().map_err(|error| refused(self.pid, &error));
        match seen.and_then(|seen| went_on.map(|()| seen)) {
            // It has ended meanwhile; the next look at it says so.
            Err(_) if !task::lives_since(self.pid, self.start_ticks) => {
                Ok(vec![Seen { paused: 0, back: 0 }; self.met.len()])
            }
            seen => seen,
        }
    }
}

const MODEL: &str = "profile a model of it: turbolane profile --scenario NAME";

/// What to do on a CPU without counters of licence levels.
fn instead(source: &dyn Source) -> &'static str {
    match Plr::read(source) {
        Ok(_) => "use the CPU's throttle reasons: turbolane sample --pid PID",
        Err(_) => MODEL,
    }
}

fn problem(pid: u32, why: impl Into<String>, next: &str) -> Problem {
    Problem::new(format!("cannot profile process {pid}"), why.into(), next)
}

fn broken(pid: u32, error: &io::Error) -> Failure {
    Failure::failed(problem(pid, error.to_string(), "see dmesg and turbolane doctor"))
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// The failure if the kernel refuses a request about the process.
fn refused(pid: u32, error: &io::Error) -> Failure {
    let next = "give the number of a running process: see pidof, pgrep";
    match error.raw_os_error() {
        _ if is_gone(error) => Failure::failed(problem(pid, "there is no such process", next)),
        Some(libc::EPERM | libc::EACCES) => {
            let why = "it belongs to another user, and we have no permission to stop it";
            Failure::unsupported(problem(pid, why, "run it with sudo"))
        }
        Some(libc::ENOSYS) => {
            let why = "this kernel has no process descriptors (5.3)";
            Failure::unsupported(problem(pid, why, MODEL))
        }
        _ => broken(pid, error),
    }
}

/// Refuses what must not be stopped, or is stopped already.
fn may_be_stopped(pid: u32) -> Result<(), Failure> {
    let asked = task::process_of(pid)
        .and_then(|tgid| Ok((tgid, task::is_kernel_thread(pid)?, task::task_stopped(pid)?)));
    let (tgid, is_kernel_thread, is_stopped) = asked.map_err(|error| refused(pid, &error))?;
    let (why, next) = if tgid == std::process::id() {
        ("it is this process itself", "give the number of another one".to_string())
    } else if tgid != pid {
        ("it is a thread", format!("give its process: {tgid}"))
    } else if pid == 1 {
        ("the first process cannot be stopped", "give the number of another one".into())
    } else if is_kernel_thread {
        ("it is a kernel thread", "give the number of a program".into())
    } else if !task::task_alive(pid) {
        ("it has ended", "give the number of a running process: see pidof, pgrep".into())
    } else if is_stopped {
        ("it is stopped", format!("resume it first: kill -CONT {pid}"))
    } else {
        return Ok(());
    };
    Err(Failure::failed(problem(pid, why, &next)))
}

/// Our timers are not put together with others', which is 50 us by default.
fn be_woken_in_time() {
    // SAFETY: a setting of this thread, without memory. If it fails, windows are longer.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

fn grown(before: &LevelCycles, after: &LevelCycles) -> LevelCycles {
    std::array::from_fn(|level| after[level].saturating_sub(before[level]))
}

/// The level with most cycles; `None` if the CPU slept.
fn prevailing(cycles: &LevelCycles) -> Option<u8> {
    let most = (0..LEVELS).max_by_key(|&level| cycles[level])?;
    (cycles[most] > 0).then_some(most as u8)
}

/// The highest level with any cycles.
fn highest(cycles: &LevelCycles) -> u8 {
    (0..LEVELS).rfind(|&level| cycles[level] > 0).unwrap_or(0) as u8
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The level of a window is that of most cycles, of a watch the highest; who slept has none.
    #[test]
    fn levels_of_cycles() {
        assert_eq!(prevailing(&[10, 0, 900]), Some(2));
        assert_eq!(prevailing(&[900, 10, 10]), Some(0));
        assert_eq!(prevailing(&[0; 3]), None);
        assert_eq!((highest(&[900, 1, 0]), highest(&[0; 3])), (1, 0));
        assert_eq!(grown(&[1, 2, 3], &[4, 2, 1]), [3, 0, 0]);
    }

    /// A CPU that keeps throttle reasons can be asked otherwise; one that keeps none, by a model.
    #[test]
    fn other_cpus_are_asked_otherwise() {
        let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/machines");
        let open = |name: &str| hw::Recorded::open(&Path::new(machine).join(name)).unwrap();
        assert!(instead(&open("granite-rapids")).contains("turbolane sample"));
        assert_eq!(instead(&open("sapphire-rapids-vm")), MODEL);
    }

    /// Ourselves, the first process, threads of the kernel and no one are not stopped.
    #[test]
    fn who_must_not_be_stopped_fails() {
        let why = |pid: u32| format!("{:?}", may_be_stopped(pid).unwrap_err());
        assert!(why(std::process::id()).contains("itself"));
        assert!(why(1).contains("first process"));
        assert!(why(1 << 22).contains("no such process"));
    }
}
