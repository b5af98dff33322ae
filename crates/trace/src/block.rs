// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frame of the file: its first bytes, and blocks with a check sum.
//!
//! ```text
//!   file    8 bytes  89 54 4c 54 52 43 0d 0a   (as in PNG: 8 bits survive, line ends are not changed)
//!           4 bytes  version
//!   block   4 bytes  "TLBK"
//!           4 bytes  kind
//!           4 bytes  length of the payload
//!           4 bytes  CRC-32 of kind, length and payload
//!           payload
//! ```
//!
//! All little endian. A block is written by one system call; a reader at that time finds it
//! complete, in part or not at all, and in the latter cases stops before it.

use std::io::{self, ErrorKind, Read, Write};

use crate::crc::crc32;
use crate::error::TraceError;

/// First bytes of a file.
pub(crate) const MAGIC: [u8; 8] = *b"\x89TLTRC\r\n";
/// Version of the format. It grows when a reader of the last one would be misled.
pub(crate) const VERSION: u32 = 1;
/// Longest payload, bytes: what a reader has to keep in memory. Writers end a block far earlier.
pub(crate) const PAYLOAD_MAX: usize = 1 << 20;

const BLOCK_MAGIC: [u8; 4] = *b"TLBK";
const HEAD_BYTES: usize = 16;

/// What a block holds. A reader passes over kinds that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// About the recording.
    Info = 1,
    /// Events.
    Events = 2,
    /// The recording ended, and how.
    End = 3,
}

/// Writes the first bytes.
pub(crate) fn write_head(out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&[&MAGIC[..], &VERSION.to_le_bytes()].concat())
}

/// Writes a block, by one call; returns how many bytes.
pub(crate) fn write_block(out: &mut dyn Write, kind: Kind, payload: &[u8]) -> io::Result<u64> {
    if payload.len() > PAYLOAD_MAX {
        return Err(io::Error::new(ErrorKind::InvalidInput, "a block of a trace is too long"));
    }
    let (kind, length) = ((kind as u32).to_le_bytes(), (payload.len() as u32).to_le_bytes());
    let sum = crc32(&[&kind, &length, payload]).to_le_bytes();
    let block = [&BLOCK_MAGIC[..], &kind, &length, &sum, payload].concat();
    out.write_all(&block)?;
    Ok(block.len() as u64)
}

/// Reads the first bytes.
pub(crate) fn read_head(input: &mut dyn Read) -> Result<(), TraceError> {
    let mut head = [0; 12];
    if fill(input, &mut head)? < head.len() || head[..8] != MAGIC {
        return Err(TraceError::NotATrace);
    }
    match le32(&head[8..]) {
        VERSION => Ok(()),
        found => Err(TraceError::Version { found, known: VERSION }),
    }
}

/// Bytes of the first part of the file.
pub(crate) const FILE_HEAD_BYTES: u64 = 12;

/// Reads the next block's payload into `payload`, and says what is there.
pub(crate) fn read_block(
    input: &mut dyn Read,
    offset: u64,
    payload: &mut Vec<u8>,
) -> Result<Found, TraceError> {
    let corrupt = |what| Err(TraceError::Corrupt { offset, what });
    let mut head = [0; HEAD_BYTES];
    let got = fill(input, &mut head)?;
    if got == 0 {
        return Ok(Found::Nothing);
    }
    if head[..got.min(4)] != BLOCK_MAGIC[..got.min(4)] {
        return corrupt("no block begins here");
    }
    if got < head.len() {
        return Ok(Found::Part);
    }
    let (kind, length) = (le32(&head[4..]), le32(&head[8..]) as usize);
    if length > PAYLOAD_MAX {
        return corrupt("a block is longer than blocks may be");
    }
    payload.resize(length, 0);
    if fill(input, payload)? < length {
        return Ok(Found::Part);
    }
    if crc32(&[&head[4..12], payload]) != le32(&head[12..]) {
        return corrupt("a block's check sum is wrong");
    }
    Ok(Found::Block { kind, bytes: (HEAD_BYTES + length) as u64 })
}

/// What is at the place where a block may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A whole block of this kind and total length.
    Block {
        /// See [`Kind`].
        kind: u32,
        /// With its head.
        bytes: u64,
    },
    /// The begin of one.
    Part,
    /// The end of the file.
    Nothing,
}

/// Reads until the buffer is full or the file ends; returns how many bytes.
fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(bytes) => got += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
