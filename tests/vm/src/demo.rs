// SPDX-License-Identifier: MIT OR Apache-2.0
//! demo
pub fn run() -> anyhow::Result<()> {
    Ok(())
}
