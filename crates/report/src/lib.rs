// SPDX-License-Identifier: MIT OR Apache-2.0
//! The only serialised types: what Turbolane says, as text for people and as JSON for programs.
//!
//! Rules of every JSON document:
//!
//! - one document is one line; its first key is `schema`, see [`SCHEMA`];
//! - a key that holds a quantity ends in the unit: `_ns`, `_khz`, `_pct`;
//! - `null` means unknown: not measured, not readable, not known to this kernel. It is never
//!   left out and never written as 0;
//! - readers ignore keys that they do not know.
//!
//! Text is for 80 columns and more, without colours, so that it looks the same in a file.

#![forbid(unsafe_code)]

pub mod advise;
pub mod bench;
pub mod csv;
pub mod ctl;
pub mod doctor;
pub mod dvfs;
pub mod fleet;
pub mod lane;
pub mod locks;
pub mod metrics;
mod page;
pub mod probe;
pub mod problem;
pub mod profile;
pub mod record;
pub mod sample;
pub mod scan;
#[cfg(test)]
mod schemas;
pub mod service;
pub mod settings;
pub mod sim;
pub mod stats;
pub mod take_over;
pub mod text;
pub mod timeline;
pub mod times;
pub mod top;
pub mod trace_event;
pub mod verify;

use serde::{Deserialize, Serialize};

/// Version of all JSON documents. It grows when a key changes its meaning or goes away; new keys
/// do not change it.
pub const SCHEMA: u32 = 1;

/// Anything with the schema number above it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Document<T> {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// The contents: its keys are next to `schema`.
    #[serde(flatten)]
    pub body: T,
}

impl<T> Document<T> {
    /// A document of this schema.
    pub fn new(body: T) -> Self {
        Document { schema: SCHEMA, body }
    }
}

/// One JSON document as one line, without the line's end.
pub fn json_line<T: Serialize>(document: &T) -> String {
    serde_json::to_string(document).expect("report types have string keys and finite numbers")
}
