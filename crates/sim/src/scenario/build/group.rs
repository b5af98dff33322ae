// SPDX-License-Identifier: MIT OR Apache-2.0
//! A group's table without its programs: who its tasks are, where they run, and what slows them.

use cpumodel::CpuSet;
use toml::Spanned;

use super::super::file::GroupTable;
use super::{Reader, Result, TASKS_MAX};
use crate::program::{Group, Memory};

impl Reader<'_> {
    pub(super) fn group(&self, table: &Spanned<GroupTable>, programs: Vec<u16>) -> Result<Group> {
        let g = table.get_ref();
        let mut group = Group { programs, ..Group::new(&g.name, g.tasks, 0) };
        if g.tasks > TASKS_MAX {
            return self.bad(&table.span(), "too many tasks", "choose at most 100,000");
        }
        group.weight = g.weight.unwrap_or(100);
        if !(1..=10_000).contains(&group.weight) {
            return self.bad(&table.span(), "weight is out of range", "choose 1 to 10,000");
        }
        group.refill_frac = g.refill.unwrap_or(1.0);
        if !(group.refill_frac >= 0.0 && group.refill_frac <= 1000.0) {
            return self.bad(&table.span(), "refill is out of range", "choose 0 to 1,000");
        }
        group.memory = self.memory(table)?;
        (group.scalar, group.kernel, group.start_ns) = (g.scalar, g.kernel, g.start_ns);
        if let Some(list) = &g.cpus {
            let cpus: CpuSet = match list.get_ref().parse() {
                Ok(cpus) => cpus,
                Err(error) => {
                    let what = format!("\"{}\" is not a list of CPUs: {error}", list.get_ref());
                    return self.bad(&list.span(), what, "write it as 0-3,8");
                }
            };
            group.affinity = Some(cpus.iter().collect());
        }
        Ok(group)
    }

    fn memory(&self, table: &Spanned<GroupTable>) -> Result<Memory> {
        let g = table.get_ref();
        let memory = Memory {
            sensitive_frac: g.sensitive_frac.unwrap_or(1.0),
            reference_khz: g.reference_khz,
        };
        if !(memory.sensitive_frac >= 0.0 && memory.sensitive_frac <= 1.0) {
            let next = "choose 0 (it waits for memory) to 1 (it follows the clock)";
            return self.bad(&table.span(), "sensitive_frac is out of range", next);
        }
        if g.reference_khz.is_some_and(|khz| !(100_000..=20_000_000).contains(&khz)) {
            let what = "reference_khz is no clock";
            return self.bad(&table.span(), what, "write kHz, such as 2_800_000");
        }
        Ok(memory)
    }
}
