// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that switch contexts by themselves keep their registers: what is saved by plain instructions is complete,
//! wherever the code comes from.

use anyhow::{Result, ensure};

use crate::trap::Trap;
use crate::trap::contexts::{self, Form, Place};

const SETTINGS: &str = "mode=count grace_ns=10000 exec_grace_ns=0";

/// Every form of saving from memory of every kind that is not read; the same without protection is wrong, or this would
/// show nothing. (Code of a file that was read depends on a probe at each instruction, and is not right each time yet: see
/// docs/kernel-module.md, and `trap.foreign_contexts_wrong` of `./x bench trap`, which counts it.)
pub fn foreign_contexts() -> Result<()> {
    let trap = Trap::on(&[0], &format!("{SETTINGS} withhold_unread=0"))?;
    let (wrong, all) = contexts::all(&trap, &contexts::PLACES[1..], 100)?;
    ensure!(wrong == 0, "{wrong} of {all} contexts got wrong values");
    crate::trap::set("withhold_unread", "1")?;
    let (wrong, _) = contexts::run(&trap, Form::Xsave, Place::Anonymous, false, 50)?;
    ensure!(wrong > 0, "all contexts are right without protection, too");
    trap.off()
}
