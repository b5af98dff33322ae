// SPDX-License-Identifier: MIT OR Apache-2.0
//! The language of the server: a line, and for `set` as many bytes as it says, in the manner of
//! memcached.
//!
//! ```text
//!   set KEY LEN \n BYTES \n   ->  STORED
//!   get KEY \n                ->  VALUE LEN \n BYTES \n, or MISSING
//!   delete KEY \n             ->  DELETED, or MISSING
//!   check \n                  ->  CHECKED GOOD BAD
//!   stats \n                  ->  lines of NAME NUMBER, then END
//!   quit \n
//! ```
//!
//! What is none of these is answered by ERROR and a reason; after a `set` that cannot be read the
//! connection ends, since it is not known where the next command begins.

use std::io::{self, BufRead, Read};

/// Longest key and value, bytes.
pub const KEY_MAX: usize = 250;
pub const VALUE_MAX: usize = 1 << 20;
/// Longest line: `delete`, a key, and room for numbers.
const LINE_MAX: u64 = 512;

/// What a client wants.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    Set { key: Vec<u8>, value: Box<[u8]> },
    Get { key: Vec<u8> },
    Delete { key: Vec<u8> },
    Check,
    Stats,
    Quit,
}

/// What came instead of a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Go on with the next line.
    Line(&'static str),
    /// The rest of the connection means nothing.
    Stream(&'static str),
}

/// Reads a command. The outer error is the connection's; its end is [`Command::Quit`].
pub fn read(from: &mut impl BufRead) -> io::Result<Result<Command, Refusal>> {
    let mut line = Vec::new();
    Read::take(&mut *from, LINE_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(Ok(Command::Quit));
    }
    if line.pop() != Some(b'\n') {
        return Ok(Err(Refusal::Stream("a line is too long, or has no end")));
    }
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    if words.len() > 1 && !(1..=KEY_MAX).contains(&words[1].len()) {
        return Ok(Err(Refusal::Stream("a key has 1 to 250 bytes")));
    }
    Ok(match words.as_slice() {
        [b"set", key, len] => match number(len) {
            Some(len) if len <= VALUE_MAX => {
                value(from, len)?.map(|value| Command::Set { key: key.to_vec(), value })
            }
            _ => Err(Refusal::Stream("a value's length is 0 to 1048576")),
        },
        [b"get", key] => Ok(Command::Get { key: key.to_vec() }),
        [b"delete", key] => Ok(Command::Delete { key: key.to_vec() }),
        [b"check"] => Ok(Command::Check),
        [b"stats"] => Ok(Command::Stats),
        [b"quit"] => Ok(Command::Quit),
        [b"set", ..] => Err(Refusal::Stream("set KEY LEN")),
        _ => Err(Refusal::Line("set, get, delete, check, stats, quit")),
    })
}

fn value(from: &mut impl BufRead, len: usize) -> io::Result<Result<Box<[u8]>, Refusal>> {
    let mut bytes = vec![0; len + 1];
    from.read_exact(&mut bytes)?;
    Ok(match bytes.pop() {
        Some(b'\n') => Ok(bytes.into()),
        _ => Err(Refusal::Stream("a value ends in a new line")),
    })
}

fn number(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
