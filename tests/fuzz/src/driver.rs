// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the cases of a target, and makes those that fail small.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::memory::{self, CASE};
use crate::mutate::mutate;

/// CPU time that a megabyte of input may take.
pub const CPU_PER_MB: Duration = Duration::from_secs(1);
/// CPU time that an input may take, however small.
pub const CPU_FLOOR: Duration = Duration::from_secs(1);
/// Memory that a parser may hold, beyond its input.
pub const MEMORY_MAX: usize = 1 << 30;
/// How long a target runs if nothing else is asked for.
pub const SHORT: Duration = Duration::from_secs(2);
/// A case that takes that much CPU time is not waited for.
const HOPELESS: Duration = Duration::from_secs(120);
/// Attempts to make a failed input smaller.
const ATTEMPTS: usize = 400;

/// A parser, and what it is fed.
pub struct Target<'a> {
    /// Its name in reports and file names.
    pub name: &'a str,
    /// Real inputs.
    pub corpus: Vec<Vec<u8>>,
    /// Changed word by word too.
    pub is_text: bool,
    /// Puts right what a mutation breaks and no parser gets beyond: check sums.
    pub repair: fn(&mut Vec<u8>),
    /// The parser. It panics if it fails.
    pub run: &'a dyn Fn(&[u8]),
}

/// One target at a time: memory and CPU time are the process's.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs cases until the time is over. Panics at the first that fails, with its seed.
pub fn fuzz(target: &Target<'_>) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(!target.corpus.is_empty(), "{}: there is no corpus", target.name);
    let first = number("TURBOLANE_FUZZ_SEED").unwrap_or(0);
    let time = number("TURBOLANE_FUZZ_S").map_or(SHORT, Duration::from_secs);
    println!("{}: seed {first}, {} files, {time:?}", target.name, target.corpus.len());
    for (at, input) in target.corpus.iter().enumerate() {
        check(target, input).unwrap_or_else(|why| panic!("{}: file {at}: {why}", target.name));
    }
    let (begun, mut seed) = (Instant::now(), first);
    let mut most = (Duration::ZERO, 0);
    while begun.elapsed() < time {
        let input = input(target, seed);
        match check(target, &input) {
            Ok((cpu, bytes)) => most = (most.0.max(cpu), most.1.max(bytes)),
            Err(why) => report(target, seed, &input, &why),
        }
        seed += 1;
    }
    let (cases, (cpu, bytes)) = (seed - first, most);
    println!("{}: {cases} cases, at most {cpu:?} of CPU time, {} KiB", target.name, bytes >> 10);
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is \"{text}\", and has to be a number")))
}

fn input(target: &Target<'_>, seed: u64) -> Vec<u8> {
    CASE.store(seed, Ordering::Relaxed);
    let mut input = mutate(&mut Rng::with_seed(seed), &target.corpus, target.is_text);
    (target.repair)(&mut input);
    input
}

/// What it took, or what is wrong.
fn check(target: &Target<'_>, input: &[u8]) -> Result<(Duration, usize), String> {
    let _watch = Watch::start(target.name);
    let (held, begun) = (memory::begin(), cpu_time());
    let done = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let (cpu, bytes) = (cpu_time().saturating_sub(begun), memory::peak().saturating_sub(held));
    if let Err(panic) = done {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        return Err(format!("panics: {}", text.unwrap_or("?")));
    }
    let allowed = CPU_FLOOR.max(CPU_PER_MB.mul_f64(input.len() as f64 / 1e6));
    if cpu > allowed {
        return Err(format!("takes {cpu:?} of CPU time for {} bytes", input.len()));
    }
    if bytes > MEMORY_MAX {
        return Err(format!("takes {} MiB of memory for {} bytes", bytes >> 20, input.len()));
    }
    Ok((cpu, bytes))
}

/// CPU time of this process.
#[must_use]
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to `time`, which lives until the call is over.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Ends the process if a case never ends, and names the case.
struct Watch;

static STARTED: AtomicBool = AtomicBool::new(false);
/// Target and CPU time at the start of the case that runs.
static RUNNING: Mutex<Option<(String, Duration)>> = Mutex::new(None);

impl Watch {
    fn start(name: &str) -> Self {
        *RUNNING.lock().unwrap() = Some((name.to_string(), cpu_time()));
        if !STARTED.swap(true, Ordering::Relaxed) {
            std::thread::spawn(|| {
                loop {
                    std::thread::sleep(Duration::from_secs(1));
                    let running = RUNNING.lock().unwrap().clone();
                    let Some((name, begun)) = running else { continue };
                    if cpu_time().saturating_sub(begun) > HOPELESS {
                        let seed = CASE.load(Ordering::Relaxed);
                        eprintln!("{name}: TURBOLANE_FUZZ_SEED={seed} does not end");
                        std::process::abort();
                    }
                }
            });
        }
        Watch
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap() = None;
    }
}

fn report(target: &Target<'_>, seed: u64, input: &[u8], why: &str) -> ! {
    let small = minimise(target, input);
    let path = std::env::temp_dir().join(format!("turbolane-fuzz-{}-{seed}", target.name));
    let place = match std::fs::write(&path, &small) {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("not written: {error}"),
    };
    let (name, was, is) = (target.name, input.len(), small.len());
    panic!(
        "{name}: TURBOLANE_FUZZ_SEED={seed} {why}\n{was} bytes, {is} of them show it: {place}\n\
         repeat it with TURBOLANE_FUZZ_SEED={seed} cargo test -p fuzztests {name} -- --nocapture"
    );
}

/// Leaves out pieces, ever shorter ones, as long as the rest fails.
fn minimise(target: &Target<'_>, input: &[u8]) -> Vec<u8> {
    let mut small = input.to_vec();
    let (mut length, mut attempts) = (input.len().div_ceil(2), 0);
    while length > 0 && attempts < ATTEMPTS {
        let mut at = 0;
        while at < small.len() && attempts < ATTEMPTS {
            attempts += 1;
            let mut less = small.clone();
            less.drain(at..(at + length).min(small.len()));
            (target.repair)(&mut less);
            if less.len() < small.len() && check(target, &less).is_err() {
                small = less;
            } else {
                at += length;
            }
        }
        length /= 2;
    }
    small
}

/// The files of a folder that end so, in order of their names; those too long for quick cases are
/// left out.
#[must_use]
pub fn corpus_of(folder: &Path, ends: &[&str], longest: u64) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    let fits = |path: &Path| {
        let name = path.to_string_lossy();
        let is_short =
            path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= longest);
        is_short && (ends.is_empty() || ends.iter().any(|end| name.ends_with(end)))
    };
    paths.iter().filter(|path| fits(path)).filter_map(|path| std::fs::read(path).ok()).collect()
}
