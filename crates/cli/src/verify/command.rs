// SPDX-License-Identifier: MIT OR Apache-2.0
//! One run of a command: its time, its CPU time, and the number in its output.

use std::fmt;
use std::io::{Read, Seek, SeekFrom};
use std::process::Stdio;
use std::str::FromStr;
use std::time::Instant;

use report::problem::Problem;
use report::text::wrap;

use crate::failure::Failure;

/// What is executed.
pub(super) struct Command {
    words: Vec<String>,
    /// As shown.
    text: String,
}

/// What a run gave.
pub(super) struct Done {
    /// From its start to its end, without what is done here with its output.
    pub(super) time_ns: u64,
    pub(super) cpu_time_ns: u64,
    pub(super) metric: Option<f64>,
}

/// Why there is nothing.
pub(super) enum Broken {
    /// No run of it can work.
    NotStarted(Failure),
    /// This run did not; another may.
    Run { why: String, next: &'static str },
}

impl Command {
    pub(super) fn plain(words: &[String]) -> Command {
        Command { words: words.to_vec(), text: words.join(" ") }
    }

    pub(super) fn shell(text: &str) -> Command {
        Command { words: vec!["sh".into(), "-c".into(), text.into()], text: text.into() }
    }

    /// Runs it to its end. Its output goes to a file, which no command waits for as for a pipe.
    pub(super) fn run(&self, metric: Option<&Metric>) -> Result<Done, Broken> {
        let unable = |error: std::io::Error| {
            Broken::NotStarted(Failure::failed(Problem::new(
                format!("cannot run {}", self.words[0]),
                error.to_string(),
                "check its name and rights",
            )))
        };
        let mut output = tempfile::tempfile().map_err(unable)?;
        let copy = || output.try_clone().map(Stdio::from);
        let mut command = std::process::Command::new(&self.words[0]);
        command
            .args(&self.words[1..])
            .stdin(Stdio::null())
            .stdout(copy().map_err(unable)?)
            .stderr(copy().map_err(unable)?);
        let before_ns = children_cpu_ns();
        let started = Instant::now();
        let status = command.status().map_err(unable)?;
        let time_ns = started.elapsed().as_nanos() as u64;
        let cpu_time_ns = children_cpu_ns().saturating_sub(before_ns);
        let mut bytes = Vec::new();
        output
            .seek(SeekFrom::Start(0))
            .and_then(|_| output.read_to_end(&mut bytes))
            .map_err(unable)?;
        let text = String::from_utf8_lossy(&bytes);
        if !status.success() {
            return Err(failed(format!("it ended with {status}"), &text, "mend the command"));
        }
        let metric = match metric {
            Some(metric) => Some(metric.find(&text).ok_or_else(|| {
                let why = format!("its output has no number at \"{metric}\"");
                failed(why, &text, "mend --metric, or the command")
            })?),
            None => None,
        };
        Ok(Done { time_ns, cpu_time_ns, metric })
    }
}

/// Shows the last lines of the output, which say more than a code.
fn failed(why: String, output: &str, next: &'static str) -> Broken {
    const SHOWN: usize = 5;
    let lines: Vec<&str> = output.lines().collect();
    for line in &lines[lines.len().saturating_sub(SHOWN)..] {
        eprint!("{}", wrap("  | ", line, 1_000));
    }
    Broken::Run { why, next }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// CPU time of all children that ended, and of theirs.
fn children_cpu_ns() -> u64 {
    // SAFETY: rusage is numbers, for which zeros are a value; getrusage writes one to the local.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// Where a number stands in an output: the words before and behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metric {
    before: Vec<String>,
    after: Vec<String>,
    text: String,
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Metric, String> {
        let (before, after) = text
            .split_once("{}")
            .ok_or("write {} where the number stands, e.g. 'rate: {} MB/s'")?;
        let words = |part: &str| part.split_whitespace().map(str::to_string).collect();
        Ok(Metric { before: words(before), after: words(after), text: text.into() })
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Metric {
    /// The number; of several places the last.
    pub(super) fn find(&self, output: &str) -> Option<f64> {
        output.lines().rev().find_map(|line| self.find_in(line))
    }

    fn find_in(&self, line: &str) -> Option<f64> {
        let starts = line.char_indices().map(|(at, _)| at).rev();
        starts.into_iter().find_map(|at| {
            let rest = follow(&line[at..], &self.before)?;
            let rest = rest.trim_start();
            let is_part = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
            let longest = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
            // "1.5e" of "1.5edges" is no number, "1.5" is.
            let end = (1..=longest).rev().find(|end| rest[..*end].parse::<f64>().is_ok())?;
            // In the middle of a number begins no number.
            let inside = self.before.is_empty()
                && line[..at].ends_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
            follow(&rest[end..], &self.after)?;
            if inside { None } else { rest[..end].parse().ok().filter(|n: &f64| n.is_finite()) }
        })
    }
}

/// What is behind these words, if the text begins with them.
fn follow<'a>(text: &'a str, words: &[String]) -> Option<&'a str> {
    let mut rest = text;
    for (number, word) in words.iter().enumerate() {
        let from = if number == 0 && !text.starts_with(char::is_whitespace) {
            rest
        } else {
            rest.trim_start()
        };
        rest = from.strip_prefix(word.as_str())?;
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pattern: &str, output: &str) -> Option<f64> {
        pattern.parse::<Metric>().unwrap().find(output)
    }

    /// Numbers of well-known programs are found, the last of several, and units may stand behind.
    #[test]
    fn numbers_are_found() {
        assert_eq!(find("Requests/sec: {}", "x\nRequests/sec:   1234.56\nend\n"), Some(1234.56));
        assert_eq!(find("encoded {} fps", "encoded 10 fps\nencoded 12.5 fps\n"), Some(12.5));
        assert_eq!(find("fps={}", "frame=1 fps=33.1edges"), Some(33.1));
        assert_eq!(find("{} MB/s", "read 812 MB/s"), Some(812.0));
        assert_eq!(find("t {}", "t -1.5e3s"), Some(-1500.0));
    }

    /// No number, another unit, an unfinished pattern: nothing, and no panic on other alphabets.
    #[test]
    fn other_texts_have_none() {
        assert_eq!(find("rate: {}", "rate: fast"), None);
        assert_eq!(find("{} MB/s", "812 KB/s \u{e4}\u{1f600}"), None);
        assert!("rate".parse::<Metric>().is_err());
    }
}
