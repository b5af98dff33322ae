// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run reports to systemd's journal, with fields that programs can select.
//!
//! The manager connects a service's standard error to the journal, and says so: JOURNAL_STREAM is
//! the device and inode of that stream (systemd.exec(5)). Then an event goes to the journal's
//! socket as one datagram of fields (systemd's "Native Journal Protocol"): `MESSAGE` as it would be
//! on standard error, `PRIORITY`, `TURBOLANE_EVENT`, and what belongs to the event. So
//! `journalctl TURBOLANE_EVENT=scheduler-ended` finds what it names, in any language of messages.
//!
//! Without a journal, or if it cannot be reached, events are lines on standard error.

use std::env;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use crate::failure::tell;

/// Where the journal takes datagrams.
const SOCKET: &str = "/run/systemd/journal/socket";

/// What is reported. The names are stable: operators select by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The run has the machine: `MODE`, `WIDE_CPUS`, `SCALAR_CPUS`, `VERSION`.
    Started,
    /// What the user should know at the start.
    Note,
    /// From another run: `OTHER_PID`, `GAP_US`.
    TookOver,
    /// By another run: `OTHER_PID`.
    TakenOver,
    /// Another run has failed to take over: `OTHER_PID`.
    TakenBack,
    /// Wide code is no longer separated: `REASON`, `WIDE_CPUS`.
    StandingBy,
    /// Wide code is separated: `REASON`, `WIDE_CPUS`.
    Separating,
    /// A marked function is watched where it is in a new version of its file: `MARK`.
    MarkMoved,
    /// A marked function is not in its file any more: `MARK`, `REASON`.
    MarkLost,
    /// The kernel has ended the scheduler: `REASON`.
    SchedulerEnded,
}

impl Event {
    fn name(self) -> &'static str {
        match self {
            Event::Started => "started",
            Event::Note => "note",
            Event::TookOver => "took-over",
            Event::TakenOver => "taken-over",
            Event::TakenBack => "taken-back",
            Event::StandingBy => "standing-by",
            Event::Separating => "separating",
            Event::MarkMoved => "mark-moved",
            Event::MarkLost => "mark-lost",
            Event::SchedulerEnded => "scheduler-ended",
        }
    }

    /// As syslog(3) has them.
    fn priority(self) -> libc::c_int {
        match self {
            Event::SchedulerEnded => libc::LOG_ERR,
            Event::TakenBack | Event::MarkLost => libc::LOG_WARNING,
            Event::Started | Event::TookOver | Event::TakenOver | Event::MarkMoved => {
                libc::LOG_NOTICE
            }
            Event::Note | Event::StandingBy | Event::Separating => libc::LOG_INFO,
        }
    }
}

/// The connection to the journal, if there is one.
pub(super) struct Journal(Option<UnixDatagram>);

impl Journal {
    /// The journal that standard error goes to.
    pub(super) fn from_environment() -> Self {
        let stream = env::var("JOURNAL_STREAM").ok();
        Journal(if is_stream(stream.as_deref(), io::stderr()) { connect(SOCKET) } else { None })
    }

    /// Whether standard error goes to one.
    pub(super) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Reports an event with its fields, whose names are without the prefix `TURBOLANE_`.
    pub(super) fn report(&self, event: Event, message: &str, fields: &[(&str, &str)]) {
        let entry = entry(event, message, fields);
        let sent = self.0.as_ref().map(|socket| socket.send(&entry));
        if !matches!(sent, Some(Ok(_))) {
            tell(message);
        }
    }
}

/// Whether the stream is what JOURNAL_STREAM says: a program further down may have its own.
fn is_stream(said: Option<&str>, stream: impl AsFd) -> bool {
    let own = || File::from(stream.as_fd().try_clone_to_owned().ok()?).metadata().ok();
    let numbers = said.and_then(|said| said.split_once(':'));
    let numbers =
        numbers.and_then(|(device, inode)| Some((device.parse().ok()?, inode.parse().ok()?)));
    match (numbers, own()) {
        (Some(numbers), Some(own)) => numbers == (own.dev(), own.ino()),
        _ => false,
    }
}

fn connect(path: impl AsRef<Path>) -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(path).ok()?;
    // A journal that does not read must not stop the run.
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

fn entry(event: Event, message: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut entry = Vec::new();
    let mut add = |key: &str, value: &str| {
        entry.extend_from_slice(key.as_bytes());
        if value.contains('\n') {
            entry.push(b'\n');
            entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
        } else {
            entry.push(b'=');
        }
        entry.extend_from_slice(value.as_bytes());
        entry.push(b'\n');
    };
    add("MESSAGE", message);
    add("PRIORITY", &event.priority().to_string());
    add("SYSLOG_IDENTIFIER", "turbolane");
    add("TURBOLANE_EVENT", event.name());
    for (key, value) in fields {
        add(&format!("TURBOLANE_{key}"), value);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A datagram has a line per field; a value of several lines has its length before it.
    #[test]
    fn events_arrive_with_their_fields() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let end = UnixDatagram::bind(&path).unwrap();
        let journal = Journal(connect(&path));
        assert!(journal.is_there());
        journal.report(Event::SchedulerEnded, "ended", &[("REASON", "stall"), ("MORE", "a\nbc")]);
        let mut buffer = [0; 256];
        let bytes = end.recv(&mut buffer).unwrap();
        let expected = b"MESSAGE=ended\nPRIORITY=3\nSYSLOG_IDENTIFIER=turbolane\n\
            TURBOLANE_EVENT=scheduler-ended\nTURBOLANE_REASON=stall\n\
            TURBOLANE_MORE\n\x04\0\0\0\0\0\0\0a\nbc\n";
        assert_eq!(&buffer[..bytes], expected);
    }

    /// Only the stream that the manager has named is the journal's.
    #[test]
    fn another_stream_is_no_journal() {
        let file = tempfile::tempfile().unwrap();
        let about = file.metadata().unwrap();
        let named = format!("{}:{}", about.dev(), about.ino());
        assert!(is_stream(Some(&named), &file));
        let other = format!("{}:{}", about.dev(), about.ino() + 1);
        for said in [None, Some(""), Some("7"), Some("a:b"), Some(other.as_str())] {
            assert!(!is_stream(said, &file), "{said:?}");
        }
        assert!(connect("/no/such/socket").is_none());
    }
}
