// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings of what the kernel did with tasks: who ran where and when, who woke whom, who entered
//! marked functions.
//!
//! [`event`] is what happens; [`Writer`] and [`Reader`] are the file (docs/trace-format.md).
//! [`follow`] makes time out of events: who ran from when to when; [`summary`] and [`timeline`] are
//! built on it. [`levels`] are a CPU's licence levels over time, [`demand`] what code must have
//! asked for to get them. [`perf_script`] reads another program's samples of licence levels.
//! [`replayable`] turns a timeline's periods into what `dvfs` replays.
//!
//! Pure: bytes in, bytes out. What records is `sched::record`.

#![forbid(unsafe_code)]

mod block;
mod codec;
pub mod counted;
mod crc;
pub mod demand;
mod error;
pub mod event;
pub mod follow;
pub mod info;
pub mod levels;
pub mod perf_script;
pub mod perfetto;
mod reader;
pub mod replayable;
mod scores;
pub mod summary;
pub mod timeline;
mod varint;
mod writer;

pub use error::TraceError;
pub use event::{Event, Lane, Name, What, Why};
pub use info::{End, Info, MarkInfo};
pub use reader::{Ending, Reader};
pub use writer::Writer;

/// Whether a file that begins with these bytes is a recording, of whatever version.
pub fn is_trace(first: &[u8; 8]) -> bool {
    *first == block::MAGIC
}
