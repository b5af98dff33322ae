// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane record --perf-script`: another program's samples of licence counters become a
//! recording.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use report::problem::Problem;
use trace::perf_script::{self, PerfScript};
use trace::{TraceError, Writer};

use super::{create, some_name, tell};
use crate::failure::Failure;

/// How such samples are made.
const RECIPE: &str = "record them with perf record -a -c 1000003 -e \
    core_power.lvl0_turbo_license,core_power.lvl1_turbo_license,core_power.lvl2_turbo_license, or where that \
    cannot be sampled with perf record -a -c 1000000 -e '{cpu-clock,r728,r1828,r2028}:S', and write the text with \
    perf script --header";

/// Reads the text (`-`: standard input) and writes the recording.
pub(super) fn run(from: &Path, output: &Path, quiet: bool) -> Result<(), Failure> {
    let shown =
        if from == Path::new("-") { "standard input".into() } else { from.display().to_string() };
    let unreadable = |error: io::Error| {
        let what = format!("cannot read {shown}");
        Failure::failed(Problem::new(what, error.to_string(), "check the path and its rights"))
    };
    let input: Box<dyn Read> = match from.as_os_str().as_encoded_bytes() {
        b"-" => Box::new(io::stdin()),
        _ => Box::new(File::open(from).map_err(unreadable)?),
    };
    let mut script = perf_script::read(BufReader::new(input)).map_err(unreadable)?;
    if script.samples == 0 {
        let what = format!("{shown} holds no samples of licence levels");
        return Err(Failure::failed(Problem::new(what, left_out(&script).join("; "), RECIPE)));
    }
    complete(&mut script, &shown);
    let unwritable = |error: TraceError| {
        Failure::failed(error.problem(format!("cannot write {}", output.display())))
    };
    let mut writer = Writer::new(create(output)?, &script.info).map_err(unwritable)?;
    for event in &script.events {
        writer.push(event).map_err(unwritable)?;
    }
    let last_ns = script.events.last().map_or(0, |event| event.at_ns);
    writer.finish(last_ns).map_err(unwritable)?;
    if !quiet {
        let (samples, output) = (script.samples, output.display());
        tell(&format!(
            "{samples} samples of licence levels; read them with: turbolane trace {output}"
        ));
        left_out(&script).iter().for_each(|text| tell(text));
    }
    Ok(())
}

/// What the text does not say.
fn complete(script: &mut PerfScript, shown: &str) {
    let info = &mut script.info;
    info.recorder = format!("turbolane {}", env!("CARGO_PKG_VERSION"));
    info.processor = some_name(&info.processor);
    info.license_counters = "cycles at each level, sampled by perf".into();
    if info.kernel.is_empty() {
        info.kernel = "unknown".into();
    }
    if info.target.is_empty() {
        info.target = format!("perf script of {shown}");
    }
}

/// What is not in the recording, and why.
fn left_out(script: &PerfScript) -> Vec<String> {
    let PerfScript { without_period, others, unknown_lines, first_unknown, .. } = script;
    let mut texts = Vec::new();
    if *others > 0 {
        texts.push(format!("{others} samples are of other events"));
    }
    if *without_period > 0 {
        texts.push(format!("{without_period} samples have no period: leave it in perf script -F"));
    }
    if let Some(line) = first_unknown {
        texts.push(format!(
            "{unknown_lines} lines are not samples with a CPU (record with -a), the first is line {line}"
        ));
    }
    if texts.is_empty() && script.samples == 0 {
        texts.push("there are no samples at all".into());
    }
    texts
}
