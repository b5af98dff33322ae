// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report on a fleet as text, and its machines as CSV (RFC 4180).

use super::{Fleet, FleetService, Machine, Model};
use crate::advise::Worth;
use crate::csv;
use crate::text::{Align, Table, duration, wrap};

/// Machines that a service's row names; JSON has all.
const NAMED: usize = 3;
/// Services shown; JSON has all.
const SERVICES_SHOWN: usize = 20;

/// Columns of the CSV file, which end in their unit.
const COLUMNS: [&str; 9] = [
    "machine",
    "cpu",
    "worth",
    "gain_pct",
    "clock_khz",
    "stake_khz",
    "sampled",
    "services",
    "next",
];

impl Fleet {
    /// As text of at most `width` columns; commands are never broken.
    pub fn text(&self, width: usize) -> String {
        let head = format!(
            "{} machines: worth it on {}, not known on {}, not worth it on {}",
            self.machines.len(),
            self.count(Worth::Yes),
            self.count(Worth::Unknown),
            self.count(Worth::No)
        );
        let mut text = wrap("", &head, width) + "\n" + &self.models_text(width);
        if !self.services.is_empty() {
            text += &format!("\n{}", self.services_text(width));
        }
        text + "\n" + &self.machines_text(width) + &self.steps_text(width)
    }

    fn models_text(&self, width: usize) -> String {
        let mut table = Table::new(&[
            ("MACHINES", Align::Right),
            ("YES", Align::Right),
            ("NOT KNOWN", Align::Right),
            ("MHZ AT STAKE", Align::Right),
            ("CPU", Align::Left),
        ]);
        for Model { cpu, machines, yes, unknown, clock_khz, stake_khz } in &self.models {
            let stake = stake(*stake_khz, *clock_khz);
            let counts = [machines, yes, unknown].map(u32::to_string);
            table.row(counts.into_iter().chain([stake, cpu.clone()]).collect());
        }
        table.text(width)
    }

    fn services_text(&self, width: usize) -> String {
        let mut table = Table::new(&[
            ("SERVICE", Align::Left),
            ("LEVEL", Align::Right),
            ("CPU TIME", Align::Right),
            ("MACHINES", Align::Right),
            ("ON", Align::Left),
        ]);
        for service in self.services.iter().take(SERVICES_SHOWN) {
            let FleetService { name, sustained_level, cpu_time_ns, machines } = service;
            let more = machines.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let on = machines.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ") + &more;
            let number = machines.len().to_string();
            let level = sustained_level.to_string();
            table.row(vec![name.clone(), level, duration(*cpu_time_ns), number, on]);
        }
        let more = self.services.len().saturating_sub(SERVICES_SHOWN);
        let more =
            if more > 0 { format!("and {more} more; --json has all\n") } else { String::new() };
        table.text(width) + &more
    }

    fn machines_text(&self, width: usize) -> String {
        let mut table = Table::new(&[
            ("MACHINE", Align::Left),
            ("WORTH IT", Align::Left),
            ("GAIN", Align::Right),
            ("MHZ AT STAKE", Align::Right),
            ("WHY", Align::Left),
        ]);
        for machine in &self.machines {
            table.row(vec![
                machine.name.clone(),
                word(machine.worth).into(),
                machine.gain_pct.map_or("-".into(), |pct| format!("{pct:+.1} %")),
                stake(machine.stake_khz, machine.clock_khz),
                machine.why.clone(),
            ]);
        }
        table.text(width)
    }

    fn steps_text(&self, width: usize) -> String {
        let mut text = String::new();
        for Machine { name, next, .. } in self.machines.iter().filter(|m| !m.next.is_empty()) {
            text += &match next.starts_with("sudo turbolane ") {
                true => format!("{name}: {next}\n"),
                false => wrap(&format!("{name}: "), next, width),
            };
        }
        if text.is_empty() {
            text
        } else {
            format!("\nNext steps, the most promising first:\n{text}")
        }
    }

    /// One line per machine, below a line of names.
    pub fn csv(&self) -> String {
        let lines =
            self.machines.iter().map(csv_row).map(|cells| cells.map(|cell| csv::cell(&cell)));
        let lines = lines.map(|cells| cells.join(","));
        let head = COLUMNS.join(",");
        std::iter::once(head).chain(lines).map(|line| line + "\r\n").collect()
    }
}

fn word(worth: Worth) -> &'static str {
    match worth {
        Worth::Yes => "yes",
        Worth::Unknown => "not known",
        Worth::No => "no",
    }
}

fn stake(stake_khz: Option<u32>, clock_khz: Option<u32>) -> String {
    match (stake_khz, clock_khz) {
        (Some(stake), Some(clock)) => format!("{} of {}", stake / 1000, clock / 1000),
        _ => "-".into(),
    }
}

fn csv_row(machine: &Machine) -> [String; COLUMNS.len()] {
    let number = |value: Option<u32>| value.map_or(String::new(), |value| value.to_string());
    [
        machine.name.clone(),
        machine.cpu.clone(),
        word(machine.worth).into(),
        machine.gain_pct.map_or(String::new(), |pct| pct.to_string()),
        number(machine.clock_khz),
        number(machine.stake_khz),
        machine.sampled.clone().unwrap_or_default(),
        number(machine.services),
        machine.next.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::tests::sample;

    /// A verdict on all, the models, the services, and the machines with what to do.
    #[test]
    fn the_text_has_what_to_do() {
        let text = sample().text(100);
        let expected = "\
5 machines: worth it on 2, not known on 2, not worth it on 1

MACHINES  YES  NOT KNOWN  MHZ AT STAKE  CPU
       3    2          1   900 of 2800  Xeon Gold 6130
       1    0          0             -  AMD EPYC 9654
       1    0          1             -  Some ?[31mCPU

SERVICE        LEVEL  CPU TIME  MACHINES  ON
nginx.service      2     1.50s         2  hidden, looked-at
ssh.service        1       9ns         1  looked-at

MACHINE    WORTH IT     GAIN  MHZ AT STAKE  WHY
large      yes        +7.6 %   900 of 2800  since it is so
small      yes        +1.2 %   900 of 2800  since it is so
looked-at  not known       -   900 of 2800  since it is so
hidden     not known       -             -  since it is so
genoa      no              -             -  since it is so

Next steps, the most promising first:
large: sudo turbolane enable --wide-cpus 2
small: sudo turbolane enable --wide-cpus 2
looked-at: sudo turbolane advise --unit nginx.service
hidden: look closer
";
        assert_eq!(text, expected);
    }

    /// Each machine is a line with as many cells as there are names; texts cannot add cells or
    /// formulas.
    #[test]
    fn csv_is_what_spreadsheets_read() {
        let csv = sample().csv();
        let lines: Vec<&str> = csv.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[0], COLUMNS.join(","));
        let first = "large,Xeon Gold 6130,yes,7.6,2800000,900000,\"nginx.service, 30.0s\",,\
                     sudo turbolane enable --wide-cpus 2";
        assert_eq!(lines[1], first);
    }
}
