// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions from C and C++: on folders that serve as machines, and on this one; with symbol
//! versions; under valgrind where it is installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Cargo leaves the libraries beside this test.
fn built(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join(name)
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    output
}

fn text_of(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The shared library with symbol versions, as turbolane.map says it is made.
fn versioned_library(folder: &Path) -> PathBuf {
    let library = folder.join("libturbolane.so.0");
    let map = package().join("turbolane.map");
    let mut command = Command::new("cc");
    command.args(["-shared", "-Wl,-soname,libturbolane.so.0", "-Wl,--gc-sections", "-o"]);
    command.arg(&library).arg(format!("-Wl,--version-script={}", map.display()));
    command.arg("-Wl,--whole-archive").arg(built("libturbolane.a"));
    succeed(command.args(["-Wl,--no-whole-archive", "-lpthread", "-ldl"]));
    library
}

/// An example.
fn compile(source: &str, folder: &Path, library: &Path) -> PathBuf {
    compile_from("examples/c", source, folder, library)
}

fn compile_from(place: &str, source: &str, folder: &Path, library: &Path) -> PathBuf {
    let program = folder.join(source.replace('.', "-"));
    let compiler = if source.ends_with(".cpp") { "c++" } else { "cc" };
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-g", "-I"]);
    command.arg(package().join("../../include"));
    command.arg(package().join(place).join(source)).arg("-o").arg(&program);
    command.arg(library).arg(format!("-Wl,-rpath,{}", folder.display()));
    succeed(command.args(["-lpthread", "-ldl"]));
    program
}

fn machine(name: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    pstate::fake::build(name, root.path()).unwrap();
    root
}

/// The C program boosts on a machine that has P-states, runs on one that has none, and leaves both
/// as they were; linked statically and against the library with versions.
#[test]
fn c_programs_run() {
    let folder = tempfile::tempdir().unwrap();
    let shared = versioned_library(folder.path());
    for library in [&shared, &built("libturbolane.a")] {
        let program = compile("session.c", folder.path(), library);
        let root = machine("intel-pstate-gold-6130");
        let before = pstate::fake::contents(root.path()).unwrap();
        let text = text_of(&succeed(Command::new(&program).arg(root.path())));
        assert!(text.starts_with("way 2: limits: cpufreq driver intel_pstate"), "{text}");
        assert!(text.contains("boost: success\n") && text.contains("runs: 1\n"), "{text}");
        assert!(text.ends_with("again: the session is closed\n"), "{text}");
        assert_eq!(pstate::fake::contents(root.path()).unwrap(), before);
        // an empty machine has no CPU: refused, in words
        let empty = tempfile::tempdir().unwrap();
        let output = Command::new(&program).arg(empty.path()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.starts_with("tl_open: "), "{error}");
    }
}

/// A model in the machine's place is for Rust programs and tests: its number opens nothing from C.
#[test]
fn c_programs_cannot_open_a_model() {
    const MODEL: i32 = pstate::Way::Simulated as i32;
    let mut session = std::ptr::null_mut();
    // SAFETY: a string and a place for the handle.
    let error = unsafe { turbolane::tl_open(c"fx-8120".as_ptr(), MODEL, &raw mut session) };
    assert_eq!(error, -libc::EINVAL);
    assert!(session.is_null());
}

/// The C++ program sees the frequencies, and its handle closes itself.
#[test]
fn cpp_programs_run() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("session.cpp", folder.path(), &versioned_library(folder.path()));
    let root = machine("msr-i7-4770");
    let before = pstate::fake::contents(root.path()).unwrap();
    let text = text_of(&succeed(Command::new(&program).arg(root.path())));
    assert_eq!(text, "speeds: 800000 3400000 3900000\nboost: success\n");
    assert_eq!(pstate::fake::contents(root.path()).unwrap(), before);
}

/// A thread that is to be cancelled is not cancelled inside of the library, where no unwinding may
/// begin: glibc's would end the process.
#[test]
fn a_cancelled_thread_sets_its_frequency() {
    let folder = tempfile::tempdir().unwrap();
    let library = built("libturbolane.a");
    let program = compile_from("tests", "cancelled.c", folder.path(), &library);
    for name in ["intel-pstate-gold-6130", "msr-i7-4770"] {
        let root = machine(name);
        let text = text_of(&succeed(Command::new(&program).arg(root.path())));
        assert_eq!(text, "boost 0, restore 0, cancelled\n", "{name}");
    }
}

/// Every exported function carries a version, and the map names every function of the header.
#[test]
fn symbols_have_versions() {
    let folder = tempfile::tempdir().unwrap();
    let library = versioned_library(folder.path());
    let symbols = text_of(&succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(library)));
    let mut exported: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.split(' ').next_back()?.strip_suffix("@@TURBOLANE_1.0"))
        .collect();
    exported.sort();
    assert_eq!(exported, functions_of_the_header());
    let others = symbols.lines().filter(|line| !line.contains("TURBOLANE_1.0"));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&str>::new());
}

/// The shared library has the name that its users look for, and exports its functions only.
#[test]
fn shared_library_exports_the_abi_only() {
    let tool = |name: &str, args: &[&str]| {
        let output = succeed(Command::new(name).args(args).arg(built("libturbolane.so")));
        String::from_utf8(output.stdout).unwrap()
    };
    let symbols = tool("nm", &["-D", "--defined-only"]);
    let mut names: Vec<_> =
        symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
    names.sort();
    assert_eq!(names, functions_of_the_header());
    assert!(tool("readelf", &["-d"]).contains("Library soname: [libturbolane.so.0]"));
}

/// Every function has a manual page, which names each of its errors.
#[test]
fn functions_have_manual_pages() {
    let names = functions_of_the_header();
    assert!(names.len() > 25, "{names:?}");
    for name in names {
        let path = package().join(format!("../../docs/man/{name}.3"));
        let page = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        assert!(page.contains(&name), "{path:?} is about {name}");
    }
}

/// Names of the functions in the header, sorted.
fn functions_of_the_header() -> Vec<String> {
    let header = std::fs::read_to_string(package().join("../../include/turbolane.h")).unwrap();
    let mut names: Vec<String> = header
        .lines()
        .filter(|line| {
            let types = ["int tl_", "const char *tl_", "unsigned long long tl_"];
            types.iter().any(|begin| line.starts_with(begin))
        })
        .filter_map(|line| Some(line[line.find("tl_")?..].split('(').next()?.to_string()))
        .collect();
    names.sort();
    names
}

/// The pkg-config file is one: filled in, it names the library.
#[test]
fn pkg_config_file_is_complete() {
    let text = std::fs::read_to_string(package().join("turbolane.pc.in")).unwrap();
    let filled = text
        .replace("@prefix@", "/usr")
        .replace("@libdir@", "${prefix}/lib")
        .replace("@version@", env!("CARGO_PKG_VERSION"));
    assert!(!filled.contains('@'));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("turbolane.pc"), filled).unwrap();
    let mut command = Command::new("pkg-config");
    command.args(["--libs", "turbolane"]).env("PKG_CONFIG_PATH", folder.path());
    // Not every machine has the tool; the file was looked at above.
    if let Ok(output) = command.output() {
        assert!(text_of(&output).contains("-lturbolane"), "{output:?}");
    }
}

/// No invalid access, no lost memory, no leaked descriptor, where valgrind is installed.
#[test]
fn valgrind_finds_nothing() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("valgrind is not installed: nothing was checked");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compile("session.c", folder.path(), &versioned_library(folder.path()));
    let root = machine("acpi-cpufreq-fx-8120");
    let mut command = Command::new("valgrind");
    command.args([
        "-q",
        "--error-exitcode=9",
        "--leak-check=full",
        "--child-silent-after-fork=yes",
    ]);
    command.args(["--errors-for-leak-kinds=definite,indirect,possible"]);
    let text = text_of(&succeed(command.arg(program).arg(root.path())));
    assert!(text.contains("boost: success"), "{text}");
}
