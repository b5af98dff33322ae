// SPDX-License-Identifier: MIT OR Apache-2.0
//! The energy that the packages have used: the kernel's counters of RAPL (powercap), on Intel and
//! AMD alike.
//!
//! A zone's `energy_uj` counts up to `max_energy_range_uj` and begins again, after minutes to
//! hours. Since 5.10 only root may read it (CVE-2020-8694). A virtual machine usually has no
//! counter.
//!
//! Only the packages count: their sub-zones (cores, memory controller) are parts of them, and the
//! zones of `intel-rapl-mmio` are the same packages through another interface.

use crate::Source;

const ZONES: &str = "/sys/class/powercap";

/// The packages' counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnergyMeter {
    zones: Vec<Zone>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Zone {
    path: String,
    range_uj: u64,
}

/// What the counters said at a moment, uJ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnergyReading(Vec<u64>);

impl EnergyMeter {
    /// Looks for counters that can be read; else why there are none.
    pub fn find(source: &dyn Source) -> Result<EnergyMeter, String> {
        let names = source.list(ZONES).unwrap_or_default();
        let mut zones = Vec::new();
        for name in names.iter().filter(|name| name.starts_with("intel-rapl:")) {
            let file = |file: &str| source.read(&format!("{ZONES}/{name}/{file}"));
            if !file("name").is_ok_and(|name| name.trim().starts_with("package-")) {
                continue;
            }
            let path = format!("{ZONES}/{name}/energy_uj");
            number(source, &path).map_err(|why| format!("{path}: {why}"))?;
            let range_uj = number(source, &format!("{ZONES}/{name}/max_energy_range_uj"))
                .map_err(|why| format!("{ZONES}/{name}/max_energy_range_uj: {why}"))?;
            zones.push(Zone { path, range_uj });
        }
        if zones.is_empty() {
            return Err(format!("{ZONES} has no package (no RAPL here, or not for this machine)"));
        }
        Ok(EnergyMeter { zones })
    }

    /// What the counters say now; `None` if one cannot be read any more.
    pub fn read(&self, source: &dyn Source) -> Option<EnergyReading> {
        let values = self.zones.iter().map(|zone| number(source, &zone.path).ok());
        values.collect::<Option<_>>().map(EnergyReading)
    }

    /// Energy of all packages between two readings, less than a turn of the counter apart, uJ.
    pub fn between_uj(&self, before: &EnergyReading, after: &EnergyReading) -> u64 {
        let used_uj =
            |((zone, before), after): ((&Zone, &u64), &u64)| match after.checked_sub(*before) {
                Some(used_uj) => used_uj,
                None => (zone.range_uj - before.min(&zone.range_uj)) + after,
            };
        self.zones.iter().zip(&before.0).zip(&after.0).map(used_uj).sum()
    }
}

fn number(source: &dyn Source, path: &str) -> Result<u64, String> {
    let text = source.read(path).map_err(|error| error.to_string())?;
    text.trim().parse().map_err(|_| format!("\"{}\" is not a number", text.trim()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Rooted;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Rooted) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let whole = root.path().join("sys/class/powercap").join(path);
            fs::create_dir_all(whole.parent().unwrap()).unwrap();
            fs::write(whole, format!("{text}\n")).unwrap();
        }
        let source = Rooted::new(root.path());
        (root, source)
    }

    const TWO_PACKAGES: [(&str, &str); 10] = [
        ("intel-rapl:0/name", "package-0"),
        ("intel-rapl:0/energy_uj", "900"),
        ("intel-rapl:0/max_energy_range_uj", "1000"),
        ("intel-rapl:0:0/name", "core"),
        ("intel-rapl:0:0/energy_uj", "500"),
        ("intel-rapl:1/name", "package-1"),
        ("intel-rapl:1/energy_uj", "100"),
        ("intel-rapl:1/max_energy_range_uj", "1000"),
        ("intel-rapl-mmio:0/name", "package-0"),
        ("intel-rapl-mmio:0/energy_uj", "900"),
    ];

    /// Packages are added up, their parts are not; a counter that has begun again has not gone
    /// back.
    #[test]
    fn packages_are_added_up() {
        let (root, source) = machine(&TWO_PACKAGES);
        let meter = EnergyMeter::find(&source).unwrap();
        let before = meter.read(&source).unwrap();
        fs::write(root.path().join("sys/class/powercap/intel-rapl:0/energy_uj"), "50\n").unwrap();
        fs::write(root.path().join("sys/class/powercap/intel-rapl:1/energy_uj"), "130\n").unwrap();
        let after = meter.read(&source).unwrap();
        assert_eq!(meter.between_uj(&before, &after), 100 + 50 + 30);
        assert_eq!(meter.between_uj(&before, &before), 0);
    }

    /// Missing counters and unusable ones are reported.
    #[test]
    fn nothing_to_read_fails() {
        let (_root, source) = machine(&[]);
        assert!(EnergyMeter::find(&source).unwrap_err().contains("no package"));
        let (_root, source) =
            machine(&[("intel-rapl:0/name", "package-0"), ("intel-rapl:0/energy_uj", "much")]);
        let why = EnergyMeter::find(&source).unwrap_err();
        assert!(why.contains("energy_uj") && why.contains("\"much\""), "{why}");
    }
}
