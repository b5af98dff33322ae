// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small files that are made to take much time or memory, one for each bound that a parser has.
//! Mutations do not find these.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fuzztests::memory::{self, Counting};
use fuzztests::{CPU_FLOOR, CPU_PER_MB, MEMORY_MAX, cpu_time};
use scan::{Limits, Options, ScanError, scan_file, scan_file_within};
use trace::follow::Follower;
use trace::summary::Summary;
use trace::{Event, Info, MarkInfo, Reader, What, Writer};

#[global_allocator]
static MEMORY: Counting = Counting;

/// One test at a time: time and memory are the process's.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// What `run` returns; panics if it takes more time or memory than an input of that length may.
fn bounded<T>(bytes: usize, run: impl FnOnce() -> T) -> T {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (held, begun) = (memory::begin(), cpu_time());
    let result = run();
    let (cpu, peak) = (cpu_time() - begun, memory::peak() - held);
    let allowed = CPU_FLOOR.max(CPU_PER_MB.mul_f64(bytes as f64 / 1e6));
    println!("{bytes} bytes: {cpu:?} of CPU time, {} MiB", peak >> 20);
    assert!(cpu <= allowed + Duration::from_secs(1), "{cpu:?} of CPU time for {bytes} bytes");
    assert!(peak <= MEMORY_MAX, "{} MiB of memory for {bytes} bytes", peak >> 20);
    result
}

fn all() -> Options {
    Options { level: 0, ..Options::default() }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A shared object of this assembly.
fn linked(folder: &Path, source: &str) -> Vec<u8> {
    let (text, file) = (folder.join("source.s"), folder.join("linked.so"));
    std::fs::write(&text, format!("{source}\n.section .note.GNU-stack, \"\", @progbits\n"))
        .unwrap();
    run(Command::new("cc").args(["-shared", "-nostdlib", "-o"]).args([&file, &text]));
    std::fs::read(file).unwrap()
}

const HEAVY: &str = ".globl f\n.type f, @function\nf: vmulps %zmm1, %zmm2, %zmm3\nvzeroupper\nret\n.size f, . - f\n";

/// 50 kB of .gnu_debugdata that unpack to 300 MB are left out, and the rest of the file is scanned.
#[test]
fn compressed_symbols_fail() {
    let folder = tempfile::tempdir().unwrap();
    linked(folder.path(), HEAVY);
    let zeros = folder.path().join("zeros");
    std::fs::File::create(&zeros).unwrap().set_len(300 << 20).unwrap();
    let packed = std::fs::File::create(folder.path().join("packed")).unwrap();
    let mut xz = Command::new("xz");
    let status = xz.args(["-0", "--stdout"]).arg(&zeros).stdout(Stdio::from(packed)).status();
    assert!(status.is_ok_and(|status| status.success()), "xz does not pack");
    let section = format!(".gnu_debugdata={}", folder.path().join("packed").display());
    let file = folder.path().join("linked.so");
    run(Command::new("objcopy").args(["--add-section", &section]).arg(&file));
    let bytes = std::fs::read(file).unwrap();
    let found = bounded(bytes.len(), || scan_file("bomb", &bytes, &all())).unwrap();
    assert!(found.partial[0].contains("unpacks to 314572800 bytes"), "{:?}", found.partial);
    assert_eq!(found.license_level, 2);
}

/// 20,000 symbols whose names are the ends of one of 400 kB.
#[test]
fn overlapping_names_fail() {
    let folder = tempfile::tempdir().unwrap();
    let long = "n".repeat(400_000);
    let mut source =
        format!("{HEAVY}.type {long}, @function\n{long}:\nret\n.size {long}, 1\n.globl {long}\n");
    for number in 0..20_000 {
        source += &format!(".globl g{number}\n.type g{number}, @function\ng{number}: ret\n");
    }
    let mut bytes = linked(folder.path(), &source);
    // Of each symbol, the name becomes the long one.
    let at =
        bytes.windows(1000).rposition(|window| window.iter().all(|byte| *byte == b'n')).unwrap();
    let start = bytes[..at].iter().rposition(|byte| *byte != b'n').unwrap() as u64 + 1;
    let (table, names) = symbol_table(&bytes);
    for entry in table.step_by(24) {
        bytes[entry..entry + 4].copy_from_slice(&((start - names) as u32).to_le_bytes());
    }
    let found = bounded(bytes.len(), || scan_file("bomb", &bytes, &all())).unwrap();
    assert!(found.partial.iter().any(|part| part.contains("names overlap")), "{:?}", found.partial);
}

/// Where .symtab's entries are, and where .strtab begins, in an ELF64 file.
fn symbol_table(bytes: &[u8]) -> (std::ops::Range<usize>, u64) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let half = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let sections = word(0x28) as usize;
    let header = |number: usize| sections + 64 * number;
    let is_symtab = |&number: &usize| bytes[header(number) + 4..][..4] == [2, 0, 0, 0];
    let symtab = header((0..half(0x3c)).find(is_symtab).unwrap());
    let (offset, size) = (word(symtab + 24) as usize, word(symtab + 32) as usize);
    let strtab = header(bytes[symtab + 40] as usize);
    (offset..offset + size, word(strtab + 24))
}

/// Loops in loops, 20,000 deep: each body holds all inner ones.
#[test]
fn nested_loops_fail() {
    let folder = tempfile::tempdir().unwrap();
    let depth = 20_000;
    let mut source = String::from(".globl f\n.type f, @function\nf: vmulps %zmm1, %zmm2, %zmm3\n");
    (0..depth).for_each(|number| source += &format!("1{number}: dec %eax\njz 2f\n2:\n"));
    (0..depth).rev().for_each(|number| source += &format!("jnz 1{number}b\n"));
    source += "ret\n.size f, . - f\n";
    let bytes = linked(folder.path(), &source);
    let found = bounded(bytes.len(), || scan_file("bomb", &bytes, &all())).unwrap();
    assert_eq!((found.license_level, found.listed[0].loops), (2, None));
}

/// Jumps through registers, each of which may lead to every other block, in 500 functions.
#[test]
fn jumps_to_anywhere_fail() {
    let folder = tempfile::tempdir().unwrap();
    let mut source = String::new();
    for number in 0..500 {
        source += &format!(
            ".globl f{number}\n.type f{number}, @function\nf{number}: vmulps %zmm1, %zmm2, %zmm3\n\
             .rept 1000\njmp *%rax\n.endr\n.size f{number}, . - f{number}\n"
        );
    }
    let bytes = linked(folder.path(), &source);
    let found = bounded(bytes.len(), || scan_file("bomb", &bytes, &all())).unwrap();
    assert_eq!(found.license_level, 2);
}

/// A program with 40,000 headers that all map its whole code, and name its table of functions.
#[test]
fn overlapping_segments_fail() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = linked(
        folder.path(),
        &format!("{HEAVY}.cfi_startproc\n.rept 300000\nnop\n.endr\n.cfi_endproc\n"),
    );
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (table, count) = (word(0x20), usize::from(u16::from_le_bytes([bytes[0x38], bytes[0x39]])));
    let header = |number: usize| bytes[table + 56 * number..][..56].to_vec();
    let is_code = |header: &Vec<u8>| header[..8] == [1, 0, 0, 0, 5, 0, 0, 0];
    let mut code = (0..count).map(header).find(is_code).unwrap();
    code[0x08..0x10].fill(0); // from the file's begin to its end
    let length = bytes.len() as u64 + 56 * 40_000;
    code[0x20..0x28].copy_from_slice(&length.to_le_bytes());
    let at = (bytes.len() as u64).to_le_bytes();
    bytes[0x20..0x28].copy_from_slice(&at);
    bytes[0x38..0x3a].copy_from_slice(&40_000u16.to_le_bytes());
    (0..40_000).for_each(|_| bytes.extend(&code));
    let sum = |image: scan::segments::Image<'_>| -> usize {
        image
            .segments
            .iter()
            .map(|segment| segment.code.iter().filter(|byte| **byte == 0xc3).count())
            .sum()
    };
    let error = bounded(bytes.len(), || scan::segments::Image::parse(&bytes).map(sum)).unwrap_err();
    assert!(error.contains("overlap"), "{error}");
}

/// A line of the control socket of 7 MB, of which each few bytes are an object.
#[test]
fn lines_of_objects_fail() {
    use report::ctl::{Request, receive};
    let line = format!("{{\"schema\":1,\"x\":[{}0]}}\n", "{\"\":0},".repeat(900_000));
    let error = bounded(line.len(), || receive::<Request>(&mut line.as_bytes())).unwrap_err();
    assert!(error.to_string().contains("no variant"), "{error}");
}

/// Work, code, length and a flag: each ends a scan, and says why.
#[test]
fn limits_end_a_scan_fail() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = linked(folder.path(), HEAVY);
    let stop = AtomicBool::new(false);
    let strict = Limits::strict(&stop);
    let with = |limits: Limits<'_>| scan_file_within("limits", &bytes, &all(), &limits);
    assert_eq!(with(strict).unwrap().license_level, 2);
    let code = with(Limits { code_bytes: 5, ..strict }).unwrap_err();
    assert!(matches!(code, ScanError::TooBig { what: "its code", bytes: 10, limit: 5 }), "{code}");
    let length = with(Limits { file_bytes: 100, ..strict }).unwrap_err();
    assert!(matches!(length, ScanError::TooBig { what: "the file", .. }), "{length}");
    let work = with(Limits { work_bytes: 5, ..strict }).unwrap_err();
    assert_eq!(work, ScanError::TooMuchWork { limit: 5 });
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(with(strict).unwrap_err(), ScanError::Stopped);
}

/// A file of 3 GiB that is a hole with a page at its end is read, and takes no memory; more data
/// than allowed is refused.
#[test]
fn holes_take_no_memory() {
    use std::os::unix::fs::FileExt;
    let folder = tempfile::tempdir().unwrap();
    let mut options = std::fs::File::options();
    options.read(true).write(true).create_new(true);
    let file = options.open(folder.path().join("sparse")).unwrap();
    let length = 3 << 30;
    file.write_all_at(b"\x7fELF", 0).unwrap();
    file.write_all_at(b"end", length - 3).unwrap();
    let stop = AtomicBool::new(false);
    let limits = Limits { data_bytes: 8192, ..Limits::strict(&stop) };
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = resident_kib();
    let bytes = scan::read_file(&file, &limits).unwrap();
    assert_eq!(
        (bytes.len() as u64, &bytes[..4], &bytes[bytes.len() - 3..]),
        (length, &b"\x7fELF"[..], &b"end"[..])
    );
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 100 << 10, "{grown} KiB");
    let error = scan::read_file(&file, &Limits { data_bytes: 4096, ..limits }).unwrap_err();
    assert!(matches!(error, ScanError::TooBig { what: "its data", .. }), "{error}");
    let error = scan::read_file(&file, &Limits { file_bytes: 1 << 30, ..limits }).unwrap_err();
    assert!(matches!(error, ScanError::TooBig { what: "the file", .. }), "{error}");
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(scan::read_file(&file, &limits).unwrap_err(), ScanError::Stopped);
}

/// Memory of this process that is there, KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn recording(info: &Info, events: impl Iterator<Item = Event>) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), info).unwrap();
    events.for_each(|event| writer.push(&event).unwrap());
    writer.finish(0).unwrap().0
}

/// As `turbolane trace` sums it up.
fn summary(file: &[u8]) -> report::record::RecordSummary {
    let mut reader = Reader::new(file).unwrap();
    let info = reader.info().clone();
    let (mut follower, mut summary) = (Follower::new(&info), Summary::default());
    while let Some(event) = reader.next_event().unwrap() {
        follower.take(&event, &mut summary);
    }
    let ending = reader.ending().unwrap();
    follower.finish(ending.at_ns(follower.now_ns()), &mut summary);
    summary.finish(&info, &follower, ending)
}

/// A megabyte of licence levels, each of another task and of the highest level there can be.
#[test]
fn levels_of_many_tasks() {
    let what = What::LevelCycles { license_level: 255, cycles: 1 };
    let event = |tid| Event { at_ns: 0, cpu: 0, tid, what: what.clone() };
    let file = recording(&Info::default(), (1..200_000).map(event));
    let found = bounded(file.len(), || summary(&file));
    assert_eq!(found.levels.unwrap().samples, 199_999);
}

/// A task that enters a marked function 200,000 times and never leaves it.
#[test]
fn marks_without_return() {
    let mark = MarkInfo { level: 2, name: "lib.so:f".into() };
    let info = Info { everybody: true, marks: vec![mark], ..Info::default() };
    let event = |at_ns| Event { at_ns, cpu: 0, tid: 7, what: What::Mark { mark: 0 } };
    let file = recording(&info, (0..200_000).map(event));
    let found = bounded(file.len(), || summary(&file));
    assert_eq!(found.marks[0].calls, 200_000);
}
