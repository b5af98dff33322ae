// SPDX-License-Identifier: MIT OR Apache-2.0
//! AMD: PStateCtl, and on Family 15h boosted P-states of single cores.
//!
//! ```text
//!   PStateCurLim C001_0061   6..4 highest number (slowest P-state)
//!   PStateCtl    C001_0062   2..0 P-state asked for
//!   PStateDef n  C001_0064+n 63 valid, the rest frequency and voltage
//!     10h..16h   8..6 DID, 5..0 FID      100 MHz * (FID + 16) >> DID
//!     17h..19h   13..8 DFS, 7..0 FID     200 MHz * FID / DFS
//!     1Ah        11..0 FID               5 MHz * FID
//!   PCI D18F4x15C (15h)      31 lock, 4..2 number of boosted P-states, 1..0 boost source
//! ```
//!
//! Number 0 is the fastest. On Family 15h the first definitions are *boosted* P-states, which the
//! hardware enters by itself, and which PStateCtl cannot name: it counts from the first that is
//! not boosted. TURBO (slides 4, 10) sets their number to 0 by PCI configuration: from then on all
//! are counted, and a single core can be boosted by hand, while the others pay for it.
//!
//! The order matters. Every core holds a number k of the old count; in the new count k means a
//! faster one. So first every core is set to k + boosted (which the old count reads as a slower
//! one), then the count is changed; the journal undoes it in the opposite order. At no time does a
//! core run faster than before.
//!
//! Source: BKDG for Family 15h models 00h-0Fh (42301), 2.5.2 and D18F4x15C; PPR for Family 17h
//! (55570) and 1Ah, MSRC001_006x.
//!
//! Limits: with the lock bit set, and on other families, boost stays the hardware's: the fastest
//! P-state that can be asked for is the base, above which the hardware boosts by itself.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use hw::Source;

use super::{Cpu, Device, Registers, bits};
use crate::backend::{Backend, Found, Machine, Unit};
use crate::error::Error;
use crate::journal::Journal;
use crate::setting::{Form, SettingId, Spec, Specs};
use crate::speeds::Speeds;
use crate::value::Value;

const HWCR: u32 = 0xc001_0015;
const CPB_DISABLED: u64 = 1 << 25;
const CUR_LIMIT: u32 = 0xc001_0061;
const CTL: u32 = 0xc001_0062;
const DEFINITIONS: u32 = 0xc001_0064;
const DEFINITIONS_COUNT: u32 = 8;
const VALID: u64 = 1 << 63;
const COMMAND: u64 = 7;

const BOOST_CONTROL: u32 = 0x15c;
const BOOST_LOCKED: u64 = 1 << 31;
/// Number of boosted P-states and boost source.
const BOOST_BITS: u64 = 0x1f;
/// Northbridges, each a PCI device from 18h on (at most eight).
const NODES: std::ops::Range<u32> = 0x18..0x20;

struct Amd {
    /// PStateCtl of each unit.
    commands: Vec<SettingId>,
    /// HWCR of each unit.
    switches: Vec<SettingId>,
    /// Frequency of each number that PStateCtl takes; 0 where invalid.
    numbers_khz: Vec<u32>,
    manual: Option<Manual>,
}

/// Boosted P-states under our control.
struct Manual {
    boosted: u32,
    controls: Vec<SettingId>,
    is_taken: Mutex<bool>,
}

pub(super) fn find(machine: &Machine, of: &Registers, specs: &mut Specs) -> Result<Found, String> {
    let Registers { cpu, devices } = of;
    let first = devices.first().ok_or("no CPU is online")?;
    let hardware_khz = definitions(machine, cpu, first)?;
    let boost = if cpu.family == 0x15 { boost(machine) } else { Boost::default() };
    let boosted = boost.states as usize;
    let skipped = if boost.is_ours { 0 } else { boosted };
    let numbers_khz: Vec<u32> = hardware_khz.get(skipped..).unwrap_or_default().to_vec();
    let base = hardware_khz.get(boosted).copied().filter(|khz| *khz > 0);
    let table = numbers_khz.iter().copied().filter(|khz| *khz > 0).collect();
    let speeds = Speeds::of_table(table, base).ok_or("no P-state is defined")?;
    let unit = |device: &Device| Unit { cpus: vec![device.cpu], speeds: speeds.clone() };
    let units = devices.iter().map(unit).collect();
    let commands = devices.iter().map(|device| device.whole(specs, CTL, COMMAND)).collect();
    let switches = devices.iter().map(|device| device.setting(specs, HWCR, CPB_DISABLED)).collect();
    let what = format!("PStateCtl{}", boost.note);
    let manual = (boost.is_ours && boost.states > 0).then(|| Manual {
        boosted: boost.states,
        controls: boost.nodes.iter().map(|path| control(specs, path)).collect(),
        is_taken: Mutex::new(false),
    });
    let backend = Box::new(Amd { commands, switches, numbers_khz, manual });
    Ok(Found { backend, units, what })
}

/// Frequencies of the definitions up to the slowest, in hardware's order; 0 where invalid.
fn definitions(machine: &Machine, cpu: &Cpu, device: &Device) -> Result<Vec<u32>, String> {
    let decode: fn(u64) -> Option<u64> = match cpu.family {
        0x10..=0x16 => |def| Some((100_000 * (bits(def, 5, 0) + 16)) >> bits(def, 8, 6)),
        0x17..=0x19 => |def| (200_000 * bits(def, 7, 0)).checked_div(bits(def, 13, 8)),
        0x1a => |def| Some(5_000 * bits(def, 11, 0)),
        other => return Err(format!("family {other:#x} of AMD has registers that are not known")),
    };
    // An older family without the register has P-states all the same.
    device.read(machine, CUR_LIMIT).ok_or_else(|| format!("{} has no P-states", device.path))?;
    Ok((0..DEFINITIONS_COUNT)
        .map(|number| {
            let def = device.read(machine, DEFINITIONS + number).unwrap_or(0);
            if def & VALID == 0 { 0 } else { decode(def).unwrap_or(0) as u32 }
        })
        .collect())
}

/// Family 15h's boosted P-states.
#[derive(Default)]
struct Boost {
    states: u32,
    is_ours: bool,
    nodes: Vec<String>,
    note: String,
}

fn boost(machine: &Machine) -> Boost {
    let path = |node: u32| format!("/sys/bus/pci/devices/0000:00:{node:02x}.4/config");
    let nodes: Vec<String> = NODES.map(path).filter(|path| machine.source.exists(path)).collect();
    let read = |path: &String| -> Option<u64> {
        let mut bytes = [0; 4];
        let file = File::open(machine.place(path)).ok()?;
        file.read_exact_at(&mut bytes, BOOST_CONTROL.into()).ok()?;
        Some(u32::from_le_bytes(bytes).into())
    };
    let all: Vec<u64> = nodes.iter().filter_map(read).collect();
    let Some(&first) = all.first() else {
        let note = ", boosted P-states unknown: PCI D18F4 cannot be read".to_string();
        return Boost { note, ..Boost::default() };
    };
    let states = bits(first, 4, 2) as u32;
    let is_locked = all.iter().any(|control| control & BOOST_LOCKED != 0);
    let denied = nodes.iter().find_map(|path| machine.writable(path).err());
    let note = match (is_locked, denied) {
        (true, _) => format!(", {states} boosted P-states left to the hardware (BoostLock)"),
        (_, Some(why)) => format!(", {states} boosted P-states left to the hardware ({why})"),
        (false, None) => format!(", {states} boosted P-states by hand (D18F4x15C)"),
    };
    let is_ours = note.ends_with("(D18F4x15C)");
    Boost { states, is_ours, nodes, note }
}

fn control(specs: &mut Specs, path: &str) -> SettingId {
    let form = Form::Pci(BOOST_CONTROL);
    let (path, mask) = (path[1..].to_string(), BOOST_BITS);
    specs.add(Spec { path, form, mask, others_are_reserved: false, yields: false })
}

impl Amd {
    /// The number that a core had, in the count of now.
    fn own_number(&self, journal: &Journal, unit: usize) -> Result<u64, Error> {
        let id = self.commands[unit];
        let found = journal.original(id).map_or_else(|| journal.read(id), Ok)?;
        let boosted = self.manual.as_ref().map_or(0, |manual| manual.boosted);
        let slowest = self.numbers_khz.iter().rposition(|khz| *khz > 0).unwrap_or(0);
        Ok(((found.register() & COMMAND) + u64::from(boosted)).min(slowest as u64))
    }

    /// Takes the boosted P-states from the hardware, in the order that the head explains.
    fn take_boost(&self, journal: &Journal, manual: &Manual) -> Result<(), Error> {
        let mut is_taken = manual.is_taken.lock().unwrap_or_else(|broken| broken.into_inner());
        if *is_taken {
            return Ok(());
        }
        for (unit, id) in self.commands.iter().enumerate() {
            let number = self.own_number(journal, unit)?;
            journal.change(*id, Value::of_register(number))?;
        }
        for id in &manual.controls {
            journal.change_surely(*id, Value::of_register(0))?;
        }
        *is_taken = true;
        Ok(())
    }
}

impl Backend for Amd {
    fn prepare(&self, journal: &Journal, _unit: usize) -> Result<(), Error> {
        self.manual.as_ref().map_or(Ok(()), |manual| self.take_boost(journal, manual))
    }

    fn set(&self, journal: &Journal, unit: usize, khz: u32, surely: bool) -> Result<(), Error> {
        let number = self.numbers_khz.iter().position(|other| *other == khz).unwrap_or(0);
        let (id, value) = (self.commands[unit], Value::of_register(number as u64));
        if surely { journal.change_surely(id, value) } else { journal.change(id, value) }
    }

    fn rest(&self, journal: &Journal, unit: usize) -> Result<(), Error> {
        if journal.original(self.commands[unit]).is_none() {
            return Ok(());
        }
        let number = self.own_number(journal, unit)?;
        journal.change(self.commands[unit], Value::of_register(number))
    }

    fn release(&self, journal: &Journal, unit: usize) -> Result<(), Error> {
        // While the count is ours, the number as found would mean a faster P-state.
        match self.manual {
            Some(_) => self.rest(journal, unit),
            None => journal.put_back(self.commands[unit]),
        }
    }

    fn turbo(&self, journal: &Journal, on: Option<bool>) -> Result<bool, Error> {
        let disabled = |on: bool| Value::of_register(if on { 0 } else { CPB_DISABLED });
        if let Some(on) = on {
            self.switches.iter().try_for_each(|id| journal.change_surely(*id, disabled(on)))?;
        }
        Ok(journal.read(self.switches[0])?.register() & CPB_DISABLED == 0)
    }
}
