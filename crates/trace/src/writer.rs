// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a recording, block by block.

use std::io::Write;

use crate::block::{FILE_HEAD_BYTES, Kind, write_block, write_head};
use crate::codec::Encoder;
use crate::error::TraceError;
use crate::event::{Event, What};
use crate::info::{End, Info};

/// A block ends at this length, bytes: long enough that its head costs nothing, short enough for a
/// reader's cache.
const BLOCK_BYTES: usize = 64 << 10;

/// Writes a recording to something that only grows.
pub struct Writer<W: Write> {
    out: W,
    encoder: Encoder,
    last_ns: u64,
    end: End,
    bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Begins the file.
    pub fn new(mut out: W, info: &Info) -> Result<Self, TraceError> {
        write_head(&mut out)?;
        let bytes = FILE_HEAD_BYTES + write_block(&mut out, Kind::Info, &info.encode())?;
        out.flush()?;
        Ok(Writer { out, encoder: Encoder::new(), last_ns: 0, end: End::default(), bytes })
    }

    /// Adds an event. One that is earlier than the last is recorded at the time of the last, and
    /// counted.
    pub fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        self.push_what(event.at_ns, event.cpu, event.tid, &event.what)
    }

    /// Adds an event that its writer has in parts: putting them together takes longer than writing
    /// them.
    pub fn push_what(
        &mut self,
        at_ns: u64,
        cpu: u16,
        tid: u32,
        what: &What,
    ) -> Result<(), TraceError> {
        self.end.late += u64::from(at_ns < self.last_ns);
        self.last_ns = self.last_ns.max(at_ns);
        self.encoder.push(self.last_ns, cpu, tid, what);
        self.end.events += 1;
        if let What::Lost { events } = what {
            self.end.lost += events;
        }
        if self.encoder.len() >= BLOCK_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes what there is, so that a reader finds it.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        if self.encoder.len() > 0 {
            self.bytes += write_block(&mut self.out, Kind::Events, &self.encoder.take())?;
        }
        Ok(self.out.flush()?)
    }

    /// Says that the recording is complete; returns what was written to, how it ended, and its
    /// bytes.
    pub fn finish(mut self, at_ns: u64) -> Result<(W, End, u64), TraceError> {
        self.flush()?;
        self.end.at_ns = at_ns.max(self.last_ns);
        self.bytes += write_block(&mut self.out, Kind::End, &self.end.encode())?;
        self.out.flush()?;
        Ok((self.out, self.end, self.bytes))
    }

    /// What was written so far.
    pub fn so_far(&self) -> End {
        End { at_ns: self.last_ns, ..self.end }
    }

    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
