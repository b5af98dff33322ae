// SPDX-License-Identifier: MIT OR Apache-2.0
//! Call chains as a pprof profile, for `go tool pprof`, Grafana Pyroscope, Speedscope and others.
//!
//! The format is `profile.proto` (github.com/google/pprof/blob/main/proto/profile.proto): protocol
//! buffers in gzip. Of the wire format two kinds of field are needed, numbers (varints) and byte
//! strings with their length, so it is written here; a library would be many times its size.
//!
//! What is in it: sample types `samples/count` and `cpu/nanoseconds` (a sample is a period), labels
//! `level` (of the function that was executed) and `process` on each sample, a mapping per file.
//! All functions are named, so that no program looks for symbols.
//!
//! Limits: addresses are left out, because chains are by function and not by instruction.

use std::collections::HashMap;
use std::io::Write;
use std::time::SystemTime;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{CallChains, SampleReport};

/// Field numbers of `message Profile`.
mod profile {
    pub const SAMPLE_TYPE: u64 = 1;
    pub const SAMPLE: u64 = 2;
    pub const MAPPING: u64 = 3;
    pub const LOCATION: u64 = 4;
    pub const FUNCTION: u64 = 5;
    pub const STRING_TABLE: u64 = 6;
    pub const TIME_NANOS: u64 = 9;
    pub const DURATION_NANOS: u64 = 10;
    pub const PERIOD_TYPE: u64 = 11;
    pub const PERIOD: u64 = 12;
}

const VARINT: u64 = 0;
const BYTES: u64 = 2;

/// A message, as far as it is written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3 | VARINT);
        self.varint(value);
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn message(self, field: u64, message: &Message) -> Self {
        self.bytes(field, &message.0)
    }

    /// Numbers without their field's number between them.
    fn packed(self, field: u64, values: impl IntoIterator<Item = u64>) -> Self {
        let mut packed = Message::default();
        values.into_iter().for_each(|value| packed.varint(value));
        self.message(field, &packed)
    }
}

/// Every text once; the first is empty, as the format demands.
struct Strings {
    texts: Vec<String>,
    indexes: HashMap<String, u64>,
}

impl Strings {
    fn new() -> Self {
        let mut strings = Strings { texts: Vec::new(), indexes: HashMap::new() };
        strings.index("");
        strings
    }

    fn index(&mut self, text: &str) -> u64 {
        if let Some(known) = self.indexes.get(text) {
            return *known;
        }
        self.texts.push(text.to_owned());
        self.indexes.insert(text.to_owned(), self.texts.len() as u64 - 1);
        self.texts.len() as u64 - 1
    }

    /// `message ValueType`.
    fn value_type(&mut self, kind: &str, unit: &str) -> Message {
        Message::default().number(1, self.index(kind)).number(2, self.index(unit))
    }

    /// `message Label`.
    fn label(&mut self, key: &str, value: &str) -> Message {
        Message::default().number(1, self.index(key)).number(2, self.index(value))
    }
}

impl SampleReport {
    /// The chains as a pprof profile, compressed, of a sampling that ended now.
    pub fn pprof(&self, chains: &CallChains) -> Vec<u8> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now_ns = now.map_or(0, |now| now.as_nanos() as u64);
        let profile = self.profile(chains, now_ns.saturating_sub(self.time_ns));
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        // a vector takes everything
        gzip.write_all(&profile).expect("memory can be written");
        gzip.finish().expect("memory can be written")
    }

    /// `message Profile`.
    fn profile(&self, chains: &CallChains, begun_ns: u64) -> Vec<u8> {
        let mut strings = Strings::new();
        let count = strings.value_type("samples", "count");
        let cpu = strings.value_type("cpu", "nanoseconds");
        let mut message = Message::default()
            .message(profile::SAMPLE_TYPE, &count)
            .message(profile::SAMPLE_TYPE, &cpu);
        for chain in &chains.chains {
            // innermost first; identifiers begin at 1
            let locations = chain.frames.iter().rev().map(|frame| *frame as u64 + 1);
            let level = strings.label("level", &chains.license_level(chain).to_string());
            let process = strings.label("process", &chain.process);
            let sample = Message::default()
                .packed(1, locations)
                .packed(2, [chain.samples, chain.samples.saturating_mul(self.period_ns)])
                .message(3, &level)
                .message(3, &process);
            message = message.message(profile::SAMPLE, &sample);
        }
        message = frames(message, chains, &mut strings);
        message = message
            .number(profile::TIME_NANOS, begun_ns)
            .number(profile::DURATION_NANOS, self.time_ns)
            .message(profile::PERIOD_TYPE, &cpu)
            .number(profile::PERIOD, self.period_ns);
        let texts = strings.texts.iter();
        texts.fold(message, |message, text| message.bytes(profile::STRING_TABLE, text.as_bytes())).0
    }
}

/// A location and a function for each frame, a mapping for each file.
fn frames(mut message: Message, chains: &CallChains, strings: &mut Strings) -> Message {
    let mut mappings: HashMap<&str, u64> = HashMap::new();
    for (id, frame) in (1..).zip(&chains.frames) {
        let file = frame.file.as_deref().unwrap_or_default();
        let (name, path) = (strings.index(&frame.function), strings.index(file));
        let function =
            Message::default().number(1, id).number(2, name).number(3, name).number(4, path);
        let mut location = Message::default().number(1, id);
        if !file.is_empty() {
            let next = mappings.len() as u64 + 1;
            let mapping = *mappings.entry(file).or_insert(next);
            if mapping == next {
                // its file's name, and that its functions are known
                let mapping = Message::default().number(1, next).number(5, path).number(7, 1);
                message = message.message(profile::MAPPING, &mapping);
            }
            location = location.number(2, mapping);
        }
        let line = Message::default().number(1, id);
        message = message
            .message(profile::LOCATION, &location.message(4, &line))
            .message(profile::FUNCTION, &function);
    }
    message
}
