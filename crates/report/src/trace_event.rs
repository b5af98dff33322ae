// SPDX-License-Identifier: MIT OR Apache-2.0
//! The JSON trace-event format, which Perfetto (ui.perfetto.dev) and chrome://tracing read: what
//! simulations and recordings are shown in.
//!
//! One object with `traceEvents`, an event a line: names of processes and threads (`ph: M`), slices
//! (`ph: X`), counters (`ph: C`), moments (`ph: i`). Times in this format are microseconds; they
//! are written with three decimals, so that no nanosecond is lost.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

/// Writes one event a line.
pub struct TraceEvents<W> {
    out: W,
    first: bool,
}

/// What an event has besides its name.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// A number.
    Number(f64),
    /// A text.
    Text(&'a str),
}

/// A track: a process and a thread of it, by numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track {
    /// Tracks of a process are together.
    pub process: u32,
    /// Sorts the tracks of a process.
    pub thread: u32,
}

impl<W: Write> TraceEvents<W> {
    /// Begins the document.
    pub fn new(mut out: W) -> io::Result<Self> {
        write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(TraceEvents { out, first: true })
    }

    /// The name of a track's process.
    pub fn name_process(&mut self, track: Track, name: &str) -> io::Result<()> {
        self.name("process_name", track, name)
    }

    /// The name of a track.
    pub fn name_thread(&mut self, track: Track, name: &str) -> io::Result<()> {
        self.name("thread_name", track, name)
    }

    fn name(&mut self, what: &str, track: Track, name: &str) -> io::Result<()> {
        self.event(&json!({
            "ph": "M",
            "pid": track.process,
            "tid": track.thread,
            "name": what,
            "args": { "name": name },
        }))
    }

    /// Something that took from when to when. Slices of one category have one colour by name.
    pub fn slice(
        &mut self,
        track: Track,
        (start_ns, end_ns): (u64, u64),
        name: &str,
        category: &str,
        args: &[(&str, Arg)],
    ) -> io::Result<()> {
        self.event(&json!({
            "ph": "X",
            "pid": track.process,
            "tid": track.thread,
            "ts": micros(start_ns),
            "dur": micros(end_ns.saturating_sub(start_ns)),
            "name": name,
            "cat": category,
            "args": object(args),
        }))
    }

    /// A value from now on. `of` is whose it is, `what` the value's name.
    pub fn counter(
        &mut self,
        track: Track,
        at_ns: u64,
        of: &str,
        what: &str,
        value: f64,
    ) -> io::Result<()> {
        self.event(&json!({
            "ph": "C",
            "pid": track.process,
            "tid": track.thread,
            "ts": micros(at_ns),
            "name": format!("{of} {what}"),
            "args": object(&[(what, Arg::Number(value))]),
        }))
    }

    /// A moment on a track.
    pub fn moment(&mut self, track: Track, at_ns: u64, name: &str) -> io::Result<()> {
        self.event(&json!({
            "ph": "i",
            "s": "t",
            "pid": track.process,
            "tid": track.thread,
            "ts": micros(at_ns),
            "name": name,
        }))
    }

    /// Ends the document, with what it says of itself.
    pub fn finish(mut self, about: &[(&str, Arg)]) -> io::Result<()> {
        writeln!(self.out, "\n],\"otherData\":{}}}", object(about))?;
        self.out.flush()
    }

    fn event(&mut self, event: &Value) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.first) { "" } else { "," };
        write!(self.out, "{comma}\n{event}")
    }
}

fn object(args: &[(&str, Arg)]) -> Value {
    let pair = |(key, arg): &(&str, Arg)| {
        let value = match *arg {
            // 1 rather than 1.0
            Arg::Number(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
                json!(number as i64)
            }
            Arg::Number(number) => json!(number),
            Arg::Text(text) => json!(text),
        };
        ((*key).to_string(), value)
    };
    Value::Object(args.iter().map(pair).collect::<Map<_, _>>())
}

/// Microseconds. An `f64` holds the nanoseconds of 100 days exactly enough for three decimals.
fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}
