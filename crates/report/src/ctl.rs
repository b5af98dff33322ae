// SPDX-License-Identifier: MIT OR Apache-2.0
//! The language of the control socket, [`SOCKET`]: one JSON document per line, a request from the
//! client, then one reply from the scheduler. A connection may carry many of them.
//!
//! ```text
//! {"schema":1,"get":{"keys":["slice"]}}
//! {"schema":1,"settings":[{"key":"slice","value":"5ms","meaning":"...","live":true}]}
//! {"schema":1,"set":{"changes":[{"key":"slice","value":"3ms"}]}}
//! {"schema":1,"error":{"what":"...","why":"...","next":"..."}}
//! ```
//!
//! A `set` is all or nothing: if one value is refused, none is changed.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::lane::{LaneStats, LaneStatus, LaneTasks};
use crate::problem::Problem;
use crate::settings::Setting;
use crate::take_over::{HandedOver, Predecessor};
use crate::{Document, SCHEMA, json_line};

/// Where the scheduler listens; readable by root alone.
pub const SOCKET: &str = "/run/turbolane/ctl.sock";

/// Tasks in one reply.
pub const TASKS_MAX: usize = 16384;

/// Longest line that is read: a peer that sends more is not one of ours. A task takes about 260
/// bytes, 400 if all its numbers are large and its name is one of control characters.
pub(crate) const MAX_LINE_BYTES: u64 = 8 << 20;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The settings of these names, or all if there is none.
    Get {
        /// Names.
        keys: Vec<String>,
    },
    /// Change settings; answered by the changed settings.
    Set {
        /// The changes.
        changes: Vec<Change>,
    },
    /// Place a mark; answered by the status.
    MarkAdd {
        /// As `--mark` takes it.
        mark: String,
    },
    /// Take a mark away; answered by the status.
    MarkRemove {
        /// As `--mark` takes it.
        mark: String,
    },
    /// Leave the machine to the kernel's own scheduler, with everything in place; answered by the
    /// status. It ends after this time, so that a client that was killed leaves nothing off; a
    /// client that wants more asks again in time.
    Pause {
        /// How long, at most 10 minutes.
        for_ns: u64,
    },
    /// End a pause, if there is one; answered by the status.
    Resume,
    /// What the scheduler does now.
    Status,
    /// What it has counted since its start.
    Stats,
    /// What tasks have done that ran since then; all that ever ran for 0.
    Tasks {
        /// [`LaneTasks::now_ns`] of an earlier reply.
        since_ns: u64,
    },
    /// Start the installed version of this program, which then takes over.
    Upgrade,
    /// What the next scheduler has to know to prepare itself. Nothing changes.
    PrepareTakeOver,
    /// Give the machine to the next scheduler, which is ready.
    TakeOver {
        /// Its process.
        pid: u32,
    },
    /// The next scheduler is at work: the run can end. Answered by [`Reply::Successor`].
    TakenOver,
}

/// A setting and its new value, both as written on the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Name.
    pub key: String,
    /// New value.
    pub value: String,
}

/// What the scheduler answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To [`Request::Get`] and [`Request::Set`].
    Settings(Vec<Setting>),
    /// To [`Request::Status`] and the requests about marks and pauses.
    Status(LaneStatus),
    /// To [`Request::Stats`].
    Stats(Box<LaneStats>),
    /// To [`Request::Tasks`]: at most [`TASKS_MAX`].
    Tasks(LaneTasks),
    /// To [`Request::Upgrade`]: the process that will take over; to [`Request::TakenOver`]: the one
    /// that has.
    Successor {
        /// It.
        pid: u32,
    },
    /// To [`Request::PrepareTakeOver`].
    Predecessor(Predecessor),
    /// To [`Request::TakeOver`]: it is gone.
    HandedOver(Box<HandedOver>),
    /// The request was refused, and nothing has changed.
    Error(Problem),
}

/// Writes a request or a reply as one line.
pub fn send<T: Serialize>(to: &mut impl Write, body: &T) -> io::Result<()> {
    let mut line = json_line(&Document::new(body));
    line.push('\n');
    to.write_all(line.as_bytes())?;
    to.flush()
}

/// Reads a request or a reply; `None` when the peer is done.
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut text = String::new();
    io::Read::take(from, MAX_LINE_BYTES).read_line(&mut text)?;
    if text.is_empty() {
        return Ok(None);
    }
    if !text.ends_with('\n') {
        return Err(invalid("the line is cut off or too long".into()));
    }
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
    match value.get("schema").and_then(serde_json::Value::as_u64) {
        Some(schema) if schema == u64::from(SCHEMA) => {}
        Some(schema) => {
            return Err(invalid(format!("the peer speaks schema {schema}, this program {SCHEMA}")));
        }
        None => return Err(invalid("the line has no schema number".into())),
    }
    let line: Document<T> =
        serde_json::from_value(value).map_err(|error| invalid(error.to_string()))?;
    Ok(Some(line.body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::LaneTask;
    use crate::take_over::GivenSlots;

    fn round_trip<T: Serialize + DeserializeOwned>(body: &T) -> T {
        let mut wire = Vec::new();
        send(&mut wire, body).unwrap();
        assert!(wire.starts_with(b"{\"schema\":1,") && wire.ends_with(b"\n"));
        assert_eq!(wire.iter().filter(|&&byte| byte == b'\n').count(), 1);
        receive(&mut wire.as_slice()).unwrap().unwrap()
    }

    fn refusal(line: &str) -> String {
        receive::<Request>(&mut line.as_bytes()).unwrap_err().to_string()
    }

    /// Every request and reply arrives as it was sent.
    #[test]
    fn messages_survive_the_wire() {
        let change = Change { key: "slice".into(), value: "5ms".into() };
        for request in [
            Request::Get { keys: vec!["slice".into()] },
            Request::Set { changes: vec![change] },
            Request::MarkAdd { mark: "a\nb:f".into() },
            Request::MarkRemove { mark: "a:f".into() },
            Request::Pause { for_ns: 3 },
            Request::Resume,
            Request::Status,
            Request::Stats,
            Request::Tasks { since_ns: 7 },
            Request::Upgrade,
            Request::PrepareTakeOver,
            Request::TakeOver { pid: 9 },
            Request::TakenOver,
        ] {
            assert_eq!(round_trip(&request), request);
        }
        let status = LaneStatus {
            pid: 1,
            mode: "scx".into(),
            uptime_ns: 2,
            wide_cpus: "3".into(),
            scalar_cpus: "0-2".into(),
            standby: None,
            pause_left_ns: Some(5),
            marks: vec![],
            lost_marks: Vec::new(),
            scope: Vec::new(),
            cpus: vec![],
        };
        for reply in [
            Reply::Settings(vec![]),
            Reply::Status(status),
            Reply::Stats(Box::default()),
            Reply::Tasks(LaneTasks::default()),
            Reply::Successor { pid: 9 },
            Reply::Predecessor(Predecessor { pid: 1, hint_abi: 2, board: 3, areas: 4 }),
            Reply::HandedOver(Box::new(HandedOver {
                since_ns: 1,
                owns_module: true,
                slots: GivenSlots { run_id: 2, processes: vec![] },
            })),
            Reply::Error(Problem::new("a", "b", "c")),
        ] {
            assert_eq!(round_trip(&reply), reply);
        }
    }

    /// The largest reply fits into a line.
    #[test]
    fn the_longest_list_of_tasks_fits() {
        let task = LaneTask {
            tid: u32::MAX,
            pid: u32::MAX,
            name: "\u{1}".repeat(15),
            start_ns: u64::MAX,
            task_type: 2,
            license_level: 3,
            cpu: 1023,
            run_ns: u64::MAX,
            wide_run_ns: u64::MAX,
            level_run_ns: u64::MAX,
            migrations: u64::MAX,
            traps: u64::MAX,
            power_score_q10: Some(3072),
        };
        let (task_bytes, other_bytes) = (json_line(&task).len() + 1, 1000);
        assert!(((TASKS_MAX * task_bytes) + other_bytes) as u64 <= MAX_LINE_BYTES, "{task_bytes}");
    }

    /// Several messages share a connection; its end is no error.
    #[test]
    fn a_connection_carries_many_messages() {
        let mut wire = Vec::new();
        send(&mut wire, &Request::Status).unwrap();
        send(&mut wire, &Request::Stats).unwrap();
        let mut from = wire.as_slice();
        assert_eq!(receive(&mut from).unwrap(), Some(Request::Status));
        assert_eq!(receive(&mut from).unwrap(), Some(Request::Stats));
        assert_eq!(receive::<Request>(&mut from).unwrap(), None);
    }

    /// Strangers are refused with a reason.
    #[test]
    fn foreign_lines_fail() {
        assert_eq!(
            refusal("{\"schema\":2,\"status\":null}\n"),
            "the peer speaks schema 2, this program 1"
        );
        assert_eq!(refusal("{\"status\":null}\n"), "the line has no schema number");
        assert_eq!(refusal("{\"schema\":1"), "the line is cut off or too long");
        assert!(refusal("{\"schema\":1,\"fly\":null}\n").contains("no variant of enum Request"));
        assert!(refusal("hello\n").contains("expected value"));
    }
}
