// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a command took under `turbolane run`, without what taking over and giving back take.

use serde::{Deserialize, Serialize};

/// The document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Times {
    /// See [`crate::SCHEMA`].
    pub schema: u32,
    /// From the command's start to its end.
    pub time_ns: u64,
    /// CPU time of the command and its children, user and system.
    pub cpu_time_ns: u64,
    /// CPU time of `turbolane run` itself in that time.
    pub own_cpu_time_ns: u64,
}

impl Times {
    /// Reads the document; `None` if it is none.
    pub fn parse(text: &str) -> Option<Times> {
        serde_json::from_str(text).ok()
    }
}
