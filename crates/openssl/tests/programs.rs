// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that know nothing of the library: encryption, and nothing else, runs in a wide section,
//! and each caller reaches the OpenSSL that it was linked against.

#[path = "../../preloaded/tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use common::{cc, has_compiler, library, text};

/// What is preloaded.
const LIBRARY: &str = "libturbolane_openssl.so";

/// Libraries in OpenSSL's place.
const COPIES: u32 = 4;

fn under(hints: Option<&str>, command: &mut Command) -> Output {
    command.env("LD_PRELOAD", library(LIBRARY));
    match hints {
        Some(hints) => command.env("TURBOLANE_OPENSSL", hints),
        None => command.env_remove("TURBOLANE_OPENSSL"),
    };
    command.output().unwrap()
}

/// `program` is linked against copy 1, `pluginN.so` against copy N. Copies 1 to 3 have versions as
/// OpenSSL has them, the last has none; 1 and 3 have the same.
struct Programs(TempDir);

impl Programs {
    fn build() -> Option<Self> {
        if !has_compiler() {
            return None;
        }
        let programs = Programs(TempDir::new().unwrap());
        // Calls inside of a library stay there, as in OpenSSL.
        let shared = ["-shared", "-fPIC", "-Wl,-Bsymbolic"];
        for (copy, version) in [(1, "3.0.0"), (2, "1_1_0"), (3, "3.0.0"), (4, "")] {
            let script = match version {
                "" => "{ global: *; };".into(),
                version => format!("OPENSSL_{version} {{ global: EVP_*; local: *; }};"),
            };
            let script_file = programs.path().join("versions");
            std::fs::write(&script_file, script).unwrap();
            let script = format!("-Wl,--version-script={}", script_file.display());
            let (number, name) = (format!("-DCOPY={copy}"), format!("libcrypto.so.{copy}"));
            let soname = format!("-Wl,-soname,{name}");
            programs.cc("crypto.c", &name, &[&shared[..], &[&number, &soname, &script]].concat());
        }
        let rpath = format!("-Wl,-rpath,{}", programs.path().display());
        for copy in 1..=COPIES {
            let crypto = programs.path().join(format!("libcrypto.so.{copy}")).display().to_string();
            let plugged = ["-DPLUGIN", &crypto, &rpath];
            let plugin = format!("plugin{copy}.so");
            programs.cc("caller.c", &plugin, &[&shared[..], &plugged].concat());
        }
        let crypto = programs.path().join("libcrypto.so.1").display().to_string();
        programs.cc("caller.c", "program", &[&crypto, &rpath]);
        // The same without an OpenSSL of its own: nothing is global then.
        programs.cc("caller.c", "host", &["-DHOST"]);
        Some(programs)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn cc(&self, source: &str, name: &str, arguments: &[&str]) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
        cc(&source, &self.path().join(name), arguments);
    }

    /// The program with all plugins, the first one twice.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.path().join(program));
        for copy in (1..=COPIES).chain([1]) {
            command.arg(self.path().join(format!("plugin{copy}.so")));
        }
        command
    }
}

/// What a caller with this copy prints, if calls of 512 bytes, and shorter ones, open a section or
/// not.
fn printed(copy: u32, bulk: bool, short: bool) -> String {
    let (copy, bulk, short) =
        (copy * 10, copy * 10 + u32::from(bulk), copy * 10 + u32::from(short));
    format!(
        "cipher {bulk} written 5000 encrypt {bulk} decrypt {bulk} tls12 {bulk} header {bulk} short {short} \
         negative {copy}\n"
    )
}

/// Each caller reaches what it reaches without us.
#[test]
fn calls_open_sections() {
    let Some(programs) = Programs::build() else { return };
    for program in ["program", "host"] {
        let plain = programs.command(program).output().unwrap();
        assert!(plain.status.success(), "{}", text(&plain.stderr));
        let copies: Vec<u32> = text(&plain.stdout).lines().map(copy).collect();
        // 2 is its own, or the versions were not in force; 3 is its own where nothing is global.
        assert_eq!(copies[copies.len() - 4], 2);
        assert_eq!(copies[copies.len() - 3], if program == "host" { 3 } else { 1 });
        for (hints, bulk, short) in
            [(Some("2"), true, true), (Some("1,512"), true, false), (None, false, false)]
        {
            let output = under(hints, &mut programs.command(program));
            assert!(output.status.success(), "{}", text(&output.stderr));
            let expected: String = copies.iter().map(|&copy| printed(copy, bulk, short)).collect();
            assert_eq!(text(&output.stdout), expected, "{program}, hints {hints:?}");
        }
    }
}

/// The copy that a line's calls reached.
fn copy(line: &str) -> u32 {
    let number: u32 = line.split(' ').nth(1).unwrap().parse().unwrap();
    number / 10
}

#[test]
fn nonsense_is_said_and_opens_nothing() {
    let Some(programs) = Programs::build() else { return };
    let output = under(Some("5"), &mut Command::new(programs.path().join("program")));
    assert_eq!(text(&output.stdout), printed(1, false, false));
    assert_eq!(
        text(&output.stderr),
        "turbolane_openssl: TURBOLANE_OPENSSL: \"5\" is not a licence level; give 1, 2 or 3. No wide section is opened.\n"
    );
}

/// The real one: what it makes of its input is the same, whatever the hints, and nothing is said.
#[test]
fn openssl_encrypts_as_ever() {
    let real = Path::new("/usr/lib/x86_64-linux-gnu/libcrypto.so.3");
    if !real.exists() || Command::new("cc").arg("--version").output().is_err() {
        println!("skipped (77): {} and cc are needed", real.display());
        return;
    }
    let folder = TempDir::new().unwrap();
    let programs = Programs(folder);
    programs.cc("encrypt.c", "encrypt", &[&real.display().to_string()]);
    let command = || Command::new(programs.path().join("encrypt"));
    let plain = command().output().unwrap();
    assert!(plain.status.success(), "{}", plain.status);
    for hints in [None, Some("2"), Some("1,1")] {
        let output = under(hints, &mut command());
        assert!(output.status.success(), "hints {hints:?}: {}", output.status);
        assert_eq!(text(&output.stderr), "");
        assert_eq!(text(&output.stdout), text(&plain.stdout));
    }
}
