// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sound.kills_failed`: kill -9 of the loader at 1,000 moments of its start and life. A kill fails
//! if the loader survives or the kernel's own scheduler is not back. If no new run starts or stops,
//! there is no figure but an error.

use anyhow::Result;

use crate::measure::{Figure, publish};
use crate::tests::lifecycle::kill_at_any_moment;

const KILLS: u32 = 1_000;

/// The kills; progress every fifty.
pub fn run() -> Result<()> {
    let done = kill_at_any_moment(|kills| {
        if kills % 50 == 0 {
            println!("{kills} of {KILLS} kills");
        }
        kills < KILLS
    })?;
    let of_all = |name, count| Figure::count(name, u64::from(count), u64::from(done.kills));
    publish(
        "kills",
        &[
            of_all("sound.kills_failed", done.failed),
            of_all("sound.kills_while_loading", done.kills - done.while_enabled),
        ],
    )
}
