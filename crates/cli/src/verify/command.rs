// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run of a command: its time, its CPU time, its clock, and the number in its output.

use std::fmt;
use std::io::{Read, Seek, SeekFrom};
use std::process::Stdio;
use std::str::FromStr;
use std::time::Instant;

use hw::cpu_time::children_ns;
use hw::cycles::FamilyCycles;
use report::problem::Problem;
use report::text::wrap;
use report::times::Times;
use tempfile::NamedTempFile;

use super::outcome::{Broken, Done};
use crate::failure::Failure;

/// What is executed.
pub(super) struct Command {
    words: Vec<String>,
    /// Whether it is a `turbolane run`, which can report how long the command itself took.
    is_run: bool,
    /// As shown.
    text: String,
}

impl Command {
    pub(super) fn plain(words: &[String]) -> Command {
        Command { words: words.to_vec(), is_run: false, text: words.join(" ") }
    }

    /// The same command, shown with how it is run.
    pub(super) fn named(&self, how: &str) -> Command {
        Command { text: format!("{} ({how})", self.text), ..Command::plain(&self.words) }
    }

    /// `command` under this program's `run` with such options.
    pub(super) fn under_run(program: &str, options: &str, command: &[String]) -> Command {
        let head = [program, "run"].into_iter().chain(options.split_whitespace()).chain(["--"]);
        let words: Vec<String> = head.map(str::to_string).chain(command.iter().cloned()).collect();
        Command { is_run: true, ..Command::plain(&words) }
    }

    pub(super) fn shell(text: &str) -> Command {
        let words = vec!["sh".into(), "-c".into(), text.into()];
        Command { words, is_run: false, text: text.into() }
    }

    /// Runs it to its end. Its output goes to a file, which no command waits for as for a pipe.
    pub(super) fn run(
        &self,
        metric: Option<&Metric>,
        cycles: Option<&mut FamilyCycles>,
    ) -> Result<Done, Broken> {
        let unable = |error: std::io::Error| {
            Broken::NotStarted(Failure::failed(Problem::new(
                format!("cannot run {}", self.words[0]),
                error.to_string(),
                "check its name and rights",
            )))
        };
        let mut output = tempfile::tempfile().map_err(unable)?;
        let copy = || output.try_clone().map(Stdio::from);
        let times = if self.is_run { Some(NamedTempFile::new().map_err(unable)?) } else { None };
        let mut command = std::process::Command::new(&self.words[0]);
        let mut words = self.words[1..].iter();
        if let Some(times) = &times {
            command.args(words.next()).arg("--times").arg(times.path());
        }
        command
            .args(words)
            .stdin(Stdio::null())
            .stdout(copy().map_err(unable)?)
            .stderr(copy().map_err(unable)?);
        let mut clock = Clock::start(cycles);
        let before_ns = children_ns();
        let started = Instant::now();
        let status = command.status().map_err(unable)?;
        let time_ns = started.elapsed().as_nanos() as u64;
        let cpu_time_ns = children_ns().saturating_sub(before_ns);
        let clock_khz = clock.khz();
        let mut bytes = Vec::new();
        output
            .seek(SeekFrom::Start(0))
            .and_then(|_| output.read_to_end(&mut bytes))
            .map_err(unable)?;
        let text = String::from_utf8_lossy(&bytes);
        if !status.success() {
            return Err(failed(format!("it ended with {status}"), &text, "fix the command"));
        }
        let metric = match metric {
            Some(metric) => Some(metric.find(&text).ok_or_else(|| {
                let why = format!("its output has no number at \"{metric}\"");
                failed(why, &text, "fix --metric, or the command")
            })?),
            None => None,
        };
        let Some(times) = times else {
            return Ok(Done { time_ns, cpu_time_ns, around_ns: None, clock_khz, metric });
        };
        let own = read_times(&times).map_err(|why| failed(why, &text, "check --run"))?;
        Ok(Done {
            time_ns: own.time_ns,
            cpu_time_ns: own.cpu_time_ns + own.own_cpu_time_ns,
            around_ns: Some(time_ns.saturating_sub(own.time_ns)),
            clock_khz,
            metric,
        })
    }
}

/// The clock over a span of time. What waits for the command meanwhile counts too, which is next to
/// nothing.
struct Clock<'a> {
    counter: Option<&'a mut FamilyCycles>,
    before: Option<[u64; 2]>,
}

impl<'a> Clock<'a> {
    fn start(mut counter: Option<&'a mut FamilyCycles>) -> Self {
        let before = counter.as_mut().and_then(|counter| counter.read().ok());
        Clock { counter, before }
    }

    /// `None` if nothing was counted, as of a counter that others had all the time.
    fn khz(&mut self) -> Option<f64> {
        let (before, after) = (self.before?, self.counter.as_mut()?.read().ok()?);
        let [cycles, ns] = [0, 1].map(|at| after[at].wrapping_sub(before[at]) as f64);
        (cycles > 0.0 && ns > 0.0).then(|| cycles * 1e6 / ns)
    }
}

/// What `turbolane run` reported about the command; with options such as --check it runs none.
fn read_times(file: &NamedTempFile) -> Result<Times, String> {
    let text = std::fs::read_to_string(file.path()).map_err(|error| error.to_string())?;
    Times::parse(&text).ok_or_else(|| "turbolane run did not run the command".to_string())
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

/// Where to find a number in an output: the words before and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metric {
    before: Vec<String>,
    after: Vec<String>,
    text: String,
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Metric, String> {
        let (before, after) =
            text.split_once("{}").ok_or("write {} in place of the number, e.g. 'rate: {} MB/s'")?;
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
            // "1.5e" of "1.5edges" is not a number, "1.5" is.
            let end = (1..=longest).rev().find(|end| rest[..*end].parse::<f64>().is_ok())?;
            // In the middle of a number begins no number.
            let inside = self.before.is_empty()
                && line[..at].ends_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
            follow(&rest[end..], &self.after)?;
            if inside { None } else { rest[..end].parse().ok().filter(|n: &f64| n.is_finite()) }
        })
    }
}

/// What follows these words, if the text begins with them.
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

    /// Numbers of well-known programs are found, the last of several, and units may follow.
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
