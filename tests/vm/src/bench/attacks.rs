// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sound.attacks_succeeded`: what a local user can do to a machine with the scheduler or the trap
//! module, each attack in the same guest, one after the other. The guest's kernel log must be clean
//! at the end, too.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::guest::{Child, wait_for};
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

/// Each attack takes 20 to 200 s alone. One that is not over by then has won: the machine does not
/// answer any more.
const LIMIT: Duration = Duration::from_secs(400);

/// The attack in a process of its own, so that it finds nothing that an earlier one has left in
/// memory, and can be ended with all that it has started.
fn within_limit(attack: fn() -> Result<()>) -> Result<()> {
    let mut child = Child::fork(|| {
        // SAFETY: of this process alone.
        unsafe { libc::setpgid(0, 0) };
        if let Err(error) = attack() {
            println!("{error:#}");
            // SAFETY: ends this child.
            unsafe { libc::_exit(1) };
        }
    })?;
    let ended = wait_for("it is not over", LIMIT, || child.has_ended());
    if ended.is_err() {
        // SAFETY: ends the group that the child has made.
        unsafe { libc::kill(-child.pid, libc::SIGKILL) };
    }
    let code = child.wait()?;
    ended?;
    ensure!(code == 0, "it ended with {code}");
    Ok(())
}

/// Count and publish.
pub fn run() -> Result<()> {
    let mut succeeded = 0;
    for (what, attack) in ATTACKS {
        let start = Instant::now();
        let result = within_limit(attack);
        println!("{what}: {:.0} s", start.elapsed().as_secs_f64());
        if let Err(error) = result {
            println!("an attack succeeded: {what}: {error:#}");
            succeeded += 1;
        }
    }
    let figure = Figure::count("sound.attacks_succeeded", succeeded, ATTACKS.len() as u64);
    publish("attacks", &[Figure { unit: "attacks", ..figure }])
}
