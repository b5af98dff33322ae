// SPDX-License-Identifier: MIT OR Apache-2.0
//! Energy on a dim-silicon machine, as stock Linux counts it: intel_rapl through powercap, and
//! perf's `power` events. The machine's log has the truth, with which xtask compares it.

use std::fs;
use std::io::Read;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cpumodel::{CpuModel, Platform};
use hw::perf::{self, Event, Whose};
use hw::{EnergyMeter, Live};

use crate::claims::Claims;
use crate::guest::modprobe;
use crate::silicon::{Class, error_pct, wide_for};
use crate::silicon_probe::CPU as MODEL;

/// Of each load; a tick of the kernel and its idle time are in it.
const TIME: Duration = Duration::from_millis(20);
/// The counter's unit is 61 uJ of more than 2 J; reading it takes some microseconds of 20 ms.
const WITHIN_PCT: f64 = 0.3;

/// An idle machine, and one whose CPU executes code of each level: energy by powercap is that of
/// perf and that of the log. What the busy core adds is what the model says.
pub fn is_counted(claims: &mut Claims) -> Result<()> {
    ["intel_rapl_msr", "rapl"].into_iter().try_for_each(modprobe)?;
    let meter = EnergyMeter::find(&Live).map_err(anyhow::Error::msg)?;
    let mut events = PowerEvents::open()?;
    let mut watts = |load: &dyn Fn()| -> Result<f64> {
        let from = claims.mark();
        let read = || meter.read(&Live).context("the counter is gone");
        // The first reading of each takes longer than those that follow, and what lies between two
        // of them is to be the same before the load and after it.
        read()?;
        events.joules()?;
        let (before, perf_before) = (read()?, events.joules()?);
        load();
        let (after, perf_after) = (read()?, events.joules()?);
        let to = claims.mark();
        let used_uj = meter.between_uj(&before, &after) as f64;
        claims.energy_uj((from, to), used_uj, WITHIN_PCT);
        let perf_uj = (perf_after - perf_before) * 1e6;
        ensure!(error_pct(perf_uj, used_uj) <= WITHIN_PCT, "perf {perf_uj} uJ, powercap {used_uj}");
        Ok(used_uj / TIME.as_micros() as f64)
    };
    let idle_w = watts(&|| std::thread::sleep(TIME))?;
    let model = CpuModel::built_in(MODEL).context("no such CPU")??;
    let platform = Platform::new(&model);
    for (class, level) in [(Class::Light256, 0), (Class::Heavy512, 2)] {
        // The level is granted, the halts are over.
        wide_for(class, Duration::from_micros(100));
        let busy_w = watts(&|| wide_for(class, TIME))? - idle_w;
        let planted_w = platform.busy_core_w(level, platform.clock_khz(level, platform.nr_cores));
        println!("idle {idle_w:.2} W, {class:?} {busy_w:.3} W more, planted {planted_w:.3} W");
        ensure!(error_pct(busy_w, planted_w) <= 10.0, "{class:?}: {busy_w} W more than idle");
    }
    Ok(())
}

/// perf's `power/energy-pkg/`.
struct PowerEvents {
    file: fs::File,
    joules_per_count: f64,
}

impl PowerEvents {
    fn open() -> Result<Self> {
        let read = |name: &str| {
            let path = format!("/sys/bus/event_source/devices/power/{name}");
            fs::read_to_string(&path).with_context(|| path)
        };
        let config = read("events/energy-pkg")?;
        let config = config.trim().strip_prefix("event=0x").context("an event of power")?;
        let event = Event {
            kind: read("type")?.trim().parse()?,
            config: u64::from_str_radix(config, 16)?,
            ..Event::default()
        };
        // One for each package; a list's first is enough for one package.
        let mask = read("cpumask")?;
        let cpu = mask.trim().split([',', '-']).next().unwrap_or_default();
        let cpu = cpu.parse().with_context(|| format!("the CPU that counts: {mask}"))?;
        let file = fs::File::from(perf::open(&event, Whose::Cpu(cpu), None)?);
        let joules_per_count = read("events/energy-pkg.scale")?.trim().parse()?;
        Ok(PowerEvents { file, joules_per_count })
    }

    fn joules(&mut self) -> Result<f64> {
        let mut bytes = [0; 8];
        self.file.read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes) as f64 * self.joules_per_count)
    }
}
