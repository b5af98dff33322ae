// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of docs/experiments: they build, give their parts, and do the same work in each
//! form of their kernel. Skipped where the libraries that they compare are not installed.

#[path = "../../hint/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::FakeDaemon;
use turbolane::page::{CPU_SCALAR_LEAVES, MODE_AFFINITY};

/// A load, the header and the library that it needs, and the package that has them.
const LOADS: [(&str, &str, &str, &str); 2] = [
    ("wide", "cblas.h", "-lopenblas", "libopenblas-dev"),
    ("web", "openssl/evp.h", "-lcrypto", "libssl-dev"),
];
const PARTS: [&str; 3] = ["scalar", "wide", "request"];

fn experiments() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/experiments")
}

/// A program, in a folder of its own.
struct Load {
    folder: tempfile::TempDir,
    /// Assignments of the script: how the library is told which form to take.
    forms: BTreeMap<String, String>,
}

impl Load {
    /// `None` where a library is missing, which is told.
    fn build(name: &str) -> Option<Load> {
        let (_, header, library, package) = LOADS.into_iter().find(|load| load.0 == name).unwrap();
        if !has_header(header) || !has_header("zlib.h") {
            eprintln!("skipped: {header} or zlib.h is missing; apt install {package} zlib1g-dev");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        // Cargo leaves the library beside this test; programs ask for it by its own name.
        let built = std::env::current_exe().unwrap().with_file_name("libturbolane.so");
        let link = folder.path().join("libturbolane.so.0");
        std::os::unix::fs::symlink(built, &link).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-I"])
            .arg(experiments().join("../../include"));
        cc.arg(experiments().join(format!("{name}-bursts.c")));
        cc.arg("-o").arg(folder.path().join("program")).arg(link).args([library, "-lz"]);
        cc.arg(format!("-Wl,-rpath,{}", folder.path().display()));
        let done = cc.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Some(Load { folder, forms: forms(name) })
    }

    fn run(&self, how: &str, form: Option<&str>) -> Output {
        let mut command = Command::new(self.folder.path().join("program"));
        command.args([how, "0.1"]).env("OPENBLAS_NUM_THREADS", "1");
        command.env(turbolane::protocol::SOCKET_ENV, self.folder.path().join("hint.sock"));
        if let Some(form) = form {
            let (variable, value) = self.forms[form].split_once('=').unwrap();
            command.env(variable, value.trim_matches('\''));
        }
        command.output().unwrap()
    }

    /// What stands behind these words in its output.
    fn told(&self, how: &str, form: Option<&str>) -> BTreeMap<String, String> {
        let done = self.run(how, form);
        let text = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{how}: {}", String::from_utf8_lossy(&done.stderr));
        let words: Vec<&str> = text.lines().flat_map(|line| line.split(' ')).collect();
        let after = |at: usize| {
            let is_quiet = at > 0 && words[at - 1] == "quiet";
            let key = if is_quiet { format!("quiet {}", words[at]) } else { words[at].into() };
            (key, words.get(at + 1).copied().unwrap_or_default().to_string())
        };
        (0..words.len()).map(after).collect()
    }
}

fn has_header(name: &str) -> bool {
    let include = format!("echo '#include <{name}>' | cc -E -");
    let mut shell = Command::new("sh");
    shell.args(["-c", &include]).stdout(Stdio::null()).stderr(Stdio::null());
    shell.status().unwrap().success()
}

/// The lines `wide="..."`, `narrow="..."` and `plain="..."` of the script for that load.
fn forms(load: &str) -> BTreeMap<String, String> {
    let script = std::fs::read_to_string(experiments().join("bursts.sh")).unwrap();
    let (_, arm) = script.split_once(&format!("\n{load})\n")).unwrap();
    let (arm, _) = arm.split_once(";;").unwrap();
    let assignment = |line: &str| {
        let (name, value) = line.trim().split_once("=\"")?;
        Some((name.to_string(), value.strip_suffix('"')?.to_string()))
    };
    arm.lines().filter_map(assignment).collect()
}

/// Each part is timed, over so many requests that medians mean something; without a scheduler
/// everything runs on the caller's thread; what is no way to run it is refused.
#[test]
fn programs_give_their_parts() {
    for load in LOADS.map(|load| load.0) {
        let Some(program) = Load::build(load) else { continue };
        for how in ["place", "hint", "delegate", "expect", "scalar", "wide"] {
            let told = program.told(how, None);
            let number = |key: &str| told[key].parse::<f64>().unwrap();
            assert!(number("requests") >= 50.0 && number("delegated") == 0.0, "{load}: {told:?}");
            for part in PARTS {
                let (median, quiet) = (number(part), number(&format!("quiet {part}")));
                assert!(median >= quiet && quiet > 0.0, "{load} {how}: {told:?}");
            }
        }
        for how in ["plac", "", "scalar wide"] {
            let refused = program.run(how, None);
            assert_eq!(refused.status.code(), Some(2), "{load}: {refused:?}");
            assert!(String::from_utf8_lossy(&refused.stderr).contains("usage:"), "{refused:?}");
        }
    }
}

/// With one scalar CPU and a daemon that says so, bursts are handed to a helper, and compute there
/// what they compute here.
#[test]
fn bursts_are_handed_over() {
    let cpus: Vec<usize> = hw::task::get_affinity(std::process::id()).unwrap().iter().collect();
    let [scalar, _, ..] = cpus[..] else {
        return eprintln!("skipped: one CPU");
    };
    for load in LOADS.map(|load| load.0) {
        let Some(program) = Load::build(load) else { continue };
        let here = program.told("place", None)["result"].clone();
        let socket = program.folder.path().join("hint.sock");
        let daemon = FakeDaemon::start(&socket, MODE_AFFINITY, 64).unwrap();
        daemon.set_cpus(|cpu| if cpu == scalar { 0 } else { 3 | CPU_SCALAR_LEAVES });
        // On a loaded machine the daemon's thread may need more than the library's patience.
        let told = (0..8).map(|_| program.told("delegate", None));
        let handed_over = told.into_iter().find(|told| told["delegated"] != "0");
        assert_eq!(handed_over.expect("none was handed over")["result"], here, "{load}");
        daemon.stop();
    }
}

/// The forms that the script asks for do the same work, and OpenSSL takes the bits of AVX-512, then
/// of AVX2, away.
#[test]
fn forms_do_the_same_work() {
    let has_all = std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512vl");
    for load in LOADS.map(|load| load.0) {
        let Some(program) = Load::build(load) else { continue };
        // Made to, OpenBLAS runs into an illegal instruction.
        let able: &[&str] = if has_all { &["wide", "narrow", "plain"] } else { &["plain"] };
        let told: Vec<_> = able.iter().map(|form| program.told("place", Some(form))).collect();
        assert!(told.iter().all(|one| one["result"] == told[0]["result"]), "{load}: {told:?}");
        let forms: Vec<&String> = told.iter().map(|one| &one["form"]).collect();
        assert!(forms.windows(2).all(|pair| pair[0] != pair[1]), "{load}: {forms:?}");
        if load == "web" && has_all {
            // OPENSSL_ia32cap=0x...:0x..., the second of it leaf 7: EBX below ECX
            let leaf_7 = |form: &&String| {
                let (_, second) = form.rsplit_once(":0x").unwrap();
                u64::from_str_radix(second, 16).unwrap()
            };
            let bits: Vec<u64> = forms.iter().map(leaf_7).collect();
            let [f, dq, ifma, bw, vl, avx2] = [16, 17, 21, 30, 31, 5].map(|bit| 1u64 << bit);
            let avx512 = f | dq | ifma | bw | vl;
            assert_eq!(bits[1], bits[0] & !avx512, "{bits:x?}");
            assert_eq!(bits[2], bits[1] & !avx2, "{bits:x?}");
            // F may be gone before: OpenSSL hides it on family 6, model 55h.
            assert!(bits[0] & vl != 0 && bits[1] & avx2 != 0, "{bits:x?}");
        }
    }
}
