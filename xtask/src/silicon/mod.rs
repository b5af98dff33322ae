// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dim-silicon machine as `./x` takes it: checked before anything is built or booted.

mod batch;
pub(crate) mod bench;
pub(crate) mod claims;
pub(crate) mod experiment;
mod nginx;
mod picture;
mod plan;
mod point;
mod predicted;
mod profile;
mod recorded;
mod results;
mod rows;

use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use silicon::{Machine, Settings};
use testbed::{Silicon, Step};

use crate::silicon::point::{Bench, Kept, Point};
use crate::{lab, repo};

/// The group of benchmarks that look at guests from outside, too.
pub(crate) const GROUP: &str = "silicon";

/// A machine from `CPU[,KEY=VALUE...]` that has so many CPUs in this topology; its library is
/// built.
pub(crate) fn machine(text: &str, cpus: u32, topology: &str) -> Result<Silicon> {
    let (settings, tsc_khz) = check(text, cpus, topology)?;
    let processor = settings.processor().to_owned();
    Ok(Silicon { library: library()?, settings: text.to_owned(), processor, tsc_khz })
}

/// Measures points, as many guests at a time as there are CPUs; in their order.
fn run_points<'a>(
    bench: &Bench<'_>,
    points: impl Iterator<Item = &'a Point>,
    again: bool,
) -> Result<Vec<Kept>> {
    let places: Vec<(&Point, Mutex<Option<Result<Kept>>>)> =
        points.map(|point| (point, Mutex::new(None))).collect();
    lab::for_each(&places, |(point, place)| {
        let step = Step::start(&format!("{}: {}", bench.experiment, point.name));
        let got = bench.get(point, again);
        if got.is_ok() {
            step.done();
        }
        *place.lock().expect("no thread panics holding it") = Some(got);
    });
    let done = places.into_iter().map(|(_, place)| place.into_inner());
    done.map(|one| one.expect("no thread panicked holding it").context("a point was left out")?)
        .collect()
}

/// Whether there is such a machine; the frequency of its time stamp counter.
fn check(text: &str, cpus: u32, topology: &str) -> Result<(Settings, u32)> {
    let settings = Settings::parse(text)?;
    let machine = Machine::new(&settings, cpus, threads(topology)?)?;
    Ok((settings, machine.clocks().tsc_khz()))
}

/// CPUs per core of a topology such as "cores=2,threads=2".
fn threads(topology: &str) -> Result<u32> {
    let found = topology.split(',').find_map(|part| part.strip_prefix("threads="));
    found.map_or(Ok(1), |text| text.parse().with_context(|| format!("threads={text}: no number")))
}

/// The machine as a static library, built once, whoever asks at the same time.
fn library() -> Result<PathBuf> {
    static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut built = BUILT.lock().expect("no thread panics holding it");
    if built.is_none() {
        *built = Some(build()?);
    }
    built.clone().context("it was just built")
}

fn build() -> Result<PathBuf> {
    let mut command = repo::cargo();
    // with xtask, so that what was built for it is not built again with other features
    command.args(["build", "--release", "--lib", "-p", "silicon", "-p", "xtask"]);
    command.arg("--message-format=json-render-diagnostics");
    let done = repo::reported(&mut command, "build-silicon")?;
    ensure!(done.success, "the machine's build failed; the messages above say why");
    let built = done.text.lines().filter_map(static_library).next_back();
    built.context("cargo built no libsilicon.a")
}

/// The static library that a line of cargo's report says was built.
fn static_library(line: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let files = message["filenames"].as_array()?;
    files
        .iter()
        .filter_map(Value::as_str)
        .find(|file| file.ends_with("/libsilicon.a"))
        .map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_machines_have_a_clock() {
        assert_eq!(check("xeon-gold-6130", 4, "").unwrap().1, 2_100_000);
        assert_eq!(check("xeon-gold-6130,others=0", 4, "cores=2,threads=2").unwrap().1, 2_100_000);
    }

    #[test]
    fn bad_machines_fail() {
        for (text, cpus, topology) in [
            ("i486", 1, ""),
            ("xeon-gold-6130", 65, ""),
            ("xeon-gold-6130", 17, ""),
            ("xeon-gold-6130", 4, "threads=x"),
            ("xeon-w-2104", 4, "cores=2,threads=2"),
        ] {
            assert!(check(text, cpus, topology).is_err(), "{text} {cpus} {topology}");
        }
    }

    #[test]
    fn the_library_is_found_in_cargos_report() {
        let line = r#"{"filenames":["/t/libsilicon.rlib","/t/libsilicon.a"]}"#;
        assert_eq!(static_library(line), Some(PathBuf::from("/t/libsilicon.a")));
        assert_eq!(static_library("no JSON"), None);
    }
}
