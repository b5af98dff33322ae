// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frequencies that a unit can be set to.
//!
//! Either a table (acpi-cpufreq, registers), or everything between two ends (intel_pstate,
//! amd-pstate, whose hardware picks the nearest step itself).

use crate::error::Error;

/// What can be set, kHz.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speeds {
    /// The slowest P-state.
    pub slow_khz: u32,
    /// The fastest without turbo: P_base of TURBO 3.
    pub base_khz: u32,
    /// The fastest.
    pub turbo_khz: u32,
    /// All P-states, ascending; empty if every frequency between the ends can be set.
    pub table_khz: Vec<u32>,
}

impl Speeds {
    /// From a table in any order; `None` if it is empty.
    pub fn of_table(mut table_khz: Vec<u32>, base_khz: Option<u32>) -> Option<Self> {
        table_khz.sort_unstable();
        table_khz.dedup();
        let (&slow_khz, &turbo_khz) = (table_khz.first()?, table_khz.last()?);
        let base_khz = base_khz.unwrap_or(turbo_khz).clamp(slow_khz, turbo_khz);
        Some(Speeds { slow_khz, base_khz, turbo_khz, table_khz })
    }

    /// From two ends.
    pub fn of_range(slow_khz: u32, turbo_khz: u32, base_khz: Option<u32>) -> Option<Self> {
        (slow_khz > 0 && slow_khz <= turbo_khz).then(|| {
            let base_khz = base_khz.unwrap_or(turbo_khz).clamp(slow_khz, turbo_khz);
            Speeds { slow_khz, base_khz, turbo_khz, table_khz: Vec::new() }
        })
    }

    /// Refuses a frequency that cannot be set, with the nearest that can.
    pub fn check(&self, khz: u32) -> Result<(), Error> {
        let is_fine = match self.table_khz.as_slice() {
            [] => (self.slow_khz..=self.turbo_khz).contains(&khz),
            table => table.binary_search(&khz).is_ok(),
        };
        if is_fine {
            return Ok(());
        }
        let ends = [self.slow_khz, self.turbo_khz];
        let table = if self.table_khz.is_empty() { &ends[..] } else { &self.table_khz };
        let below_khz = table.iter().rev().find(|&&other| other < khz).copied().unwrap_or(0);
        let above_khz = table.iter().find(|&&other| other > khz).copied().unwrap_or(0);
        Err(Error::OffTable { asked_khz: khz, below_khz, above_khz })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of TURBO's AMD machine (Selective Core Boosting): what is on it passes, else its
    /// neighbours are named.
    #[test]
    fn a_table_knows_its_neighbours() {
        let mhz = [4_000, 3_400, 3_100, 2_800, 2_300, 1_900, 1_400];
        let table = mhz.map(|mhz| mhz * 1_000).to_vec();
        let speeds = Speeds::of_table(table, Some(3_100_000)).unwrap();
        assert_eq!((speeds.slow_khz, speeds.base_khz), (1_400_000, 3_100_000));
        assert_eq!(speeds.check(2_300_000), Ok(()));
        let off = |asked_khz, below_khz, above_khz| {
            assert_eq!(
                speeds.check(asked_khz),
                Err(Error::OffTable { asked_khz, below_khz, above_khz })
            );
        };
        off(2_300_001, 2_300_000, 2_800_000);
        off(1, 0, 1_400_000);
        off(5_000_000, 4_000_000, 0);
    }

    /// Between two ends everything passes; nothing is made of an empty table or a range upside
    /// down.
    #[test]
    fn a_range_has_ends() {
        let speeds = Speeds::of_range(800_000, 3_700_000, None).unwrap();
        assert_eq!(speeds.check(1_234_567), Ok(()));
        assert!(speeds.check(799_999).is_err() && speeds.check(3_700_001).is_err());
        assert_eq!(Speeds::of_table(Vec::new(), None), None);
        assert_eq!(Speeds::of_range(2, 1, None), None);
    }
}
