// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kinds of files: stripped, objects, archives, 32-bit, junk, broken ones.

mod common;

use std::process::Command;

use common::{Built, all, function, listed, run, scan};
use report::scan::{Confidence, File, Skipped, Source};
use scan::{
    DebugLink, Limits, Options, ScanError, Sort, debug_link, scan_archive, scan_file,
    scan_file_with_debug,
};

const HEAVY: &str = "vmulps %zmm1, %zmm2, %zmm3\nvzeroupper\nret";

/// Exported, hidden with unwind record, hidden without, used by pointer, by address, by call, by
/// nobody.
fn hidden() -> String {
    let local = |name: &str, body: &str| function(name, body).replace(".globl", ".local");
    [
        function(
            "exported",
            &format!(
                ".cfi_startproc\ncall called\nlea addressed(%rip), %rax\n{HEAVY}\n.cfi_endproc"
            ),
        ),
        local("unwound", &format!(".cfi_startproc\n{HEAVY}\n.cfi_endproc")),
        local("pointed", HEAVY),
        local("addressed", HEAVY),
        local("called", HEAVY),
        local("unused", HEAVY),
        ".data\n.quad pointed\n".into(),
    ]
    .concat()
}

/// A stripped file's functions are found by what is left, each by its own source; nothing is lost.
#[test]
fn stripped_files() {
    let built = Built::new();
    let whole = scan(&built.link("hidden.so", &hidden()));
    assert_eq!(whole.sources[0].source, Source::Symtab);
    assert_eq!((whole.found, whole.coverage_pct), (6, Some(100.0)));
    let stripped = scan(&built.strip("hidden.so", &[]));
    assert_eq!((stripped.found, stripped.coverage_pct), (6, Some(100.0)));
    let sources: Vec<(Source, u64)> = stripped
        .sources
        .iter()
        .filter(|share| share.wide_instructions > 0)
        .map(|share| (share.source, share.functions))
        .collect();
    assert_eq!(
        sources,
        [
            (Source::Dynsym, 1),
            (Source::Unwind, 1),
            (Source::Pointer, 1),
            (Source::Address, 1),
            (Source::Call, 1),
            (Source::Padding, 1)
        ]
    );
    let place = |file: &report::scan::File| -> Vec<(u64, u64)> {
        let mut all: Vec<_> = file.listed.iter().map(|f| (f.address, f.size_bytes)).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(place(&whole), place(&stripped));
}

/// A file whose sections are cut off as well is read by its segments.
#[test]
fn files_without_sections() {
    let built = Built::new();
    let mut bytes = built.link("hidden.so", &hidden());
    bytes[0x28..0x30].fill(0); // e_shoff
    bytes[0x3c..0x40].fill(0); // e_shnum, e_shstrndx
    let file = scan(&bytes);
    assert!(file.found >= 2, "{file:#?}");
    assert!(file.listed.iter().any(|function| function.source == Source::Unwind));
}

/// Symbols that are compressed into .gnu_debugdata name functions.
#[test]
fn compressed_symbols() {
    let built = Built::new();
    let bytes = built.link("hidden.so", &hidden());
    let mut packed = Vec::new();
    lzma_rs::xz_compress(&mut bytes.as_slice(), &mut packed).unwrap();
    std::fs::write(built.path("debugdata"), packed).unwrap();
    built.strip("hidden.so", &[]);
    let section = format!(".gnu_debugdata={}", built.path("debugdata").display());
    run(Command::new("objcopy").args(["--add-section", &section]).arg(built.path("hidden.so")));
    let file = scan(&built.read("hidden.so"));
    assert_eq!(listed(&file, "called").source, Source::Debugdata);
    assert_eq!(file.found, 6);

    std::fs::write(built.path("debugdata"), b"\xfd7zXZ\0rubbish").unwrap();
    built.link("hidden.so", &hidden());
    run(Command::new("objcopy").args(["--add-section", &section]).arg(built.path("hidden.so")));
    let file = scan(&built.read("hidden.so"));
    assert!(file.partial[0].starts_with(".gnu_debugdata cannot be unpacked"), "{:?}", file.partial);
    assert_eq!(file.found, 6);
}

/// A function without a name is placed by the symbol before it, unless that is far away.
#[test]
fn nameless_functions_are_near_symbols() {
    let built = Built::new();
    let local = |name: &str| function(name, HEAVY).replace(".globl", ".local");
    let source =
        function("exported", "ret") + &local("close") + ".skip 65536, 0x90\n" + &local("far");
    built.link("near.so", &source);
    let named = scan(&built.read("near.so"));
    assert!(named.listed.iter().all(|function| function.near.is_none()), "{named:#?}");
    let stripped = scan(&built.strip("near.so", &[]));
    let near: Vec<Option<&str>> =
        stripped.listed.iter().map(|function| function.near.as_deref()).collect();
    assert_eq!(near, [Some("exported+0x10"), None]);
}

/// A stripped file gets names from its debug file, which is found by build id or by name; the debug
/// file of another build gives none.
#[test]
fn debug_files_name_functions() {
    let built = Built::new();
    let whole = built.link("hidden.so", &hidden());
    run(Command::new("objcopy")
        .arg("--only-keep-debug")
        .args([built.path("hidden.so"), built.path("hidden.debug")]));
    let debug = built.read("hidden.debug");
    built.strip("hidden.so", &[]);
    let link = format!("--add-gnu-debuglink={}", built.path("hidden.debug").display());
    run(Command::new("objcopy").arg(&link).arg(built.path("hidden.so")));
    let stripped = built.read("hidden.so");
    let expected =
        DebugLink { build_id: Some("0123456789abcdef".into()), name: Some("hidden.debug".into()) };
    assert_eq!(debug_link(&stripped), Some(expected));
    assert_eq!(debug_link(&whole), None, "it has its symbols");
    assert_eq!(debug_link(b"rubbish"), None);

    let with = |stripped: &[u8], debug: &[u8]| {
        scan_file_with_debug("a", stripped, debug, &all(), &Limits::default()).unwrap()
    };
    let file = with(&stripped, &debug);
    assert_eq!(listed(&file, "called").source, Source::DebugFile);
    let has_name = |file: &File| file.listed.iter().any(|one| one.source == Source::DebugFile);
    assert!(!has_name(&with(&stripped, b"rubbish")) && !has_name(&with(&stripped, &[])));

    // Without build ids, the checksum decides.
    let remove = ["--remove-section=.note.gnu.build-id"];
    run(Command::new("objcopy").args(remove).arg(built.path("hidden.so")));
    let anonymous = built.read("hidden.so");
    assert!(has_name(&with(&anonymous, &debug)));
    let mut changed = debug.clone();
    *changed.last_mut().unwrap() ^= 1;
    assert!(!has_name(&with(&anonymous, &changed)), "another checksum");

    // Another build of the same source.
    built.assemble("part.o", &hidden());
    let other = ["-shared", "-nostdlib", "-Wl,--build-id=0x99", "-o"];
    run(Command::new("cc").args(other).args([built.path("other.so"), built.path("part.o")]));
    assert!(!has_name(&with(&stripped, &built.read("other.so"))));
}

/// Data in .text that looks like code makes no finding: constants, boot code of 16 bits, jump
/// tables.
#[test]
fn junk_in_text() {
    let junk = ".p2align 6\n.byte 0xc4, 0x06, 0x12, 0x34, 0xe6, 0x21, 0xc5, 0xfc, 0x59, 0xc0\n\
        .byte 0x62, 0xf1, 0x74, 0x48, 0x59, 0xc2, 0xf4, 0x06\n\
        .code16\nlds (%si), %ax\nles (%di), %bx\nout %al, $0x20\nlret\n.code64\n\
        .long 0x62f17448, 0x59c26006, 0x62f17448, 0x59c20606\n";
    let source = function("first", "lea junk(%rip), %rax\nret")
        + "junk:\n"
        + junk
        + &function("second", "xor %eax, %eax\nret");
    let built = Built::new();
    built.link("junk.so", &source);
    let file = scan(&built.strip("junk.so", &[]));
    assert_eq!((file.found, file.license_level), (0, 0), "{:#?}", file.listed);
    assert!(file.listed.iter().all(|function| function.confidence == Confidence::Low));
}

/// A table inside of a function does not hide what is behind it, and makes no finding itself.
#[test]
fn tables_inside_of_functions() {
    let body = "test %edi, %edi\nje 1f\nret\n\
        .byte 0x06, 0x62, 0xf1, 0x74, 0x48, 0x59, 0xc2, 0x06\n\
        1: vpaddd %ymm0, %ymm1, %ymm2\nvzeroupper\nret";
    let file = scan(&Built::new().link("table.so", &function("table", body)));
    let found = listed(&file, "table");
    assert_eq!((found.counts.light.ymm, found.counts.heavy.zmm, found.license_level), (1, 0, 0));
}

/// Object files and each member of an archive; sections of their own do not mix.
#[test]
fn objects_and_archives() {
    let built = Built::new();
    let sections = function("one", HEAVY)
        + &function("two", "xor %eax, %eax\nret").replace(".text", ".section .text.two, \"ax\"")
        + &function("three", "vpaddd %ymm0, %ymm1, %ymm2\nret")
            .replace(".text", ".section .text.three, \"ax\"");
    let object = scan(&built.assemble("one.o", &sections));
    assert_eq!((object.kind.as_str(), object.found, object.functions), ("object", 2, 3));
    assert_eq!(listed(&object, "three").section.as_deref(), Some(".text.three"));
    built.assemble("other.o", &function("scalar", "ret"));
    std::fs::write(built.path("text"), "no object").unwrap();
    let members = ["one.o", "other.o", "text"].map(|name| built.path(name));
    run(Command::new("ar").arg("rc").arg(built.path("lib.a")).args(members));
    let mut skipped = Skipped::default();
    let files = scan_archive("lib.a", &built.read("lib.a"), &all(), &mut skipped).unwrap();
    assert_eq!((files.len(), files[0].path.as_str(), files[0].found), (2, "lib.a(one.o)", 2));
    assert_eq!(files[1].found, 0);
    assert_eq!(skipped.not_elf, 1);
    assert!(files[0].listed.iter().all(|function| function.file_offset.is_none()));
    let thin = scan_archive("t", b"!<thin>\n", &all(), &mut skipped).unwrap_err();
    assert_eq!(thin, ScanError::ThinArchive);
    assert!(scan_archive("t", b"!<arch>\nrubbish", &all(), &mut skipped).is_err());
}

/// Code of 32 bits has wide instructions too.
#[test]
fn code_of_32_bits() {
    let built = Built::new();
    let source = function("wide", "vmulps %ymm1, %ymm2, %ymm3\nvzeroupper\nret")
        + &function("narrow", "inc %eax\nret");
    std::fs::write(built.path("s.s"), source).unwrap();
    run(Command::new("as").arg("--32").arg(built.path("s.s")).arg("-o").arg(built.path("s.o")));
    let file = scan(&built.read("s.o"));
    assert_eq!((file.architecture.as_str(), file.found, file.license_level), ("x86", 1, 1));
}

/// Source lines stand beside functions of a file with debugging information.
#[test]
fn source_lines() {
    let built = Built::new();
    let code = "typedef float v8 __attribute__((vector_size(32)));\n\n\
        void twice(v8 *a) { *a = *a * 2.0f; }\n";
    std::fs::write(built.path("twice.c"), code).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-g", "-O1", "-mavx", "-shared", "-fPIC", "-o"]);
    run(cc.arg(built.path("twice.so")).arg(built.path("twice.c")));
    let file = scan(&built.read("twice.so"));
    let line = listed(&file, "twice").line.clone().unwrap();
    assert!(line.ends_with("twice.c:3"), "{line}");
}

/// Level, order and number of functions are as asked for, and what is left out is counted.
#[test]
fn options_choose() {
    let source = function("b_heavy", HEAVY)
        + &function("a_light", "vpaddd %zmm0, %zmm1, %zmm2\nvzeroupper\nret")
        + &function("c_avx", "vpaddd %ymm0, %ymm1, %ymm2\nvzeroupper\nret");
    let bytes = Built::new().link("options.so", &source);
    let names = |options: Options| -> Vec<String> {
        let file = scan_file("test", &bytes, &options).unwrap();
        file.listed.into_iter().filter_map(|function| function.name).collect()
    };
    let with = |level, sort, top| names(Options { level, sort, top });
    assert_eq!(with(0, Sort::Name, None), ["a_light", "b_heavy", "c_avx"]);
    assert_eq!(with(0, Sort::Address, None), ["b_heavy", "a_light", "c_avx"]);
    assert_eq!(with(1, Sort::Level, None), ["b_heavy", "a_light"]);
    assert_eq!(with(2, Sort::Level, None), ["b_heavy"]);
    assert_eq!(with(0, Sort::Level, Some(1)), ["b_heavy"]);
    let file = scan_file("test", &bytes, &Options { top: Some(1), ..all() }).unwrap();
    assert_eq!((file.found, file.listed.len(), file.counts.light.ymm), (3, 1, 1));
}

/// What is no ELF file for x86 with code is refused by what it is.
#[test]
fn other_files_fail() {
    let error = |bytes: &[u8]| scan_file("test", bytes, &all()).unwrap_err();
    assert_eq!(error(b""), ScanError::NotElf);
    assert_eq!(error(b"#!/bin/sh\n"), ScanError::NotElf);
    assert!(matches!(error(b"\x7fELF"), ScanError::Broken(_)));
    let built = Built::new();
    let mut bytes = built.link("lib.so", &function("f", HEAVY));
    assert!(matches!(error(&bytes[..60]), ScanError::Broken(_)));
    let whole = bytes.clone();
    bytes[18] = 183; // e_machine: AArch64
    assert_eq!(error(&bytes), ScanError::OtherCpu("Aarch64".into()));
    let half = scan_file("test", &whole[..whole.len() / 2], &all());
    assert!(half.is_err() || !half.unwrap().partial.is_empty());
    let debug = built.path("lib.debug");
    run(Command::new("objcopy").arg("--only-keep-debug").arg(built.path("lib.so")).arg(&debug));
    assert_eq!(error(&std::fs::read(debug).unwrap()), ScanError::NoCode);
}
