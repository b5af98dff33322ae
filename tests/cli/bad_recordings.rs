// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings that lack something, given to `turbolane trace --scenario`: the one of nginx
//! (docs/experiments/nginx-trace.md), written anew with events lost, without its end, or by another
//! kernel.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Output;

use trace::{Ending, Event, Info, Reader, What, Writer};

use crate::turbolane;

const RECORDING: &str = "../../tests/data/traces/nginx-gzip1.trace";

/// What is recorded: the head, the events and when it ended.
fn original() -> (Info, Vec<Event>, u64) {
    let mut reader = Reader::new(BufReader::new(File::open(RECORDING).unwrap())).unwrap();
    let mut events = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        events.push(event);
    }
    let Some(Ending::Complete(end)) = reader.ending() else { panic!("it is complete") };
    (reader.info().clone(), events, end.at_ns)
}

/// Writes a recording that ends at that time, or has no end.
fn write(path: &Path, info: &Info, events: &[Event], end_ns: Option<u64>) {
    let mut writer = Writer::new(File::create(path).unwrap(), info).unwrap();
    events.iter().for_each(|event| writer.push(event).unwrap());
    match end_ns {
        Some(end_ns) => drop(writer.finish(end_ns).unwrap()),
        None => writer.flush().unwrap(),
    }
}

/// The scenario's file, and what `turbolane trace` prints.
fn scenario(recording: &Path) -> (PathBuf, Output) {
    let out = recording.with_extension("toml");
    let mut command = turbolane();
    command.arg("trace").arg(recording).args(["--machine", "core-i9-7940x", "--scenario"]);
    let output = command.arg(&out).output().unwrap();
    (out, output)
}

/// The scenario of a recording that is accepted, without its comments; its comments; what was
/// printed.
fn accepted(recording: &Path) -> (Vec<String>, Vec<String>, String) {
    let (out, output) = scenario(recording);
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(out).unwrap();
    let (comments, steps) =
        text.lines().map(str::to_owned).partition(|line: &String| line.starts_with('#'));
    let printed = String::from_utf8(output.stdout).unwrap();
    (steps, comments, printed.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Work that is missing would be work that no task does: a recording that lost an event anywhere is
/// refused, and no file is written.
#[test]
fn lost_events_make_no_scenario_fail() {
    let (info, events, end_ns) = original();
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("web.trace");
    for at in [0, events.len() / 2, events.len()] {
        let mut events = events.clone();
        let at_ns = events.get(at).map_or(end_ns, |event| event.at_ns);
        events.insert(at, Event { at_ns, cpu: 0, tid: 0, what: What::Lost { events: 3 } });
        write(&recording, &info, &events, Some(end_ns));
        let (out, output) = scenario(&recording);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("3 events were lost"), "{text}");
        assert!(text.contains("larger --buffer"), "{text}");
        assert!(!out.exists());
    }
}

/// One that was cut off is a scenario of what came before; the file and the command say so.
#[test]
fn cut_off_recordings_are_said_to_be() {
    let (info, events, end_ns) = original();
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("web.trace");
    let half = &events[..events.len() / 2];
    let half_ns = half[half.len() - 1].at_ns;
    write(&recording, &info, half, Some(half_ns));
    let (steps, comments, printed) = accepted(&recording);
    let is_said = |text: &str| text.contains("cut off");
    assert!(!comments.iter().any(|line| is_said(line)) && !is_said(&printed), "{printed}");
    write(&recording, &info, half, None);
    let (steps_cut, comments, printed) = accepted(&recording);
    assert!(comments.iter().any(|line| is_said(line)) && is_said(&printed), "{printed}");
    assert_eq!(steps_cut, steps, "it has what came before");
    write(&recording, &info, &events, Some(end_ns));
    assert_ne!(accepted(&recording).0, steps, "it has more if it is complete");
}

/// A recording holds no kernel's structures: one of another kernel is a scenario like any other,
/// and what that kernel did not report is said.
#[test]
fn recordings_of_other_kernels_are_read() {
    let (info, events, end_ns) = original();
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("web.trace");
    let of = |kernel: &str, affinities: bool| {
        let info = Info { kernel: kernel.into(), affinities, ..info.clone() };
        write(&recording, &info, &events, Some(end_ns));
        accepted(&recording)
    };
    let (steps, comments, printed) = of("6.18.0", true);
    assert!(comments.iter().any(|line| line.contains("(Linux 6.18.0)")), "{comments:?}");
    assert!(!printed.contains("affinities"), "{printed}");
    let (steps_of_other, comments, printed) = of("5.14.0-el9.x86_64", false);
    assert!(comments.iter().any(|line| line.contains("(Linux 5.14.0-el9.x86_64)")), "{comments:?}");
    assert!(comments.iter().any(|line| line.contains("changes of affinities")), "{comments:?}");
    assert!(printed.contains("changes of affinities"), "{printed}");
    assert_eq!(steps_of_other, steps);
}
