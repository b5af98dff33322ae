// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that know nothing of the library: calls of marked functions run in a wide section, get
//! their arguments and return what they return, however the program was linked.

#[path = "../../preloaded/tests/common/mod.rs"]
mod common;
#[path = "../../hint/tests/common/mod.rs"]
mod daemon;

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use turbolane_hint::page::{CPU_SCALAR_LEAVES, MODE_AFFINITY};
use turbolane_hint::protocol::SOCKET_ENV;

use common::{cc, has_compiler, library, text};
use daemon::FakeDaemon;

/// What is preloaded.
const LIBRARY: &str = "libturbolane_marks.so";

/// Without a scheduler, whatever this machine has.
fn under(marks: &str, command: &mut Command) -> Output {
    served(Path::new("/nowhere"), marks, command)
}

/// With the scheduler that listens there.
fn served(socket: &Path, marks: &str, command: &mut Command) -> Output {
    command.env(SOCKET_ENV, socket).env("LD_PRELOAD", library(LIBRARY));
    command.env("TURBOLANE_MARKS", marks).output().unwrap()
}

/// How programs call a library's functions.
const LINKS: [(&str, &[&str]); 5] = [
    ("lazy", &["-Wl,-z,lazy"]),
    ("now", &["-Wl,-z,now", "-Wl,-z,relro"]),
    ("no-plt", &["-fno-plt", "-Wl,-z,lazy"]),
    ("no-pie", &["-no-pie", "-fno-pie", "-Wl,-z,lazy"]),
    ("no-pie-now", &["-no-pie", "-fno-pie", "-Wl,-z,now"]),
];

struct Programs(TempDir);

impl Programs {
    /// Two copies of the library with one name, a program for each way to link, and plugins.
    fn build() -> Option<Self> {
        if !has_compiler() {
            return None;
        }
        let programs = Programs(TempDir::new().unwrap());
        let vectors: &[&str] =
            if std::is_x86_feature_detected!("avx") { &["-mavx", "-mno-vzeroupper"] } else { &[] };
        let wide = "libwide.so.1";
        let soname = format!("-Wl,-soname,{wide}");
        let shared = ["-shared", "-fPIC", "-fexceptions"];
        programs.cc("wide.c", wide, &[&shared[..], &[&soname], vectors].concat());
        let rpath = format!("-Wl,-rpath,{}", programs.path().display());
        let linked = programs.path().join(wide).display().to_string();
        let linked = ["-fexceptions", &linked, &rpath];
        for (name, link) in LINKS {
            programs.cc("caller.c", name, &[&linked[..], link, vectors].concat());
        }
        for (name, link) in &LINKS[..3] {
            let name = format!("{name}.so");
            let plugin = [&["-DPLUGIN"], &shared[..], &linked, link, vectors].concat();
            programs.cc("caller.c", &name, &plugin);
        }
        Some(programs)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn cc(&self, source: &str, name: &str, arguments: &[&str]) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
        cc(&source, &self.path().join(name), arguments);
    }

    /// A program with all plugins.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.path().join(program));
        for (name, _) in &LINKS[..3] {
            command.arg(self.path().join(format!("{name}.so")));
        }
        command
    }
}

/// Functions that are marked in these tests.
const MARKED: [&str; 12] = [
    "plain", "many", "reals", "pair", "large", "extended", "variable", "errors", "outer", "jumps",
    "callers", "leaves",
];

/// What a program prints if the functions with these names run in sections: numbers that have room
/// for it are larger by OPEN.
fn printed(plain: &str, is_open: impl Fn(&str, usize) -> bool) -> String {
    let mut seen = std::collections::HashMap::<&str, usize>::new();
    let mut all = String::new();
    for line in plain.lines() {
        let (name, values) = line.split_once(' ').unwrap();
        let count = seen.entry(name).or_default();
        *count += 1;
        let mut values: Vec<String> = values.split(' ').map(str::to_string).collect();
        if is_open(name, *count) {
            let opens = if values.len() == 4 { 4 } else { 1 };
            for value in &mut values[..opens] {
                // the inner call runs in the outer one's section, and says so too
                let opens = if name == "outer" { 2e6 } else { 1e6 };
                let open = value.parse::<f64>().unwrap() + opens;
                let digits = if value.contains('.') { 2 } else { 0 };
                *value = format!("{open:.digits$}");
            }
        }
        all += &format!("{name} {}\n", values.join(" "));
    }
    all
}

#[test]
fn calls_run_in_sections() {
    let Some(programs) = Programs::build() else { return };
    let all: Vec<String> =
        MARKED.iter().chain(&["vectors"]).map(|name| format!("libwide.so.1:{name}@2")).collect();
    let by_path =
        all.join("\n").replace("libwide", &format!("{}/libwide", programs.path().display()));
    let file = programs.path().join("marks");
    std::fs::write(&file, &by_path).unwrap();
    for (program, _) in LINKS {
        let plain = programs.command(program).output().unwrap();
        assert!(plain.status.success(), "{program}: {}", text(&plain.stderr));
        let plain = text(&plain.stdout);
        // The first call of a lazy entry finds the function.
        let is_now = program.contains("now") || program == "no-plt";
        let lines = plain.lines().count() / 4;
        for marks in [all.join("; "), file.display().to_string()] {
            let output = under(&marks, &mut programs.command(program));
            assert!(
                output.status.success(),
                "{program}: {} {}",
                output.status,
                text(&output.stderr)
            );
            assert_eq!(text(&output.stderr), "");
            let out = text(&output.stdout);
            // the program, a lazy plugin, one that is bound when it is loaded, one without a PLT
            for (part, is_now) in [is_now, false, true, true].into_iter().enumerate() {
                let part_of = |text: &str| {
                    let lines = text.lines().skip(part * lines).take(lines);
                    lines.map(|line| format!("{line}\n")).collect::<String>()
                };
                let expected = printed(&part_of(&plain), |name, count| {
                    let first = if is_now { 1 } else { 2 };
                    match name {
                        "short" | "again" | "fibre" | "second" => true,
                        "after" | "errors" | "callers" | "other" | "closed" => false,
                        // the first call does not return, so that nothing is known after it; a
                        // section that is not returned from ends at the next marked call
                        "jumps" | "leaves" | "afterwards" => is_now,
                        _ => count >= first,
                    }
                });
                assert_eq!(part_of(&out), expected, "{program}, part {part}, {marks}");
            }
        }
    }
}

/// Marks of other files and functions, of lengths that are not reached, and none at all.
#[test]
fn other_calls_are_left_alone() {
    let Some(programs) = Programs::build() else { return };
    for program in ["lazy", "now"] {
        let plain = programs.command(program).output().unwrap();
        for marks in [
            "libother.so.1:plain@2;libwide.so:plain@2;/nowhere/libwide.so.1:plain@2",
            "libwide.so.1:plain@2,min-arg1=10",
            "libwide.so.1:plan@2",
        ] {
            let output = under(marks, &mut programs.command(program));
            assert_eq!(text(&output.stdout), text(&plain.stdout), "{program}, {marks}");
            assert_eq!(text(&output.stderr), "");
        }
        let output = under("libwide.so.1:plain@2,min-arg1=5", &mut programs.command(program));
        let expected = printed(&text(&plain.stdout), |name, count| match name {
            "plain" => count > 1 || program == "now",
            "again" | "fibre" => true,
            _ => false,
        });
        let (first, expected) = (text(&output.stdout), expected);
        let lines = first.lines().count() / 4;
        let part = |text: &str| text.lines().take(lines).map(str::to_string).collect::<Vec<_>>();
        assert_eq!(part(&first), part(&expected), "{program}");
    }
}

/// A function's first call finds it, and replaces the caller's entry, while other threads call
/// through that.
#[test]
fn first_calls_of_many_threads() {
    if !has_compiler() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/first_calls.c");
    let (library, program) = (folder.path().join("libfirst.so.1"), folder.path().join("program"));
    cc(&source, &library, &["-shared", "-fPIC", "-DLIBRARY", "-Wl,-soname,libfirst.so.1"]);
    let rpath = format!("-Wl,-rpath,{}", folder.path().display());
    let linked = library.display().to_string();
    cc(&source, &program, &[&linked, &rpath, "-pthread", "-Wl,-z,lazy"]);
    let marks: String = (0..30).map(|n| format!("libfirst.so.1:first{n}@2;")).collect();
    for _ in 0..20 {
        let output = under(&format!("{marks}report"), &mut Command::new(&program));
        assert_eq!(text(&output.stdout), "all\n", "{}", output.status);
        let said = text(&output.stderr);
        let found = said.lines().filter(|line| !line.ends_with(": 0 callers")).count();
        assert_eq!(found, 30, "{said}");
    }
}

#[test]
fn callers_are_reported() {
    let Some(programs) = Programs::build() else { return };
    let output = under("libwide.so.1:plain@2;x.so:y;report", &mut programs.command("now"));
    // the program and its three plugins
    let expected =
        "turbolane_marks: libwide.so.1:plain: 4 callers\nturbolane_marks: x.so:y: 0 callers\n";
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn nonsense_is_said_and_marks_nothing_fails() {
    let said = |marks: &str| {
        let output = under(marks, Command::new("sh").args(["-c", "echo ran"]));
        assert_eq!(text(&output.stdout), "ran\n");
        text(&output.stderr)
    };
    let why = said("libwide.so.1:plain@5");
    assert_eq!(
        why,
        "turbolane_marks: TURBOLANE_MARKS: \"5\" is not a licence level; give 1, 2 or 3. Nothing is marked.\n"
    );
    assert!(said("/nowhere").contains("neither marks (FILE:FUNCTION@LEVEL) nor a file"));
    assert!(said("").contains("neither marks"));
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("marks");
    std::fs::write(&file, vec![b'#'; 1 << 16]).unwrap();
    assert!(said(&file.display().to_string()).contains("more than 65536 bytes"));
    std::fs::write(&file, "# none\n").unwrap();
    assert!(said(&file.display().to_string()).contains("there is no mark"));
}

/// Programs that happen to be here run as ever, with marks of what they call most, which is what
/// the library calls, too: without a scheduler, and with one under which threads move themselves.
#[test]
fn other_programs_run() {
    let marks = "libc.so.6:malloc@2;libc.so.6:memcpy@2;libc.so.6:write@1;libc.so.6:printf@1;libc.so.6:strlen@1";
    let python = "import threading, ctypes, json, zlib\n\
                  w = [threading.Thread(target=lambda: zlib.compress(bytes(100000))) for _ in range(4)]\n\
                  [x.start() for x in w]; [x.join() for x in w]; print(json.dumps({'a': 1}))";
    let programs: [(&str, &[&str], &str); 3] = [
        ("python3", &["-c", python], "{\"a\": 1}\n"),
        ("sh", &["-c", "head -c 3000000 /dev/zero | xz -1 -T2 | xz -d | wc -c"], "3000000\n"),
        ("sqlite3", &[":memory:", "select 7;"], "7\n"),
    ];
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("hint.sock");
    let scheduler = FakeDaemon::start(&socket, MODE_AFFINITY, 64).unwrap();
    scheduler.set_cpus(|cpu| if cpu % 2 == 0 { 0 } else { 3 | CPU_SCALAR_LEAVES });
    for (program, arguments, expected) in programs {
        if Command::new(program).arg("--version").output().is_err() {
            println!("skipped (77): there is no {program}");
            continue;
        }
        for socket in [Path::new("/nowhere"), &socket] {
            let output = served(socket, marks, Command::new(program).args(arguments));
            let how = (socket, output.status, text(&output.stderr));
            assert_eq!(text(&output.stdout), expected, "{program}: {how:?}");
        }
    }
    assert!(!scheduler.requests.lock().unwrap().is_empty(), "no program asked the scheduler");
    scheduler.stop();
}
