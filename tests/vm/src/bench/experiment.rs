// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group `probe`: `verify.prediction_error_pct`, the experiments of docs/experiments/wide-bursts.md
//! and web-bursts.md in short: what it does to a program to turn AVX-512 off, predicted and
//! measured. On this machine, no guest.
//!
//! The programs compress a block and, in turn, multiply two matrices or encrypt. Their parts are
//! timed alone, the CPU is probed for its clocks, and from both the simulator predicts the time of
//! a request with the AVX2 form of the kernel beside that with AVX-512. Then `turbolane verify`
//! measures it. The error is in points of that change; least and greatest are those against the
//! ends of the measured interval of 95 %.
//!
//! A program is left out, and said why, where it cannot be built (gcc, zlib1g-dev and its library);
//! all are where the CPU has no AVX-512, or the probe cannot measure here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ::sim::engine::Options;
use ::sim::policy_spec::simulate;
use ::sim::scenario::Scenario;
use anyhow::{Context, Result, bail, ensure};
use cpumodel::{CpuModel, InsnClass, Platform};
use report::verify::{Effect, VerifyReport};

use crate::lane::beside;
use crate::measure::{Figure, publish};

/// What the programs include.
const HEADERS: [(&str, &str); 2] = [
    ("bursts.h", include_str!("../../../../docs/experiments/bursts.h")),
    ("turbolane.h", include_str!("../../../../include/turbolane.h")),
];

/// A program of the experiments.
struct Load {
    /// Behind the names of its figures.
    suffix: &'static str,
    source: &'static str,
    library: &'static str,
    package: &'static str,
    /// How its library is told which form of its kernel to take, as in docs/experiments/bursts.sh.
    on: &'static str,
    off: &'static str,
}

const LOADS: [Load; 2] = [
    Load {
        suffix: "",
        source: include_str!("../../../../docs/experiments/wide-bursts.c"),
        library: "-lopenblas",
        package: "libopenblas-dev",
        on: "OPENBLAS_CORETYPE=SkylakeX",
        off: "OPENBLAS_CORETYPE=Haswell",
    },
    Load {
        suffix: "_openssl",
        source: include_str!("../../../../docs/experiments/web-bursts.c"),
        library: "-lcrypto",
        package: "libssl-dev",
        on: "OPENSSL_ia32cap=':~0'",
        off: "OPENSSL_ia32cap=':~0xc0230000'",
    },
];

/// Runs of each kind, and seconds of a run.
const RUNS: &str = "20";
const SECONDS: &str = "0.3";

/// Measure and publish.
pub fn run() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("turbolane-experiment-{}", std::process::id()));
    fs::create_dir_all(&folder).context("cannot make a folder for the program")?;
    let figures = figures(&folder);
    fs::remove_dir_all(&folder).context("cannot remove the program's folder")?;
    publish("experiment", &figures?)
}

/// None where this machine cannot answer, which is told.
fn figures(folder: &Path) -> Result<Vec<Figure>> {
    let left_out = |why: &str| println!("left out: {why}");
    if !std::arch::is_x86_feature_detected!("avx512f") {
        left_out("this CPU has no AVX-512 to turn off");
        return Ok(Vec::new());
    }
    let turbolane = beside()?;
    let Some(model) = probe(&turbolane, folder)? else {
        left_out("the probe cannot measure this CPU; turbolane probe says why");
        return Ok(Vec::new());
    };
    let library = turbolane.with_file_name("libturbolane.so");
    let mut figures = Vec::new();
    for load in &LOADS {
        match Program::build(load, folder, &library)? {
            Some(program) => figures.extend(compare(&turbolane, &model, load, &program)?),
            None => left_out(&format!(
                "the program with {0} cannot be built; apt install gcc zlib1g-dev {0}",
                load.package
            )),
        }
    }
    Ok(figures)
}

/// What the simulator says of a program, and what the machine says.
fn compare(
    turbolane: &Path,
    model: &CpuModel,
    load: &Load,
    program: &Program,
) -> Result<[Figure; 3]> {
    let predicted_pct = predict(model, &Parts::measure(load, program)?)?;
    let measured = measure(turbolane, load, program)?;
    let n = measured.a.samples.len() as u64;
    let Effect { change_pct, low_pct, high_pct, .. } = measured.effect;
    let [error, low, high] = [change_pct, low_pct, high_pct].map(|pct| (predicted_pct - pct).abs());
    let figure = |name: &str, value: f64, min: f64, max: f64| Figure {
        name: format!("verify.{name}{}_pct", load.suffix),
        value,
        unit: "%",
        better: "lower",
        n,
        min: min.min(value),
        max: max.max(value),
        baseline: None,
    };
    Ok([
        figure("prediction_error", error, low.min(high), low.max(high)),
        figure("predicted_change", predicted_pct, predicted_pct, predicted_pct),
        figure("measured_change", change_pct, low_pct, high_pct),
    ])
}

fn output(command: &mut Command) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.output().with_context(|| format!("cannot run {name}"))
}

/// The program of a load.
struct Program {
    path: PathBuf,
    /// Its library lies there.
    folder: PathBuf,
}

impl Program {
    /// Compiles it; `None` where that fails, for its libraries are no part of what a build needs.
    fn build(load: &Load, folder: &Path, built: &Path) -> Result<Option<Program>> {
        let source = folder.join("bursts.c");
        fs::write(&source, load.source).context("cannot write the program")?;
        for (name, text) in HEADERS {
            fs::write(folder.join(name), text).context("cannot write its headers")?;
        }
        // the library's own name, by which a program asks for it
        let library = folder.join("libturbolane.so.0");
        fs::copy(built, &library).with_context(|| format!("cannot copy {}", built.display()))?;
        let path = folder.join("bursts");
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-o"]).arg(&path).arg("-I").arg(folder).arg(&source);
        cc.arg(&library).args([load.library, "-lz"]);
        let is_built = cc.output().is_ok_and(|done| done.status.success());
        Ok(is_built.then(|| Program { path, folder: folder.to_owned() }))
    }

    /// The words of a shell, for a run in which the kernel has this form.
    fn command(&self, kernel: &str, how: &str, seconds: &str) -> String {
        let (folder, path) = (self.folder.display(), self.path.display());
        // Ahead of everything else on its CPU, since other load would be all that is seen.
        format!(
            "LD_LIBRARY_PATH={folder} OPENBLAS_NUM_THREADS=1 {kernel} chrt -f 10 {path} {how} {seconds}"
        )
    }

    /// The time of one part alone, us: what a tenth of the requests kept below.
    fn part_us(&self, kernel: &str, how: &str) -> Result<f64> {
        let done = output(Command::new("sh").args(["-c", &self.command(kernel, how, "1")]))?;
        let text = String::from_utf8_lossy(&done.stdout);
        let line = format!("quiet {how} ");
        let number =
            text.lines().find_map(|l| l.strip_prefix(&line)?.split(' ').next()?.parse().ok());
        number.with_context(|| {
            let told = String::from_utf8_lossy(&done.stderr);
            format!("the program does not tell its time ({}): {}", done.status, told.trim())
        })
    }
}

/// Times of the parts alone, us.
struct Parts {
    scalar: f64,
    on: f64,
    off: f64,
}

impl Parts {
    fn measure(load: &Load, program: &Program) -> Result<Parts> {
        Ok(Parts {
            scalar: program.part_us(load.on, "scalar")?,
            on: program.part_us(load.on, "wide")?,
            off: program.part_us(load.off, "wide")?,
        })
    }
}

/// The CPU as the probe finds it; `None` if it cannot measure here.
fn probe(turbolane: &Path, folder: &Path) -> Result<Option<CpuModel>> {
    const CANNOT: i32 = 77;
    let file = folder.join("machine.toml");
    let mut command = Command::new(turbolane);
    command.args(["probe", "--kernels", "scalar,256-fma,512-fma", "--active", "1"]);
    command.args(["--time", "20s", "--machine-file"]).arg(&file);
    let done = output(&mut command)?;
    if done.status.code() == Some(CANNOT) {
        return Ok(None);
    }
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = fs::read_to_string(&file).context("the probe wrote no machine file")?;
    CpuModel::from_toml(&text).map(Some).map_err(|error| anyhow::anyhow!("{error}"))
}

/// Change of a request's time without AVX-512, percent, as the simulator has it.
fn predict(model: &CpuModel, parts: &Parts) -> Result<f64> {
    let platform = Platform::new(model);
    let done_on = requests(&platform, InsnClass::Heavy512, parts.scalar, parts.on)?;
    let done_off = requests(&platform, InsnClass::Heavy256, parts.scalar, parts.off)?;
    Ok(100.0 * (done_on / done_off - 1.0))
}

/// Requests done in the simulated time. Each part has the cycles that it takes alone, at its
/// class's clock.
fn requests(platform: &Platform, class: InsnClass, scalar_us: f64, wide_us: f64) -> Result<f64> {
    let cycles = |class: InsnClass, us: f64| {
        let clock_khz = platform.clock_khz(platform.level_of(class, 1.0), 1);
        (us * f64::from(clock_khz) / 1e3) as u64
    };
    let (scalar, wide) = (cycles(InsnClass::Scalar, scalar_us), cycles(class, wide_us));
    let Some((_, name)) = InsnClass::ALL.iter().find(|(known, _)| *known == class) else {
        bail!("a class without a name");
    };
    let scenario = format!(
        r#"
        schema = 1
        name = "bursts"
        about = "Compression and wide bursts in turn, on one thread"
        machine = "xeon-6980p"
        duration_ns = 2_000_000_000
        warmup_ns = 100_000_000
        [code.kernel]
        class = "{name}"
        per_cycle = 1.0
        [[group]]
        name = "handler"
        tasks = 1
        work = "request"
        program = [
          {{ work = "scalar", cycles = {scalar} }},
          {{ work = "kernel", cycles = {wide} }},
          {{ done = true }},
        ]"#
    );
    let scenario = Scenario::from_toml(&scenario).map_err(|error| anyhow::anyhow!("{error}"))?;
    let workload = scenario.workload(None).context("it has no variants")?.clone();
    let policy = "fair".parse().map_err(|error| anyhow::anyhow!("{error}"))?;
    let options = Options {
        seed: 1,
        duration_ns: scenario.duration_ns,
        warmup_ns: scenario.warmup_ns,
        ..Options::default()
    };
    let run = simulate(platform, 1, workload, &policy, options, None);
    let run = run.map_err(|error| anyhow::anyhow!("{error}"))?;
    let group = run.outcome.group("handler").context("its only group")?;
    Ok(group.completed as f64)
}

/// What the machine says.
fn measure(turbolane: &Path, load: &Load, program: &Program) -> Result<VerifyReport> {
    let [a, b] = [load.on, load.off].map(|kernel| program.command(kernel, "place", SECONDS));
    let mut command = Command::new(turbolane);
    command.args(["verify", "--json", "--runs", RUNS, "--less", "--metric", "request {} us"]);
    let done = output(command.args(["--a", &a, "--b", &b]))?;
    // 1 and 77 are answers: worse, and that it cannot be told
    let told = || String::from_utf8_lossy(&done.stderr).into_owned();
    ensure!(matches!(done.status.code(), Some(0 | 1 | 77)), "{}", told());
    serde_json::from_slice(&done.stdout).with_context(told)
}
