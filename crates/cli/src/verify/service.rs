// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run of a service that runs anyway: for some time its instructions are counted, by the CPU time
//! that they took.
//!
//! A service does the same work with and without the lane, so that this rate is its speed while it
//! runs, whatever number of requests comes. It needs no figure of the service's own.
//!
//! Limits: a task that waits in a loop executes instructions too, so a service that spins for its
//! work is compared by a figure of its own. Time that its tasks wait for a CPU is in no rate.

use std::fmt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use hw::cgroups::{cpu_time_ns, folder_id};
use hw::cycles::why_no_cycles;
use hw::group_counts::{GroupCounters, GroupCounts};
use report::problem::Problem;
use report::text::duration;

use super::outcome::{Broken, Done};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::target::Target;

/// What is compared, as the report names it.
pub(super) const METRIC: &str = "million instructions per CPU second";

/// From one look for an interrupt to the next.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// Tasks of a control group, watched for some time.
#[derive(Clone)]
pub(super) struct Service {
    name: String,
    folder: PathBuf,
    time: Duration,
    /// The state of the lane meanwhile.
    how: &'static str,
}

impl Service {
    /// Fails if it is not there, or if this machine cannot count.
    pub(super) fn find(target: &Target, time: Duration) -> Result<Self, Failure> {
        target.check(&hw::Live)?;
        let folder = target.folder(&hw::Live)?;
        let service = Service { name: target.name(), folder, time, how: "" };
        service.counters().map_err(|error| {
            let next = "run it as root on hardware, or have a command print a figure of the \
                        service: --metric 'Requests/sec: {}' -- wrk -d 5 http://localhost/";
            let what = format!("cannot count instructions of {}", service.name);
            Failure::unsupported(Problem::new(what, why_no_cycles(&error), next))
        })?;
        Ok(service)
    }

    /// The same service, shown with the state of the lane.
    pub(super) fn named(&self, how: &'static str) -> Self {
        Service { how, ..self.clone() }
    }

    fn counters(&self) -> std::io::Result<GroupCounters> {
        let topology = hw::topology(&hw::Live).map_err(std::io::Error::other)?;
        GroupCounters::open(&self.folder, &topology.online())
    }

    /// Counts for the time that was asked for.
    pub(super) fn run(&self, interrupt: &Interrupt) -> Result<Done, Broken> {
        let cannot = |error: std::io::Error| Broken::Run {
            why: format!("it could not be counted: {error}"),
            next: "check that it runs, and take no CPU offline meanwhile",
        };
        let group = folder_id(&self.folder).map_err(cannot)?;
        let mut counters = self.counters().map_err(cannot)?;
        let counted = counters.read().map_err(cannot)?;
        // On a machine that its load keeps busy each of these may wait for a CPU.
        let (used_ns, started) = (cpu_time_ns(&self.folder).map_err(cannot)?, Instant::now());
        while let Some(left) = self.time.checked_sub(started.elapsed()) {
            if interrupt.is_seen() {
                return Err(Broken::Run { why: "it was interrupted".into(), next: "repeat it" });
            }
            thread::sleep(left.min(LOOKS_EVERY));
        }
        let counts = counters.read().map_err(cannot)?;
        let time_ns = started.elapsed().as_nanos() as u64;
        if folder_id(&self.folder).map_err(cannot)? != group {
            let next = "let it run without a restart";
            return Err(Broken::Run { why: "it was restarted meanwhile".into(), next });
        }
        let cpu_time_ns = cpu_time_ns(&self.folder).map_err(cannot)?.saturating_sub(used_ns);
        if cpu_time_ns == 0 {
            let next = "have it serve its load, or count for longer by --for";
            return Err(Broken::Run { why: "it did not run in that time".into(), next });
        }
        let [millions_per_s, khz] = rates(counted, counts).ok_or_else(|| Broken::Run {
            why: format!("nothing was counted in {} of its CPU time", duration(cpu_time_ns)),
            next: "end what else counts events of the CPU",
        })?;
        Ok(Done {
            time_ns,
            cpu_time_ns,
            around_ns: None,
            clock_khz: Some(khz),
            metric: Some(millions_per_s),
        })
    }
}

/// Millions of instructions per second of CPU time, and the mean clock, kHz; `None` if nothing was
/// counted.
fn rates(before: GroupCounts, after: GroupCounts) -> Option<[f64; 2]> {
    let ns = after.counted_ns.wrapping_sub(before.counted_ns) as f64;
    let instructions = after.instructions.wrapping_sub(before.instructions) as f64;
    let cycles = after.cycles.wrapping_sub(before.cycles) as f64;
    (ns > 0.0 && instructions > 0.0 && cycles > 0.0)
        .then(|| [instructions * 1e3 / ns, cycles * 1e6 / ns])
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = duration(self.time.as_nanos() as u64);
        write!(f, "{} for {time} ({})", self.name, self.how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates are by the time in which both were counted; nothing counted is no rate.
    #[test]
    fn rates_are_of_counted_time() {
        let at =
            |instructions, cycles, counted_ns| GroupCounts { instructions, cycles, counted_ns };
        let [millions, khz] = rates(at(100, 50, 10), at(3_000_100, 2_000_050, 1_000_010)).unwrap();
        assert_eq!((millions, khz), (3_000.0, 2_000_000.0));
        assert_eq!(rates(at(1, 1, 1), at(1, 1, 1)), None);
    }
}
