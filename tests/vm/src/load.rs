// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads: forked workers that announce wide sections in one of the ways a program can, end them
//! in one of the ways the scheduler can be told to look for, and sample where they run.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::guest::{Child, context_switches, cpu, now_ns, spin, wait_for, work};
use crate::probe_site;
use crate::samples::{Phase, Samples};

/// How a worker announces a wide section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `tl_wide_begin`.
    Hint,
    /// A call of the marked function.
    Mark,
}

/// What ends it, as `--remigrate` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// `tl_wide_end`, or the marked function's return.
    Explicit,
    /// A system call, at its entry.
    SyscallEntry,
    /// A system call, at its return.
    SyscallReturn,
    /// A context switch.
    ContextSwitch,
    /// A timeout.
    Timeout,
}

/// Timeout used with [`Ending::Timeout`].
pub const TIMEOUT: Duration = Duration::from_millis(20);

impl Ending {
    /// All of them.
    pub const ALL: [Ending; 5] = [
        Ending::Explicit,
        Ending::SyscallEntry,
        Ending::SyscallReturn,
        Ending::ContextSwitch,
        Ending::Timeout,
    ];

    /// As `--remigrate` takes it.
    pub fn flag(self) -> String {
        match self {
            Ending::Explicit => "hint,uprobe-return".into(),
            Ending::SyscallEntry => "syscall-entry".into(),
            Ending::SyscallReturn => "syscall-return".into(),
            Ending::ContextSwitch => "context-switch".into(),
            Ending::Timeout => format!("timeout:{}ms", TIMEOUT.as_millis()),
        }
    }
}

/// What a worker does, over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Wide and scalar sections in turn.
    Mixed(Source, Ending),
    /// One wide section without end.
    WideHog,
    /// Scalar work only, by a task known to be scalar.
    ScalarHog,
    /// Work of a task that nobody classified.
    DefaultHog,
    /// Scalar work for most of the time, with short sleeps.
    ScalarBursts,
}

/// How long a section takes.
const SECTION: Duration = Duration::from_micros(150);

/// Start this many workers of a role. They run until `samples.end_ns`.
pub fn start(samples: &'static Samples, role: Role, count: usize) -> Result<Vec<Child>> {
    (0..count).map(|_| Child::fork(move || worker(samples, role))).collect()
}

/// Let the workers run, from when all of them are ready: the first part unsampled, for settling.
pub fn run(
    samples: &'static Samples,
    settle: Duration,
    measure: Duration,
    roles: &[(Role, usize)],
) -> Result<()> {
    samples.settled_ns.store(u64::MAX, Ordering::Relaxed);
    samples.end_ns.store(u64::MAX, Ordering::Relaxed);
    let mut children = Vec::new();
    for &(role, count) in roles {
        children.extend(self::start(samples, role, count)?);
    }
    let workers = children.len() as u64;
    wait_for("the workers are not ready", Duration::from_secs(60), || {
        samples.ready.load(Ordering::Relaxed) == workers
    })?;
    let settled_ns = now_ns() + settle.as_nanos() as u64;
    samples.settled_ns.store(settled_ns, Ordering::Relaxed);
    samples.end_ns.store(settled_ns + measure.as_nanos() as u64, Ordering::Relaxed);
    for child in &mut children {
        let code = child.wait()?;
        ensure!(code == 0, "a worker ended with {code}");
    }
    Ok(())
}

/// Connect to the scheduler if there is one: on a busy guest it may not answer at once, and the
/// library tries again a second later. Sections before that are nobody's fault.
fn connect() {
    let start_ns = now_ns();
    while crate::guest::scx_state() == "enabled"
        && turbolane::wide_status() == turbolane::Status::None
        && now_ns() - start_ns < 20_000_000_000
    {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// One worker's life.
fn worker(samples: &'static Samples, role: Role) {
    if role != Role::DefaultHog {
        connect();
    }
    match role {
        Role::WideHog => drop(turbolane::wide_begin(2)),
        Role::ScalarHog | Role::ScalarBursts => become_scalar(),
        Role::Mixed(..) | Role::DefaultHog => {}
    }
    samples.ready.fetch_add(1, Ordering::Relaxed);
    match role {
        Role::Mixed(source, ending) => mixed(samples, source, ending),
        Role::WideHog => hog(samples, Phase::Wide),
        Role::ScalarHog => hog(samples, Phase::Scalar),
        Role::DefaultHog => hog(samples, Phase::Default),
        Role::ScalarBursts => bursts(samples),
    }
}

/// A task that was wide once is scalar from then on (SFMA 3.2).
pub fn become_scalar() {
    let _ = turbolane::wide_begin(1);
    let _ = turbolane::wide_end();
}

fn hog(samples: &Samples, phase: Phase) {
    while samples.running() {
        work(2000);
        samples.add(phase, cpu());
        samples.units.fetch_add(1, Ordering::Relaxed);
    }
}

fn bursts(samples: &Samples) {
    while samples.running() {
        spin(Duration::from_millis(4));
        samples.add(Phase::Scalar, cpu());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn mixed(samples: &Samples, source: Source, ending: Ending) {
    while samples.running() {
        match source {
            Source::Hint => {
                let watch = Watch::start(source);
                let _ = turbolane::wide_begin(2);
                wide_part(samples, ending, &watch);
                end_by(ending);
                if ending != Ending::Explicit {
                    scalar_part(samples);
                }
                let _ = turbolane::wide_end();
            }
            Source::Mark => {
                let watch = Watch::start(source);
                probe_site::marked(|| {
                    wide_part(samples, ending, &watch);
                    end_by(ending);
                    if ending != Ending::Explicit {
                        scalar_part(samples);
                    }
                });
            }
        }
        scalar_part(samples);
        samples.units.fetch_add(1, Ordering::Relaxed);
    }
}

/// What happened since just before a section was announced.
struct Watch {
    switches: u64,
    switches_allowed: u64,
    start_ns: u64,
}

impl Watch {
    /// Of switches one is allowed: the one that took the task to a wide CPU. At a mark on a
    /// scalar CPU the scheduler needs two (bpf/leave.bpf.h).
    fn start(source: Source) -> Self {
        let switches_allowed = if source == Source::Mark && cpu() < 2 { 2 } else { 1 };
        Watch { switches: context_switches(), switches_allowed, start_ns: now_ns() }
    }

    /// Whether the section has certainly not been ended by the heuristic.
    fn surely_wide(&self, ending: Ending) -> bool {
        match ending {
            Ending::ContextSwitch => context_switches() - self.switches <= self.switches_allowed,
            Ending::Timeout => now_ns() - self.start_ns < TIMEOUT.as_nanos() as u64,
            _ => true,
        }
    }
}

/// Sample without a system call in between: with some endings it would end the section. With a
/// timeout the section outlives it, so that it does end the section.
fn wide_part(samples: &Samples, ending: Ending, watch: &Watch) {
    let samples_max = match ending {
        Ending::ContextSwitch => 1, // asking for the number of switches is a system call
        Ending::Timeout => u32::MAX,
        _ => 3,
    };
    let end_ns = watch.start_ns + TIMEOUT.as_nanos() as u64 * 3 / 2;
    for _ in 0..samples_max {
        spin(SECTION / 3);
        let cpu = cpu();
        if watch.surely_wide(ending) {
            samples.add(Phase::Wide, cpu);
        } else {
            samples.ambiguous.fetch_add(1, Ordering::Relaxed);
        }
        if ending == Ending::Timeout && now_ns() > end_ns {
            break;
        }
    }
}

fn end_by(ending: Ending) {
    match ending {
        Ending::Explicit => {}
        // SAFETY: a system call without arguments.
        Ending::SyscallEntry | Ending::SyscallReturn => unsafe {
            libc::syscall(libc::SYS_getppid);
        },
        Ending::ContextSwitch => std::thread::sleep(Duration::from_micros(50)),
        Ending::Timeout => {}
    }
}

fn scalar_part(samples: &Samples) {
    spin(SECTION);
    samples.add(Phase::Scalar, cpu());
}
