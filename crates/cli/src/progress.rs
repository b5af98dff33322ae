// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far a command that takes long has got: one line on a terminal, nothing elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Between two changes of the line.
const BETWEEN: Duration = Duration::from_millis(300);
/// A command that is done before this shows nothing.
const LONG: Duration = Duration::from_secs(1);

/// The line. It goes when this is dropped.
pub(crate) struct Progress {
    begun: Instant,
    shown: Option<Instant>,
    is_on: bool,
}

impl Progress {
    /// Of what begins now.
    pub(crate) fn new() -> Self {
        Progress { begun: Instant::now(), shown: None, is_on: io::stderr().is_terminal() }
    }

    /// So many of all are done: "12 of 40 runs, 35 s left".
    pub(crate) fn part(&mut self, done: usize, of: usize, what: &str) {
        let begun = self.begun;
        self.show(|| part(done, of, what, begun.elapsed()));
    }

    /// This much can be said, if it is time to say something.
    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        let due = self.shown.map_or(self.begun + LONG, |shown| shown + BETWEEN);
        if self.is_on && Instant::now() >= due {
            self.shown = Some(Instant::now());
            // a broken terminal is no reason to stop
            _ = write!(io::stderr(), "\r\x1b[K{} ", text());
        }
    }

    /// Takes the line away, for other output.
    pub(crate) fn clear(&mut self) {
        if self.shown.is_some() {
            _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn part(done: usize, of: usize, what: &str, elapsed: Duration) -> String {
    let mut text = format!("{done} of {of} {what}");
    if (1..of).contains(&done) {
        let left_s = elapsed.as_secs_f64() / done as f64 * (of - done) as f64;
        let left = match left_s.ceil() as u64 {
            minutes @ 120.. => format!("{} min", minutes.div_ceil(60)),
            seconds => format!("{seconds} s"),
        };
        text += &format!(", {left} left");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left takes as long as what is done did, part by part.
    #[test]
    fn the_time_left_is_that_of_the_parts_left() {
        let text = |done, seconds| part(done, 40, "runs", Duration::from_secs(seconds));
        assert_eq!(text(0, 5), "0 of 40 runs");
        assert_eq!(text(10, 5), "10 of 40 runs, 15 s left");
        assert_eq!(text(1, 5), "1 of 40 runs, 4 min left");
        assert_eq!(text(40, 5), "40 of 40 runs");
    }
}
