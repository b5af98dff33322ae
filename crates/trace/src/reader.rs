// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a recording, event by event, also while it is written.
//!
//! Memory is bounded by a block and the table of names, whatever the file says.

use std::io::Read;

use crate::block::{FILE_HEAD_BYTES, Found, Kind, read_block, read_head};
use crate::codec::{Names, decode};
use crate::error::TraceError;
use crate::event::Event;
use crate::info::{End, Info};

/// How far a recording goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// To its end.
    Complete(End),
    /// The file ends here, the recording did not: it is still being written, or was cut off.
    Partial {
        /// Bytes of whole blocks.
        offset: u64,
    },
}

impl Ending {
    /// When the recording ended; a partial one's last event is its end, as far as is known.
    pub fn at_ns(&self, last_ns: u64) -> u64 {
        match self {
            Ending::Complete(end) => end.at_ns,
            Ending::Partial { .. } => last_ns,
        }
    }
}

/// Reads a recording.
pub struct Reader<R> {
    input: R,
    info: Info,
    names: Names,
    events: std::vec::IntoIter<Event>,
    payload: Vec<u8>,
    offset: u64,
    last_ns: u64,
    ending: Option<Ending>,
}

impl<R: Read> Reader<R> {
    /// Reads the begin of the file.
    pub fn new(mut input: R) -> Result<Self, TraceError> {
        read_head(&mut input)?;
        let (mut payload, offset) = (Vec::new(), FILE_HEAD_BYTES);
        let corrupt = |what| TraceError::Corrupt { offset, what };
        let bytes = match read_block(&mut input, offset, &mut payload)? {
            Found::Block { kind, bytes } if kind == Kind::Info as u32 => bytes,
            Found::Block { .. } => {
                return Err(corrupt("it does not begin with an information block"));
            }
            Found::Part | Found::Nothing => return Err(corrupt("it ends before it begins")),
        };
        let info =
            Info::decode(&payload).ok_or_else(|| corrupt("its information block is invalid"))?;
        Ok(Reader {
            input,
            info,
            names: Names::default(),
            events: Vec::new().into_iter(),
            payload,
            offset: offset + bytes,
            last_ns: 0,
            ending: None,
        })
    }

    /// What it says of itself.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// How it ends: known once there are no more events.
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// The next event; `None` at the end, see [`Reader::ending`].
    pub fn next_event(&mut self) -> Result<Option<Event>, TraceError> {
        loop {
            if let Some(event) = self.events.next() {
                return Ok(Some(event));
            }
            if self.ending.is_some() {
                return Ok(None);
            }
            self.next_block()?;
        }
    }

    fn next_block(&mut self) -> Result<(), TraceError> {
        let offset = self.offset;
        let corrupt = |what| TraceError::Corrupt { offset, what };
        match read_block(&mut self.input, offset, &mut self.payload)? {
            Found::Nothing | Found::Part => self.ending = Some(Ending::Partial { offset }),
            Found::Block { kind, bytes } => {
                self.offset += bytes;
                if kind == Kind::Events as u32 {
                    let mut events = Vec::new();
                    decode(&self.payload, &mut self.names, &mut events)
                        .ok_or_else(|| corrupt("its events are invalid"))?;
                    if events.first().is_some_and(|first| first.at_ns < self.last_ns) {
                        return Err(corrupt("events go back in time"));
                    }
                    self.last_ns = events.last().map_or(self.last_ns, |last| last.at_ns);
                    self.events = events.into_iter();
                } else if kind == Kind::End as u32 {
                    let end = End::decode(&self.payload);
                    self.ending = Some(Ending::Complete(
                        end.ok_or_else(|| corrupt("its end block is invalid"))?,
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Stops at the first error.
impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_event();
        if next.is_err() {
            self.events = Vec::new().into_iter();
            self.ending = Some(Ending::Partial { offset: self.offset });
        }
        next.transpose()
    }
}
