// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a recording says about itself: pairs of key and text, so that a later recorder can say more
//! without misleading the readers of today, and how it ended.

use crate::varint::{Bytes, put, put_bytes};

/// A marked function.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MarkInfo {
    /// Licence level of its code.
    pub level: u8,
    /// As the user wrote it.
    pub name: String,
}

/// About a recording.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Info {
    /// The program that recorded.
    pub recorder: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor's name.
    pub processor: String,
    /// What was recorded: `system`, `pid N` or the command.
    pub target: String,
    /// True: every task; false: those that are followed.
    pub everybody: bool,
    /// The CPUs that were online, in Linux's list format.
    pub cpus: String,
    /// When it began, by CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// The same by the wall clock, since 1970.
    pub start_wall_ns: u64,
    /// System calls were recorded.
    pub syscalls: bool,
    /// Changes of affinities were recorded. Not every kernel lets anybody see them.
    pub affinities: bool,
    /// Times at which a CPU executed nothing were recorded.
    pub stalls: bool,
    /// The lane's scheduler ran, and switches say what it takes the tasks for.
    pub lane: bool,
    /// Which licence counters there were, or why none.
    pub license_counters: String,
    /// The marks, in the order of their numbers.
    pub marks: Vec<MarkInfo>,
}

impl Info {
    /// Number of the first mark of a function, whatever file it is in.
    pub fn mark(&self, function: &str) -> Option<u32> {
        let of = |mark: &MarkInfo| {
            mark.name.strip_suffix(function).is_some_and(|file| file.ends_with(':'))
        };
        self.marks.iter().position(of).map(|at| at as u32)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let flag = |set: bool| if set { "yes" } else { "no" };
        let (start, wall) = (self.start_ns.to_string(), self.start_wall_ns.to_string());
        let mut pairs: Vec<(&str, String)> = [
            ("recorder", self.recorder.as_str()),
            ("kernel", &self.kernel),
            ("processor", &self.processor),
            ("target", &self.target),
            ("everybody", flag(self.everybody)),
            ("cpus", &self.cpus),
            ("start_ns", &start),
            ("start_wall_ns", &wall),
            ("syscalls", flag(self.syscalls)),
            ("affinities", flag(self.affinities)),
            ("stalls", flag(self.stalls)),
            ("lane", flag(self.lane)),
            ("license_counters", &self.license_counters),
        ]
        .map(|(key, value)| (key, value.to_string()))
        .into();
        let marks = self.marks.iter().map(|mark| ("mark", format!("{} {}", mark.level, mark.name)));
        pairs.extend(marks);
        let mut out = Vec::new();
        put(&mut out, pairs.len() as u64);
        for (key, value) in pairs {
            put_bytes(&mut out, key.as_bytes());
            put_bytes(&mut out, value.as_bytes());
        }
        out
    }

    pub(crate) fn decode(payload: &[u8]) -> Option<Info> {
        let mut bytes = Bytes::new(payload);
        let mut info = Info::default();
        for _ in 0..bytes.number()? {
            let key = bytes.bytes()?;
            let value = String::from_utf8_lossy(bytes.bytes()?).into_owned();
            match key {
                b"recorder" => info.recorder = value,
                b"kernel" => info.kernel = value,
                b"processor" => info.processor = value,
                b"target" => info.target = value,
                b"everybody" => info.everybody = value == "yes",
                b"cpus" => info.cpus = value,
                b"start_ns" => info.start_ns = value.parse().ok()?,
                b"start_wall_ns" => info.start_wall_ns = value.parse().ok()?,
                b"syscalls" => info.syscalls = value == "yes",
                b"affinities" => info.affinities = value == "yes",
                b"stalls" => info.stalls = value == "yes",
                b"lane" => info.lane = value == "yes",
                b"license_counters" => info.license_counters = value,
                b"mark" => {
                    let (level, name) = value.split_once(' ')?;
                    info.marks.push(MarkInfo { level: level.parse().ok()?, name: name.into() });
                }
                _ => {}
            }
        }
        Some(info)
    }
}

/// How a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct End {
    /// When, by CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// Events written.
    pub events: u64,
    /// Events that were dropped because a buffer was full.
    pub lost: u64,
    /// Events that the kernel reported so late that they carry the time of the one before them.
    pub late: u64,
}

impl End {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        [self.at_ns, self.events, self.lost, self.late]
            .iter()
            .for_each(|value| put(&mut out, *value));
        out
    }

    pub(crate) fn decode(payload: &[u8]) -> Option<End> {
        let mut bytes = Bytes::new(payload);
        Some(End {
            at_ns: bytes.number()?,
            events: bytes.number()?,
            lost: bytes.number()?,
            late: bytes.number()?,
        })
    }
}
