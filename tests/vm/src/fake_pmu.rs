// SPDX-License-Identifier: MIT OR Apache-2.0
//! The test PMU (kmod/test/turbolane_pmu.c) in tests: loaded, asked for licence levels, and removed
//! again when a test ends, however it ends.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use hw::levels::LevelCounters;
use hw::perf::{self, Event, Whose};

use crate::guest::{nr_cpus, wait_for};
use crate::trap::load_beside;

const MODULE: &str = "turbolane_pmu";

/// A CPU whose model has licence counters (Skylake-SP), as QEMU's `-cpu` takes it.
pub const CPU_WITH_LEVELS: &str = "max,vendor=GenuineIntel,family=6,model=85,stepping=4";

/// Counts while a CPU is not idle, per nanosecond.
pub const CYCLES_PER_NS: u64 = 2;

/// The loaded module; unloaded when dropped.
pub struct FakePmu {
    /// From a request to its level.
    pub grant: Duration,
    /// How long a level is held behind the last request.
    pub relax: Duration,
}

impl FakePmu {
    /// Loads it with these times.
    pub fn load(grant: Duration, relax: Duration) -> Result<Self> {
        let (grant_ns, relax_ns) = (grant.as_nanos(), relax.as_nanos());
        load_beside(MODULE, &format!("grant_ns={grant_ns} relax_ns={relax_ns}"))?;
        Ok(FakePmu { grant, relax })
    }

    /// Loads it with the times of Skylake-SP, the module's own.
    pub fn skylake() -> Result<Self> {
        load_beside(MODULE, "")?;
        Ok(FakePmu { grant: Duration::from_micros(20), relax: Duration::from_micros(670) })
    }

    /// How long one request alone has its level.
    pub fn held(&self) -> Duration {
        self.relax - self.grant
    }

    /// Removes it; who has counters open holds it, and closing them may lag a little.
    pub fn unload(self) -> Result<()> {
        wait_for("the test PMU cannot be removed", Duration::from_secs(20), || {
            remove().is_ok_and(|removed| removed)
        })
    }
}

impl Drop for FakePmu {
    fn drop(&mut self) {
        if Path::new("/sys/module").join(MODULE).exists() {
            // A failing test's own error counts.
            let _ = remove();
        }
    }
}

/// The counters of licence levels, by which the PMU's levels are seen.
pub fn counters() -> Result<LevelCounters> {
    LevelCounters::of_this_machine(&hw::Live).map_err(anyhow::Error::msg)
}

/// Tries to remove it; whether it was.
pub fn remove() -> Result<bool> {
    let output = Command::new("rmmod").arg(MODULE).output().context("rmmod")?;
    Ok(output.status.success())
}

/// Makes the CPUs of a guest that counts instructions take turns of [`TURN`].
///
/// There one thread executes all CPUs in turn, each until any CPU's next timer is due, and time
/// goes on for those that wait. With nothing but ticks a turn is 4 ms, and a level is over before
/// its CPU gets another. So a clock of perf interrupts each CPU more often; no task is switched for
/// it.
pub struct Turns {
    _clocks: Vec<OwnedFd>,
}

/// Four of them, each with a tick's interrupt, are much shorter than a level is held.
///
/// And much longer than the interrupt: while one goes on and the next is due, the kernel repeats
/// it, and after three times puts off all timers of the CPU. With 20 us a run was seen with 31,000
/// interrupts of a CPU per second instead of 50,000, and others in which levels were over before
/// their CPU had its turn again.
const TURN: Duration = Duration::from_micros(50);

impl Turns {
    /// Until it is dropped.
    pub fn begin() -> Result<Self> {
        // The kernel would find that the clock takes too much time, and slow it down.
        fs::write("/proc/sys/kernel/perf_cpu_time_max_percent", "0")?;
        let clock = Event {
            kind: perf::SOFTWARE,
            config: perf::CPU_CLOCK,
            sample_period: TURN.as_nanos() as u64,
            ..Event::default()
        };
        let clocks = (0..nr_cpus() as u32).map(|cpu| perf::open(&clock, Whose::Cpu(cpu), None));
        let clocks = clocks.collect::<std::io::Result<_>>().context("a clock of perf")?;
        Ok(Turns { _clocks: clocks })
    }
}

/// Who executes instructions of licence levels.
pub struct Unit(File);

impl Unit {
    /// On the CPU where this thread happens to be at each of them.
    pub fn open() -> Result<Self> {
        let device = Path::new("/dev").join(MODULE);
        // Not created: where the module is not loaded that is an error.
        let file = OpenOptions::new().write(true).open(&device);
        Ok(Unit(file.with_context(|| format!("{} does not open", device.display()))?))
    }

    /// Executes one.
    pub fn execute(&self, level: usize) -> std::io::Result<()> {
        (&self.0).write_all(format!("{level}\n").as_bytes())
    }

    /// Executes them for this long.
    pub fn execute_for(&self, level: usize, time: Duration) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < time {
            self.execute(level)?;
        }
        Ok(())
    }
}
