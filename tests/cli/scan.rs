// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane scan` on libraries that are assembled here, and on this process's children.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::turbolane;

/// Of the library, as marks name it.
const BUILD: &str = ",build-id=0123456789abcdef";
/// A function that a mark can sit on, one that it cannot, and a scalar one.
const SOURCE: &str = "
.text
.globl heavy, single_step, scalar
.type heavy, @function
heavy:  push %rbx
1:      vmulps %zmm1, %zmm2, %zmm3
        dec %edi
        jne 1b
        pop %rbx
        vzeroupper
        ret
.size heavy, . - heavy
.type single_step, @function
single_step: vmulps %zmm1, %zmm2, %zmm3
        ret
.size single_step, . - single_step
.type scalar, @function
scalar: xor %eax, %eax
        ret
.size scalar, . - scalar
.section .note.GNU-stack, \"\", @progbits
";

fn library(folder: &Path) -> PathBuf {
    build(folder, SOURCE)
}

/// A library of this assembly.
pub(crate) fn build(folder: &Path, text: &str) -> PathBuf {
    let (source, library) = (folder.join("wide.s"), folder.join("libwide.so"));
    fs::write(&source, text).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-nostdlib", "-Wl,--build-id=0x0123456789abcdef01", "-o"])
        .args([&library, &source]);
    assert!(cc.status().unwrap().success());
    library
}

fn scan(arguments: &[&str], path: &Path) -> Output {
    turbolane().arg("scan").args(arguments).arg(path).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The report in full, with the folder cut out.
#[test]
fn the_report_shows_levels_and_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let library = library(folder.path());
    let output = scan(&[], &library);
    let shown = text(&output).replace(&format!("{}/", folder.path().display()), "");
    assert_eq!(
        shown,
        "\
libwide.so
  x86-64 shared object, 26 B of code, 3 functions, build id 0123456789abcdef01
  can reach level 2: 2 functions of level 1 and above, widest register zmm
  instructions: 2 heavy 512-bit
  coverage: 100.0 % of 2 wide instructions are in a known function (symbols
  100.0 %)
  vzeroupper is missing: 1 function can return with a dirty upper half

LEVEL  LASTING  WIDEST  HEAVY512  HEAVY256  DENSITY  SIZE  FUNCTION
    2        2  zmm            1         -     33 %  16 B  heavy
    2        2  zmm            1         -   (50 %)   7 B  single_step [no
                                                           vzeroupper]
"
    );
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(scan(&["--level", "3"], &library).status.code(), Some(0));
}

/// JSON has the schema number first and the same findings.
#[test]
fn json_has_the_findings() {
    let folder = tempfile::tempdir().unwrap();
    let shown = text(&scan(&["--json"], &library(folder.path())));
    assert!(shown.starts_with("{\"schema\":1,\"least_level\":1,\"files\":[{"), "{shown}");
    for part in [
        "\"name\":\"heavy\"",
        "\"license_level\":2",
        "\"build_id\":\"0123456789abcdef01\"",
        "\"loops\":1",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

/// The marks that are written are taken by `run`, and what it would refuse is a comment.
#[test]
fn marks_are_what_run_takes() {
    let folder = tempfile::tempdir().unwrap();
    let library = library(folder.path());
    let marks = folder.path().join("wide.marks");
    scan(&["--marks", marks.to_str().unwrap()], &library);
    let written = fs::read_to_string(&marks).unwrap();
    let path = library.canonicalize().unwrap();
    let lines: Vec<&str> = written.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, ["", &format!("{}:heavy@2", path.display())]);
    let refused = written.lines().find(|line| line.contains("single_step")).unwrap();
    assert!(refused.starts_with("# ") && refused.contains("single-stepping"), "{refused}");

    let mut run = turbolane();
    run.args(["run", "--check", "--machine", "../../tests/data/machines/skylake-sp", "--marks"]);
    let plan = text(&run.arg(&marks).output().unwrap());
    assert!(plan.contains("heavy@2 at +0x"), "{plan}");

    // Stripped of its names, it is marked by offset, for this build.
    let unwound = SOURCE.replace("push %rbx", ".cfi_startproc\n push %rbx");
    build(folder.path(), &unwound.replace(".size heavy", ".cfi_endproc\n.size heavy"));
    let strip = ["--strip-all", "--remove-section=.dynsym", "--remove-section=.gnu.hash"];
    assert!(Command::new("objcopy").args(strip).arg(&library).status().unwrap().success());
    scan(&["--marks", marks.to_str().unwrap()], &library);
    let written = fs::read_to_string(&marks).unwrap();
    let mut marks = written.lines().filter(|line| !line.starts_with('#'));
    let is_for_build = |line: &str| line.contains("libwide.so:+0x") && line.contains(BUILD);
    assert!(marks.any(is_for_build), "{written}");
    let plan = text(&run.output().unwrap());
    assert!(plan.contains("function@2 at +0x"), "{plan}\n{written}");
}

/// A function that no mark can sit on is reached by marks at its callers, if these are known; the
/// report says how many are reached.
#[test]
fn marks_are_at_callers_too() {
    let heavy = "vmulps %zmm1, %zmm2, %zmm3\n vzeroupper\n ret\n";
    let source = format!(
        ".text
        .globl one, two, seen
        kernel: {heavy} .size kernel, . - kernel
        one: push %rbx\n call kernel\n pop %rbx\n ret\n .size one, . - one
        two: mov $1, %eax\n jmp kernel\n .size two, . - two
        seen: {heavy} .size seen, . - seen
        .type kernel, @function\n .type one, @function
        .type two, @function\n .type seen, @function
        .section .note.GNU-stack, \"\", @progbits\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let library = build(folder.path(), &source);
    let marks = folder.path().join("wide.marks");
    let report = text(&scan(&["--marks", marks.to_str().unwrap()], &library));
    assert!(
        report.contains("marks: 1 of 2 functions of level 1 and above (1 by callers)"),
        "{report}"
    );
    let written = fs::read_to_string(&marks).unwrap();
    let path = library.canonicalize().unwrap().display().to_string();
    let placed: Vec<&str> = written.lines().filter(|line| line.starts_with('/')).collect();
    let expected = ["one", "two"].map(|name| format!("{path}:{name}@2  # calls kernel"));
    assert_eq!(placed, expected);
    let lines = ["# kernel: by the marks at 2 callers", "; not all callers are known: other files"];
    for (name, what) in ["kernel", "seen"].iter().zip(lines) {
        let line = written.lines().find(|line| line.contains(&format!("# {name}: "))).unwrap();
        assert!(line.contains(what), "{line}");
    }

    let json = text(&scan(&["--json", "--marks", marks.to_str().unwrap()], &library));
    let share = "\"marks\":{\"functions\":2,\"at_entry\":0,\"inside\":0,\"by_callers\":1,\
        \"callers\":2,\"markable_pct\":50.0}";
    assert!(json.contains(share), "{json}");
    assert!(text(&scan(&["--json"], &library)).contains("\"marks\":null"));
}

/// A stripped file's functions have the names that its debug file says.
#[test]
fn names_come_from_debug_files() {
    let folder = tempfile::tempdir().unwrap();
    let library =
        build(folder.path(), &SOURCE.replace("scalar\n.type", "scalar\n.hidden heavy\n.type"));
    let objcopy = |arguments: &[&str]| {
        let mut objcopy = Command::new("objcopy");
        assert!(objcopy.current_dir(&folder).args(arguments).status().unwrap().success());
    };
    fs::create_dir(folder.path().join(".debug")).unwrap();
    objcopy(&["--only-keep-debug", "libwide.so", ".debug/libwide.debug"]);
    objcopy(&["--strip-all", "--add-gnu-debuglink=.debug/libwide.debug", "libwide.so"]);
    let shown = text(&scan(&[], &library));
    assert!(shown.contains("B  heavy\n") && shown.contains("debug file"), "{shown}");
    fs::write(folder.path().join(".debug/libwide.debug"), "rubbish").unwrap();
    let shown = text(&scan(&[], &library));
    assert!(!shown.contains("B  heavy\n"), "{shown}");
}

/// Servers are asked for the debug file of the build, if the user wants that and a client is there.
#[test]
fn names_come_from_servers() {
    let folder = tempfile::tempdir().unwrap();
    let source = SOURCE.replace("scalar\n.type", "scalar\n.hidden heavy\n.type");
    let library = build(folder.path(), &source);
    let objcopy = |arguments: &[&str]| {
        let mut objcopy = Command::new("objcopy");
        assert!(objcopy.current_dir(&folder).args(arguments).status().unwrap().success());
    };
    objcopy(&["--only-keep-debug", "libwide.so", "from-server"]);
    objcopy(&["--strip-all", "libwide.so"]);
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let asked = |servers: &str| {
        let mut scan = turbolane();
        scan.env("PATH", &bin).env("DEBUGINFOD_URLS", servers);
        scan.args(["scan", "--debuginfod"]).arg(&library).output().unwrap()
    };
    let refused = asked("");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let refused = asked("http://localhost:1");
    assert_eq!(refused.status.code(), Some(77), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("debuginfod-find"), "{refused:?}");

    let debug_file = folder.path().join("from-server");
    let script = format!(
        "#!/bin/sh\n[ \"$1 $2\" = 'debuginfo 0123456789abcdef01' ] && echo {}\n",
        debug_file.display()
    );
    let client = bin.join("debuginfod-find");
    fs::write(&client, script).unwrap();
    fs::set_permissions(&client, fs::Permissions::from_mode(0o755)).unwrap();
    let shown = text(&asked("http://localhost:1"));
    assert!(shown.contains("B  heavy\n") && shown.contains("debug file"), "{shown}");
    let shown = text(&scan(&[], &library));
    assert!(!shown.contains("B  heavy\n"), "asked without being told to: {shown}");
}

/// A wheel's libraries are scanned, named and in a folder; a damaged one is refused.
#[test]
fn wheels_are_opened() {
    let folder = tempfile::tempdir().unwrap();
    library(folder.path());
    let wheel = folder.path().join("wide.whl");
    let pack = "import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED) as wheel:
    wheel.write('libwide.so', 'wide/_core.so')
    wheel.writestr('wide/__init__.py', 'print()')";
    let mut python = Command::new("python3");
    let packed = python.current_dir(&folder).args(["-c", pack]).arg(&wheel).status();
    if !packed.is_ok_and(|status| status.success()) {
        return eprintln!("skipped (77): no python3 to make a wheel with");
    }
    fs::remove_file(folder.path().join("libwide.so")).unwrap();
    let marks = folder.path().join("wide.marks");
    let output = scan(&["--marks", marks.to_str().unwrap()], &wheel);
    let shown = text(&output).replace(&format!("{}/", folder.path().display()), "");
    assert!(shown.starts_with("wide.whl(wide/_core.so)\n"), "{shown}");
    assert!(shown.contains("can reach level 2: 2 functions"), "{shown}");
    assert!(shown.contains("passed over: 1 no ELF files"), "{shown}");
    assert!(fs::read_to_string(&marks).unwrap().contains("neither a program nor a library"));
    fs::copy(&wheel, folder.path().join("other.zip")).unwrap();
    fs::remove_file(folder.path().join("wide.s")).unwrap();
    fs::remove_file(&marks).unwrap();
    let below = text(&scan(&[], folder.path()));
    assert!(below.contains("1 file, 1 with 2 functions"), "the zip file stays closed: {below}");

    let bytes = fs::read(&wheel).unwrap();
    fs::write(&wheel, &bytes[..bytes.len() / 2]).unwrap();
    let refused = scan(&[], &wheel);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(error.contains("it is broken: "), "{error}");
}

/// In another root, paths and links begin there; what it has not is an error, though this system
/// may have it.
#[test]
fn another_root_is_scanned() {
    let root = tempfile::tempdir().unwrap();
    library(root.path());
    std::os::unix::fs::symlink("/libwide.so", root.path().join("link.so")).unwrap();
    let arguments = ["--root", root.path().to_str().unwrap()];
    let shown = text(&scan(&arguments, Path::new("/link.so")));
    assert!(shown.contains("can reach level 2: 2 functions"), "{shown}");
    let shown = text(&scan(&arguments, Path::new("/")));
    assert!(shown.contains("1 file, 1 with 2 functions"), "{shown}");
    let refused = scan(&arguments, Path::new("/proc/self/exe"));
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(error.contains("cannot scan /proc/self/exe in") && error.contains("No such file"));
}

/// Folders: what is no ELF file is counted, links are not followed, archives are opened.
#[test]
fn folders_are_walked() {
    let folder = tempfile::tempdir().unwrap();
    let library = library(folder.path());
    let below = folder.path().join("below");
    fs::create_dir(&below).unwrap();
    std::os::unix::fs::symlink(&library, below.join("link.so")).unwrap();
    std::os::unix::fs::symlink("..", below.join("circle")).unwrap();
    let mut foreign = fs::read(&library).unwrap();
    foreign[18] = 183; // AArch64
    fs::write(below.join("foreign.so"), foreign).unwrap();
    fs::write(below.join("empty"), "").unwrap();
    let output = scan(&[], folder.path());
    let last = text(&output).lines().last().unwrap().to_string();
    assert_eq!(
        text(&output)
            .lines()
            .rev()
            .take(2)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
            .join(" "),
        "1 file, 1 with 2 functions of level 1 and above; passed over: 2 no ELF files, 1 for other CPUs",
        "{last}"
    );
    assert_eq!(output.status.code(), Some(1));
}

/// A folder with several files: the files first, with who maps them; functions on request; JSON as
/// one document, or as one for each file.
#[test]
fn folders_are_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    let library = library(folder.path());
    let copy = folder.path().join("copy.so");
    fs::copy(&library, &copy).unwrap();
    let mut child = sleeper(&library);
    let summary = text(&scan(&[], folder.path()));
    let lines = text(&scan(&["--json-lines"], folder.path()));
    let json = text(&scan(&["--json"], folder.path()));
    child.kill().unwrap();
    child.wait().unwrap();
    let rows: Vec<&str> = summary.lines().collect();
    assert_eq!(rows[0], "REACHES  LASTING  LEVEL 2+  LEVEL 1+  FILE");
    assert!(rows[1].starts_with("      2        2         2         2  /"), "{summary}");
    let flat = summary.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(&format!("{} [mapped by ", library.display())), "{summary}");
    assert!(!flat.contains(&format!("{} [mapped", copy.display())), "{summary}");
    assert!(flat.contains("2 files, 2 with 4 functions of level 1 and above"), "{summary}");
    assert!(flat.ends_with("--details lists the functions of each file."), "{summary}");
    assert!(!summary.contains("single_step"), "{summary}");

    let files: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((files.len(), document["files"].as_array().unwrap().len()), (2, 2));
    for (line, file) in files.iter().zip(document["files"].as_array().unwrap()) {
        assert_eq!((&line["schema"], &line["listed"]), (&1.into(), &file["listed"]));
        let is_mapped = line["path"] == library.display().to_string();
        assert_eq!(line["mapped_by"].as_array().unwrap().len(), usize::from(is_mapped), "{line}");
    }
    // --top is of files in the summary, and of functions in the details
    let one = text(&scan(&["--top", "1"], folder.path()));
    assert!(one.contains("1 more; --top 0 lists all"), "{one}");
    let details = text(&scan(&["--details", "--top", "1"], folder.path()));
    assert_eq!(details.matches("1 more; --top 0 lists all").count(), 2, "{details}");
    assert_eq!(text(&scan(&["--details"], folder.path())).matches("single_step").count(), 2);
}

/// A process that sleeps, with this library loaded; none if the path is empty.
fn sleeper(library: &Path) -> Child {
    let mut sleep = Command::new("sleep");
    sleep.arg("60").stdin(Stdio::null()).stdout(Stdio::null()).env("LD_PRELOAD", library);
    let child = sleep.spawn().unwrap();
    // Until it has become the program, and the loader has mapped its libraries: comm changes before
    // that.
    let maps = format!("/proc/{}/maps", child.id());
    while !fs::read_to_string(&maps).unwrap().contains("/libc.so.6") {
        std::thread::yield_now();
    }
    child
}

/// Live processes: their program and libraries, each once; their memory, where this user may read
/// it.
#[test]
fn processes_are_scanned() {
    let mut children = [sleeper(Path::new("")), sleeper(Path::new(""))];
    let pids = children.each_ref().map(|child| child.id().to_string());
    let scan = ["scan", "--level", "0", "--json", "--jit", "--pid"];
    let output = turbolane().args(scan).args(&pids).output().unwrap();
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let shown = text(&output);
    for file in ["sleep", "libc.so.6"] {
        assert_eq!(shown.matches(&format!("/{file}\"")).count(), 1, "{file}: {shown}");
    }
    let after = turbolane().args(["scan", "--pid", &pids[0]]).output().unwrap();
    assert_eq!(after.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&after.stderr).contains("there is no such process"));
}
