// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sound.attacks_succeeded`: what a local user can do to a machine with the scheduler or the trap module, each attack in
//! the same guest, one after the other. The guest's kernel log must be clean at the end, too.

use anyhow::Result;

use crate::measure::{Figure, publish};
use crate::tests::{control, groups, hint_attacks, trap_attacks, waits};

type Attack = (&'static str, fn() -> Result<()>);

const ATTACKS: [Attack; 10] = [
    ("busy tasks of all weights against the watchdog", waits::a_light_task_beside_thirty),
    ("rubbish in the own slots", hint_attacks::scribblers),
    ("reading and writing others' slots", hint_attacks::spies),
    ("thousands of threads that take slots", hint_attacks::many_threads),
    ("floods of the hint socket", hint_attacks::floods),
    ("floods of the control socket", control::a_local_user_fails),
    ("control groups that come, go and change", groups::delegated_storm),
    ("files that change or vanish under the trap module", trap_attacks::by_files),
    ("the trap module's device", trap_attacks::by_device),
    ("races of paths and mappings", trap_attacks::by_races),
];

/// Count and publish.
pub fn run() -> Result<()> {
    let mut succeeded = 0;
    for (what, attack) in ATTACKS {
        if let Err(error) = attack() {
            println!("an attack succeeded: {what}: {error:#}");
            succeeded += 1;
        }
    }
    let figure = Figure::count("sound.attacks_succeeded", succeeded, ATTACKS.len() as u64);
    publish("attacks", &[Figure { unit: "attacks", ..figure }])
}
