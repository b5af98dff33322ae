// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sound.kills_failed`: kill -9 of the loader at 1,000 moments of its start and life. A kill fails if the kernel's own
//! scheduler is not back, or no new run can start; the first one ends the measurement with an error.

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
    let failed =
        Figure::count("sound.kills_failed", u64::from(KILLS - done.kills), u64::from(KILLS));
    let loading = u64::from(done.kills - done.while_enabled);
    publish(
        "kills",
        &[failed, Figure::count("sound.kills_while_loading", loading, u64::from(KILLS))],
    )
}
