// SPDX-License-Identifier: MIT OR Apache-2.0
//! P-states through the kernel's cpufreq: `/sys/devices/system/cpu/cpufreq/policyN`.
//!
//! A policy is the CPUs that the driver sets together. There are two methods:
//!
//! - **setspeed**: at first use a policy gets the governor `userspace`; `scaling_setspeed` then
//!   sets the frequency within the write. Without requests it runs at its base frequency (what it
//!   had, if the governor was `userspace` already). If another tool changes the governor, writes
//!   are refused by the kernel, and we report that it is taken rather than fight.
//! - **limits**: minimum and maximum are both set to the frequency, the governor stays
//!   (intel_pstate active has no `userspace`). Without requests the limits are what they were
//!   found. The kernel applies them in a worker, some microseconds to milliseconds later.
//!
//! Order of limits: upwards the maximum first, downwards the minimum first, since kernels before
//! 5.4 refuse a minimum above the maximum.
//!
//! Turbo: `intel_pstate/no_turbo`, `cpufreq/boost`, or `boost` of each policy (amd-pstate,
//! acpi-cpufreq since 6.11).
//!
//! Limits of it: the kernel silently clamps `setspeed` beyond `scaling_max_freq`, and still shows
//! the requested value. So where a setting has to be certain, the limits are read before.
//! (`scaling_cur_freq` would not do: on x86 it is measured, and lags.)

use hw::Source;

use crate::backend::{Backend, Found, Machine, Unit, Way};
use crate::error::Error;
use crate::journal::Journal;
use crate::setting::{SettingId, Specs};
use crate::speeds::Speeds;
use crate::value::Value;

const POLICIES: &str = "/sys/devices/system/cpu/cpufreq";
const NO_TURBO: &str = "/sys/devices/system/cpu/intel_pstate/no_turbo";
const BOOST: &str = "/sys/devices/system/cpu/cpufreq/boost";

/// The settings of a policy.
struct Policy {
    governor: SettingId,
    setspeed: SettingId,
    min: SettingId,
    max: SettingId,
    base: Value,
}

/// Where turbo is switched, and what is written for on.
struct Switch {
    settings: Vec<SettingId>,
    on: Value,
    off: Value,
}

struct Cpufreq {
    policies: Vec<Policy>,
    way: Way,
    switch: Option<Switch>,
}

/// Looks for a driver that this method works with; else why not.
pub(crate) fn find(machine: &Machine, specs: &mut Specs, way: Way) -> Result<Found, String> {
    let names = policies(machine)?;
    let driver = driver(machine, &names);
    let mut units = Vec::new();
    let mut policies = Vec::new();
    for name in &names {
        let cpus = cpus(machine, &file(name, "affected_cpus"));
        if cpus.is_empty() {
            continue; // all its CPUs are offline
        }
        usable(machine, way, &driver, |setting| file(name, setting))?;
        let speeds = speeds(machine, |setting| file(name, setting))
            .ok_or_else(|| format!("{POLICIES}/{name} names no frequencies"))?;
        let mut setting = |name: String, yields| specs.text(name[1..].to_string(), yields);
        policies.push(Policy {
            governor: setting(file(name, "scaling_governor"), true),
            setspeed: setting(file(name, "scaling_setspeed"), false),
            min: setting(file(name, "scaling_min_freq"), false),
            max: setting(file(name, "scaling_max_freq"), false),
            base: Value::of_decimal(speeds.base_khz.into()),
        });
        units.push(Unit { cpus, speeds });
    }
    if units.is_empty() {
        return Err(format!("no policy of {driver} has an online CPU"));
    }
    let switch = switch(machine, specs, &names);
    let how = match way {
        Way::Setspeed => "governor userspace",
        _ => "limits, the governor stays",
    };
    let what = format!("cpufreq driver {driver}, {how}, {} policies", units.len());
    Ok(Found { backend: Box::new(Cpufreq { policies, way, switch }), units, what })
}

/// The policies' names; why there are none.
pub(crate) fn policies(machine: &Machine) -> Result<Vec<String>, String> {
    let mut names = machine.source.list(POLICIES).unwrap_or_default();
    names.retain(|name| name.starts_with("policy"));
    match names.is_empty() {
        true => Err("the kernel has no cpufreq driver for this machine".into()),
        false => Ok(names),
    }
}

/// A file of a policy.
pub(crate) fn file(policy: &str, file: &str) -> String {
    format!("{POLICIES}/{policy}/{file}")
}

/// The driver, which is the same for all.
pub(crate) fn driver(machine: &Machine, policies: &[String]) -> String {
    let of = |policy: &String| machine.text(&file(policy, "scaling_driver"));
    policies.first().and_then(of).unwrap_or_else(|| "unknown".into())
}

/// The numbers in a list like `0 1 2`.
pub(crate) fn cpus(machine: &Machine, path: &str) -> Vec<u32> {
    let text = machine.text(path).unwrap_or_default();
    let mut cpus: Vec<u32> = text.split_whitespace().filter_map(|cpu| cpu.parse().ok()).collect();
    cpus.sort_unstable();
    cpus
}

/// Whether a policy can be set in this way by this process.
fn usable(
    machine: &Machine,
    way: Way,
    driver: &str,
    file: impl Fn(&str) -> String,
) -> Result<(), String> {
    if way == Way::Limits {
        machine.writable(&file("scaling_min_freq"))?;
        return machine.writable(&file("scaling_max_freq"));
    }
    let governors = machine.text(&file("scaling_available_governors")).unwrap_or_default();
    if !governors.split_whitespace().any(|governor| governor == "userspace") {
        return Err(format!(
            "driver {driver} has governors {governors}, not userspace (modprobe \
             cpufreq_userspace; intel_pstate needs its passive mode for it)"
        ));
    }
    machine.writable(&file("scaling_governor"))?;
    machine.writable(&file("scaling_setspeed"))
}

/// A policy's frequencies.
///
/// Base: `base_frequency` (intel_pstate), `acpi_cppc/nominal_freq` in MHz (amd-pstate), else the
/// highest entry of the table without turbo. acpi-cpufreq marks Intel's turbo by an entry 1 MHz
/// above the base (drivers/cpufreq/acpi-cpufreq.c), others list turbo in
/// `scaling_boost_frequencies`.
pub(crate) fn speeds(machine: &Machine, file: impl Fn(&str) -> String) -> Option<Speeds> {
    const INTEL_TURBO_MARK_KHZ: u32 = 1_000;
    let list = |name: &str| -> Vec<u32> {
        let text = machine.text(&file(name)).unwrap_or_default();
        text.split_whitespace().filter_map(|khz| khz.parse().ok()).collect()
    };
    let stated = machine.number(&file("base_frequency"));
    let mut table = list("scaling_available_frequencies");
    if table.is_empty() {
        let cpu = cpus(machine, &file("affected_cpus")).first().copied()?;
        let nominal = format!("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc/nominal_freq");
        let nominal_khz = machine.number(&nominal).map(|mhz| mhz.saturating_mul(1_000));
        let (min, max) = ("cpuinfo_min_freq", "cpuinfo_max_freq");
        let (min, max) = (machine.number(&file(min))?, machine.number(&file(max))?);
        return Speeds::of_range(min, max, stated.or(nominal_khz));
    }
    table.sort_unstable();
    let highest = table.last().copied()?;
    let marked = highest.saturating_sub(INTEL_TURBO_MARK_KHZ);
    let base = stated.unwrap_or(if table.contains(&marked) { marked } else { highest });
    table.extend(list("scaling_boost_frequencies"));
    Speeds::of_table(table, Some(base))
}

fn switch(machine: &Machine, specs: &mut Specs, names: &[String]) -> Option<Switch> {
    let (one, zero) = (Value::of_decimal(1), Value::of_decimal(0));
    if machine.writable(NO_TURBO).is_ok() {
        let settings = vec![specs.text(NO_TURBO[1..].to_string(), true)];
        return Some(Switch { settings, on: zero, off: one });
    }
    let of_policy = names.iter().map(|name| format!("{POLICIES}/{name}/boost"));
    let mut paths: Vec<String> = of_policy.filter(|path| machine.writable(path).is_ok()).collect();
    if machine.writable(BOOST).is_ok() {
        paths = vec![BOOST.to_string()];
    }
    let settings: Vec<SettingId> =
        paths.iter().map(|path| specs.text(path[1..].to_string(), true)).collect();
    (!settings.is_empty()).then_some(Switch { settings, on: one, off: zero })
}

const USERSPACE: &[u8] = b"userspace";

impl Cpufreq {
    /// Whether the governor was `userspace` before us.
    fn was_userspace(journal: &Journal, policy: &Policy) -> bool {
        journal.original(policy.governor).is_none()
    }

    fn set_speed(
        journal: &Journal,
        policy: &Policy,
        khz: Value,
        surely: bool,
    ) -> Result<(), Error> {
        if surely {
            Self::check_limits(journal, policy, khz)?;
        }
        // With our governor goes what we set under it; under the user's it is his setting.
        let done = match (Self::was_userspace(journal, policy), surely) {
            (true, true) => journal.change_surely(policy.setspeed, khz),
            (true, false) => journal.change(policy.setspeed, khz),
            (false, _) => journal.write_unrecorded(policy.setspeed, khz),
        };
        let taken = |_| Error::Taken(journal.place(policy.governor));
        match done {
            // The kernel has no such setting under another governor.
            Err(Error::System(libc::EINVAL, place)) => {
                let governor = journal.read(policy.governor)?;
                let is_ours = governor.text() == USERSPACE;
                Err(if is_ours { Error::System(libc::EINVAL, place) } else { taken(()) })
            }
            done => done,
        }
    }

    /// Refuses what the kernel would clamp.
    fn check_limits(journal: &Journal, policy: &Policy, khz: Value) -> Result<(), Error> {
        let limit = |id| Ok::<_, Error>(journal.read(id)?.decimal());
        if limit(policy.max)?.is_some_and(|max| khz.decimal() > Some(max)) {
            return Err(Error::Limited(journal.place(policy.max)));
        }
        if limit(policy.min)?.is_some_and(|min| khz.decimal() < Some(min)) {
            return Err(Error::Limited(journal.place(policy.min)));
        }
        Ok(())
    }

    fn set_limits(
        journal: &Journal,
        policy: &Policy,
        (min, max): (Value, Value),
        surely: bool,
    ) -> Result<(), Error> {
        let now = journal.pending(policy.max).decimal();
        let is_up = now.is_none_or(|now| max.decimal().is_some_and(|max| max >= now));
        let mut both = [(policy.max, max), (policy.min, min)];
        if !is_up {
            both.reverse();
        }
        let mut left = both.into_iter().filter(|&(id, value)| journal.pending(id) != value);
        left.try_for_each(|(id, value)| match surely {
            true => journal.change_surely(id, value),
            false => journal.change(id, value),
        })
    }
}

impl Backend for Cpufreq {
    fn prepare(&self, journal: &Journal, unit: usize) -> Result<(), Error> {
        let policy = &self.policies[unit];
        if self.way == Way::Limits || journal.read(policy.governor)?.text() == USERSPACE {
            return Ok(());
        }
        journal.change_surely(policy.governor, Value::of_text(USERSPACE))
    }

    fn set(&self, journal: &Journal, unit: usize, khz: u32, surely: bool) -> Result<(), Error> {
        let (policy, khz) = (&self.policies[unit], Value::of_decimal(khz.into()));
        match self.way {
            Way::Limits => Self::set_limits(journal, policy, (khz, khz), surely),
            _ => Self::set_speed(journal, policy, khz, surely),
        }
    }

    fn reads_back_at_once(&self) -> bool {
        self.way != Way::Limits
    }

    fn rest(&self, journal: &Journal, unit: usize) -> Result<(), Error> {
        let policy = &self.policies[unit];
        if self.way == Way::Limits {
            let found = journal.original(policy.min).zip(journal.original(policy.max));
            return found.map_or(Ok(()), |both| Self::set_limits(journal, policy, both, false));
        }
        let before = journal.original(policy.setspeed).filter(|value| value.decimal().is_some());
        Self::set_speed(journal, policy, before.unwrap_or(policy.base), false)
    }

    fn release(&self, journal: &Journal, unit: usize) -> Result<(), Error> {
        let Policy { governor, setspeed, min, max, .. } = self.policies[unit];
        // All are tried; the first failure is reported.
        let mut done = Ok(());
        for id in [setspeed, max, min, governor] {
            done = done.and(journal.put_back(id));
        }
        done
    }

    fn turbo(&self, journal: &Journal, on: Option<bool>) -> Result<bool, Error> {
        let Some(switch) = &self.switch else { return Err(Error::NoTurboSwitch) };
        if let Some(on) = on {
            let value = if on { switch.on } else { switch.off };
            for id in &switch.settings {
                journal.change_surely(*id, value)?;
            }
        }
        Ok(journal.read(switch.settings[0])? == switch.on)
    }
}
