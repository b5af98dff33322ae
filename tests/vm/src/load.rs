// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads: forked workers that announce wide sections by one of the methods a program has, end them
//! by one that the scheduler can be configured to look for, and sample where they run.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::guest::{Child, context_switches, cpu, migrations, now_ns, spin, wait_for, work};
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

/// How long a worker tries to reach the scheduler.
const CONNECT_LIMIT: Duration = Duration::from_secs(40);

/// How long a section takes.
const SECTION: Duration = Duration::from_micros(150);

/// Start workers, so many of each role, and let them go when all are ready: while the others work
/// it can take long to be given a slot. They run until `samples.end_ns`, which is not set here.
pub fn start(samples: &'static Samples, roles: &[(Role, usize)]) -> Result<Vec<Child>> {
    samples.settled_ns.store(u64::MAX, Ordering::Relaxed);
    samples.end_ns.store(u64::MAX, Ordering::Relaxed);
    samples.is_open.store(false, Ordering::Relaxed);
    samples.ready.store(0, Ordering::Relaxed);
    let mut children = Vec::new();
    for &(role, count) in roles {
        for _ in 0..count {
            children.push(Child::fork(move || worker(samples, role))?);
        }
    }
    let workers = children.len() as u64;
    wait_for("the workers are not ready", 2 * CONNECT_LIMIT, || {
        samples.ready.load(Ordering::Relaxed) == workers
    })?;
    samples.is_open.store(true, Ordering::Relaxed);
    Ok(children)
}

/// Start workers and wait for their end: the first part unsampled, for settling.
pub fn run(
    samples: &'static Samples,
    settle: Duration,
    measure: Duration,
    roles: &[(Role, usize)],
) -> Result<()> {
    let mut children = start(samples, roles)?;
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
pub fn connect() {
    let is_alone = || {
        crate::guest::scx_state() == "enabled"
            && turbolane::wide_status() == turbolane::Status::None
    };
    if let Err(e) = wait_for("the scheduler gives no slot", CONNECT_LIMIT, || !is_alone()) {
        eprintln!("vmtests: {e:#}");
        // SAFETY: ends this child; its samples would look like the scheduler's fault.
        unsafe { libc::_exit(1) }
    }
}

/// One worker's life.
fn worker(samples: &'static Samples, role: Role) {
    if role != Role::DefaultHog {
        connect();
    }
    samples.ready.fetch_add(1, Ordering::Relaxed);
    while !samples.is_open.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(2));
    }
    match role {
        Role::WideHog => drop(turbolane::wide_begin(2)),
        Role::ScalarHog | Role::ScalarBursts => become_scalar(),
        Role::Mixed(..) | Role::DefaultHog => {}
    }
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
                let watch = Watch::start(source, ending);
                let _ = turbolane::wide_begin(2);
                wide_part(samples, ending, &watch);
                end_by(ending);
                if ending != Ending::Explicit {
                    scalar_part(samples);
                }
                let _ = turbolane::wide_end();
            }
            Source::Mark => {
                let watch = Watch::start(source, ending);
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
    source: Source,
    on_wide: bool,
    switches: u64,
    migrations: u64,
    start_ns: u64,
}

impl Watch {
    fn start(source: Source, ending: Ending) -> Self {
        let counts = ending == Ending::ContextSwitch;
        let switches = if counts { context_switches() } else { 0 };
        let migrations = if counts && source == Source::Mark { migrations() } else { 0 };
        // The CPU last: it is to be the one after any switch that is not counted.
        Watch { source, on_wide: cpu() >= 2, switches, migrations, start_ns: now_ns() }
    }

    /// Whether the section has certainly not been ended by the heuristic.
    fn surely_wide(&self, ending: Ending) -> bool {
        match ending {
            Ending::ContextSwitch => self.not_switched_since(),
            Ending::Timeout => now_ns() - self.start_ns < TIMEOUT.as_nanos() as u64,
            _ => true,
        }
    }

    /// Whether all switches since then were on the way to a wide CPU. A hint needs one for that. A
    /// mark needs one or two, of which the first does not migrate (bpf/leave.bpf.h); one to a wide
    /// CPU and the next, which ended the section, back to a scalar one would be two migrations.
    fn not_switched_since(&self) -> bool {
        match context_switches() - self.switches {
            0 => true,
            _ if self.on_wide => false,
            1 => true,
            2 => self.source == Source::Mark && migrations() - self.migrations < 2,
            _ => false,
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
