// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a thread gets its slot: one request and one reply over a Unix socket.
//!
//! ```text
//! thread                              daemon            SOCK_SEQPACKET, 16 bytes per message,
//!   | connect, Request{tid}             |               native byte order
//!   |---------------------------------->|  finds the thread, chooses a slot,
//!   |  Reply{slot}, fds of board, area  |  writes the slot's tid
//!   |<----------------------------------|
//! ```
//!
//! The thread names itself by the number its own PID namespace gives it; which process it belongs
//! to the daemon asks the kernel. A thread that asks again gets the same slot, reset.
//!
//! Versions: both messages have had the same size and head since version 1 (one page for all). A
//! request of another version is refused by EPROTONOSUPPORT, with which the library of any version
//! does without a scheduler.

/// Where the daemon listens.
pub const SOCKET: &str = "/run/turbolane/hint.sock";
/// Environment variable that names another socket; ignored in set-user-ID programs.
pub const SOCKET_ENV: &str = "TURBOLANE_HINT_SOCKET";
/// First word of both messages: "TLHS", little endian.
pub const MAGIC: u32 = u32::from_le_bytes(*b"TLHS");
/// [`Request::op`]: give the thread a slot.
pub const OP_REGISTER: u32 = 1;
/// Bytes of a message, in both directions.
pub const MESSAGE_BYTES: usize = 16;
/// How long either side waits for the other, ms: a page fault or a busy CPU on the other side
/// takes less, a program that waits for a dead daemon should not notice.
pub const TIMEOUT_MS: u64 = 200;

/// Bytes of a message.
pub type Message = [u8; MESSAGE_BYTES];

/// What a thread asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`crate::page::ABI`]: the layout the thread understands.
    pub abi: u32,
    /// [`OP_REGISTER`].
    pub op: u32,
    /// The thread, as its own PID namespace counts.
    pub tid: u32,
}

/// What the daemon answers. With status 0 two file descriptors come along: the board's and the
/// area's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// [`MAGIC`].
    pub magic: u32,
    /// 0 or -errno.
    pub status: i32,
    /// Number of the thread's slot: the area in the upper bits, the slot in it in the lower six.
    pub slot: u32,
    /// Names the daemon's run: random, not 0. With the slot's area it names a mapping, so that a
    /// process maps an area once.
    pub run_id: u32,
}

impl Request {
    /// The message.
    pub fn to_bytes(self) -> Message {
        pack([self.magic, self.abi, self.op, self.tid])
    }

    /// The request in a message.
    pub fn from_bytes(message: &Message) -> Self {
        let [magic, abi, op, tid] = unpack(message);
        Request { magic, abi, op, tid }
    }
}

impl Reply {
    /// The message.
    pub fn to_bytes(self) -> Message {
        pack([self.magic, self.status.cast_unsigned(), self.slot, self.run_id])
    }

    /// The reply in a message.
    pub fn from_bytes(message: &Message) -> Self {
        let [magic, status, slot, run_id] = unpack(message);
        Reply { magic, status: status.cast_signed(), slot, run_id }
    }
}

fn pack(words: [u32; 4]) -> Message {
    let mut message = Message::default();
    for (bytes, word) in message.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_ne_bytes();
    }
    message
}

fn unpack(message: &Message) -> [u32; 4] {
    core::array::from_fn(|i| {
        let at = 4 * i;
        u32::from_ne_bytes([message[at], message[at + 1], message[at + 2], message[at + 3]])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each field has its place in the message, and comes back from it.
    #[test]
    fn messages_round_trip() {
        let request = Request { magic: MAGIC, abi: 1, op: OP_REGISTER, tid: 77 };
        assert_eq!(Request::from_bytes(&request.to_bytes()), request);
        assert_eq!(request.to_bytes()[12..], 77u32.to_ne_bytes());
        let reply = Reply { magic: MAGIC, status: -libc::ENOSPC, slot: 5, run_id: 9 };
        assert_eq!(Reply::from_bytes(&reply.to_bytes()), reply);
        assert_eq!(reply.to_bytes()[4..8], (-libc::ENOSPC).to_ne_bytes());
    }
}
