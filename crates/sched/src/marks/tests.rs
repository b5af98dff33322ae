// SPDX-License-Identifier: MIT OR Apache-2.0
//! Marks in real ELF files: a library assembled here and, where there is one, OpenSSL's.

use std::ffi::{CStr, CString};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use hw::perf::{self, Event, Whose};

use super::*;

const NEW: Emulation = Emulation { nop5: true };

/// A library with one function of each kind that matters.
const SOURCE: &str = r#"
    .text
    .globl cheap, walked, stepped, looped, chosen, shuffled
    .type cheap, @function
cheap:      push %rbx
            pop %rbx
            ret
    .size cheap, . - cheap
    .type walked, @function
walked:     endbr64
            push %r12
            pop %r12
            ret
    .size walked, . - walked
    .type stepped, @function
stepped:    sub $8, %rsp
            add $8, %rsp
            ret
    .size stepped, . - stepped
    .type looped, @function
looped:     endbr64
1:          push %rbx
            pop %rbx
            dec %edi
            jne 1b
            ret
    .size looped, . - looped
    .type shuffled, @function
shuffled:   endbr64
            mov %r8d, %eax
            mov %edi, %r8d
            push %rbx
            pop %rbx
            ret
    .size shuffled, . - shuffled
    .type chosen, @gnu_indirect_function
chosen:     lea untyped(%rip), %rax
            ret
    .size chosen, . - chosen
untyped:    push %rbx
            pop %rbx
            ret
    .type twice, @function
twice:      push %rbx
            jmp other@plt
    .size twice, . - twice
    .data
    .globl number
    .type number, @object
number:     .long 42
    .size number, 4
    .section .note.GNU-stack, "", @progbits
"#;

/// Builds the library in `dir`; a compiler is part of building this project.
fn library(dir: &Path) -> PathBuf {
    let (first, second) = (dir.join("first.s"), dir.join("second.s"));
    std::fs::write(&first, SOURCE).unwrap();
    let twin = ".text\n.type twice, @function\ntwice: push %rbp\npop %rbp\nret\n\
        .size twice, . - twice\n.section .note.GNU-stack, \"\", @progbits\n";
    std::fs::write(&second, twin).unwrap();
    let library = dir.join("libmarks.so");
    let status = Command::new("cc")
        .args(["-shared", "-nostdlib", "-Wl,--build-id", "-o"])
        .args([&library, &first, &second])
        .status()
        .expect("a C compiler");
    assert!(status.success());
    library
}

fn resolve_text(text: &str, force: bool) -> Result<ResolvedMark, MarkError> {
    resolve(&text.parse().unwrap(), NEW, force)
}

/// Message and advice of a refusal, with the folder cut out.
fn refusal(library: &Path, site: &str) -> (String, String) {
    let error = resolve_text(&format!("{}:{site}", library.display()), false).unwrap_err();
    let folder = format!("{}/", library.parent().unwrap().display());
    (error.to_string().replace(&folder, ""), error.next())
}

/// The byte at the site is the instruction that was promised, for names and for offsets.
#[test]
fn finds_sites_in_a_library() {
    let dir = tempfile::tempdir().unwrap();
    let library = library(dir.path());
    let bytes = std::fs::read(&library).unwrap();
    for (name, skipped, first_byte) in
        [("cheap", 0, 0x53), ("walked", 1, 0x41), ("untyped", 0, 0x53)]
    {
        let text = format!("{}:{name}@2", library.display());
        let mark = resolve_text(&text, false).unwrap();
        assert_eq!((mark.skipped, mark.level, mark.single_step), (skipped, 2, false), "{name}");
        assert_eq!(bytes[mark.offset as usize], first_byte, "{name}");
        assert_eq!(mark.path, library.canonicalize().unwrap());

        let by_offset = format!("{}:+{:#x}@2", library.display(), mark.entry_offset);
        let again = resolve_text(&by_offset, false).unwrap();
        assert_eq!((again.offset, again.skipped), (mark.offset, mark.skipped), "{name}");
    }
}

/// A link is followed, unless it leads to another root.
#[test]
fn a_path_lasts() {
    let dir = tempfile::tempdir().unwrap();
    let (file, link) = (library(dir.path()), dir.path().join("link"));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let canonical = file.canonicalize().unwrap();
    assert_eq!(lasting_path(&link).unwrap(), canonical);
    let own_root = Path::new("/proc/self/root").join(canonical.strip_prefix("/").unwrap());
    assert_eq!(lasting_path(&own_root).unwrap(), canonical, "the same file here");
    assert!(lasting_path(&dir.path().join("none")).is_err());
}

/// A function without a cheap site is refused, and probed at its entry when forced.
#[test]
fn single_step_sites_need_force_fail() {
    let dir = tempfile::tempdir().unwrap();
    let library = library(dir.path());
    for name in ["stepped", "looped"] {
        let (message, next) = refusal(&library, name);
        assert!(
            message.starts_with(&format!("\"{name}\" in libmarks.so starts with ")),
            "{message}"
        );
        assert!(next.contains("--force-single-step"));
        let forced = resolve_text(&format!("{}:{name}", library.display()), true).unwrap();
        assert!(forced.single_step && forced.offset == forced.entry_offset);
    }
}

/// An argument that is overwritten before the cheap site is refused, and kept by a probe at the
/// entry; other arguments are no matter.
#[test]
fn lost_arguments_are_refused_fail() {
    let dir = tempfile::tempdir().unwrap();
    let library = library(dir.path());
    let (message, next) = refusal(&library, "shuffled@2,min-arg5=64");
    assert_eq!(
        message,
        "\"shuffled@2\" in libmarks.so overwrites argument 5 before push (53), the first instruction that can be \
         probed without single-stepping"
            .replace("shuffled@2", "shuffled")
    );
    assert!(next.contains("leave min-arg out"), "{next}");
    let mark = |text: &str, force| resolve_text(&format!("{}:{text}", library.display()), force);
    let other = mark("shuffled@2,min-arg6=64", false).unwrap();
    assert_eq!((other.skipped, other.single_step), (3, false));
    assert!(other.rule().counts(64) && !other.rule().counts(63) && other.rule().level() == 2);
    let forced = mark("shuffled@2,min-arg5=64", true).unwrap();
    assert!(forced.single_step && forced.offset == forced.entry_offset);
    let all = mark("shuffled", false).unwrap();
    assert!(all.rule().counts(0));
    // where there is no cheap site at all, that is what is said
    assert!(refusal(&library, "stepped,min-arg5=64").0.contains("without single-stepping (about"));
}

/// Everything that is no function is refused by what it is.
#[test]
fn what_is_no_function_fails() {
    let dir = tempfile::tempdir().unwrap();
    let library = library(dir.path());
    let message = |site| refusal(&library, site).0;
    let next = |site| refusal(&library, site).1;

    assert_eq!(message("chep"), "libmarks.so has no function \"chep\"");
    assert_eq!(next("chep"), "did you mean cheap?");
    assert_eq!(message("number"), "\"number\" in libmarks.so is not a function but data");
    assert_eq!(message("other"), "libmarks.so only imports \"other\", another library defines it");
    assert!(message("chosen").contains("is chosen when the library is loaded"));
    assert_eq!(message("twice"), "libmarks.so has 2 functions \"twice\"");
    assert!(next("twice").starts_with("choose one by its offset: +0x"));
    assert_eq!(message("+0x0"), "offset 0x0 of libmarks.so is not executable");
    assert!(message("+0xffffffffffffffff").ends_with("is not executable"));

    let entry = resolve_text(&format!("{}:walked", library.display()), false).unwrap().entry_offset;
    let inside = format!("+{:#x}", entry + 4);
    assert!(message(&inside).contains("is not the entry of a function but inside \"walked\""));
    assert_eq!(next(&inside), format!("mark walked or +{entry:#x}"));
}

/// A stripped library says that it is stripped.
#[test]
fn stripped_libraries_say_so_fail() {
    let dir = tempfile::tempdir().unwrap();
    let library = library(dir.path());
    let status = Command::new("strip").arg(&library).status().expect("binutils");
    assert!(status.success());
    assert!(refusal(&library, "twice").0.contains("it is stripped of all others"));
    assert!(resolve_text(&format!("{}:cheap", library.display()), false).is_ok());
}

/// An offset in a file that does not show an entry there needs the file's build, for in another one
/// a probe there may change the middle of an instruction.
#[test]
fn offsets_of_other_builds_fail() {
    let dir = tempfile::tempdir().unwrap();
    let library = library(dir.path());
    let offset = |name: &str| {
        let mark = resolve_text(&format!("{}:{name}", library.display()), false).unwrap();
        format!("+{:#x}", mark.entry_offset)
    };
    let (untyped, cheap) = (offset("untyped"), offset("cheap"));
    assert!(Command::new("strip").arg(&library).status().unwrap().success());
    let id =
        resolve_text(&format!("{}:cheap", library.display()), false).unwrap().build_id.unwrap();
    let (why, next) = refusal(&library, &untyped);
    let expected =
        format!("nothing in libmarks.so shows that a function begins at offset {}", &untyped[1..]);
    assert_eq!(why, expected);
    assert!(next.contains(&format!("add ,build-id={}", id.digits())), "{next}");
    let marked = |site: &str| resolve_text(&format!("{}:{site}", library.display()), false);
    let found = marked(&format!("{untyped}@2,build-id={}", id.digits())).unwrap();
    assert_eq!((found.skipped, found.build_id), (0, Some(id.clone())));
    assert!(marked(&cheap).is_ok(), "an exported function");

    for site in [&untyped, &cheap] {
        let (why, next) = refusal(&library, &format!("{site},build-id=0123456789"));
        let expected = "libmarks.so is not the build 0123456789 that the offset is for, but ";
        assert_eq!(why, format!("{expected}{}", id.digits()));
        assert!(next.contains("turbolane scan --marks"), "{next}");
    }
    let mut removes = Command::new("objcopy");
    removes.args(["-R", ".note.gnu.build-id"]).arg(&library);
    assert!(removes.status().expect("binutils").success());
    assert!(refusal(&library, &untyped).1.contains("has no build id"));
    assert!(
        refusal(&library, &format!("{cheap},build-id=0123456789"))
            .0
            .ends_with(", and has no build id")
    );
}

/// The table for unwinding shows entries in a stripped file, and an offset between two is none.
#[test]
fn unwinding_shows_entries() {
    let dir = tempfile::tempdir().unwrap();
    let (source, library) = (dir.path().join("a.c"), dir.path().join("liba.so"));
    std::fs::write(
        &source,
        "static __attribute__((noinline)) int f(int a) { return a * 7; }\n\
        int g(int a) { return f(a) + f(a + 1); }\n",
    )
    .unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]);
    assert!(compiler.status().expect("a C compiler").success());
    let forced = |site: &str| resolve_text(&format!("{}:{site}", library.display()), true);
    let entry = forced("f").unwrap().entry_offset;
    assert!(Command::new("strip").arg(&library).status().unwrap().success());
    assert_eq!(forced(&format!("+{entry:#x}")).unwrap().symbol, None);
    let inside = forced(&format!("+{:#x}", entry + 1));
    assert!(matches!(inside, Err(MarkError::UnknownEntry { .. })), "{inside:?}");
}

/// Files that are no programs.
#[test]
fn what_is_no_elf_file_fails() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let message = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        resolve_text(&format!("{}:f", path.display()), false).unwrap_err().to_string()
    };
    assert!(message(b"#!/bin/sh").ends_with("it does not start like an ELF file"));
    assert!(message(b"\x7fELF").contains("is not an x86-64 ELF program or library"));
    let missing = resolve_text("/no/such/file:f", false).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "cannot read /no/such/file: No such file or directory (os error 2)"
    );
}

/// The functions that the demonstration marks have cheap sites in this system's OpenSSL.
#[test]
fn openssl_functions_have_cheap_sites() {
    let library = Path::new("/usr/lib/x86_64-linux-gnu/libcrypto.so.3");
    if !library.exists() {
        eprintln!("skipped: there is no {}", library.display());
        return;
    }
    for name in ["EVP_EncryptUpdate", "EVP_DecryptUpdate", "EVP_CipherUpdate"] {
        let mark = resolve_text(&format!("{}:{name}", library.display()), false).unwrap();
        assert!(!mark.single_step && mark.skipped <= MAX_SKIPPED, "{mark:?}");
        let by_length = format!("{}:{name}@2,min-arg5=1024", library.display());
        assert_eq!(resolve_text(&by_length, false).unwrap().offset, mark.offset);
    }
}

/// Files that are no program by their kind or size are refused before they are read: a pipe would
/// wait for its other end, and a sparse file of a terabyte has no memory.
#[test]
fn endless_files_fail() {
    let dir = tempfile::tempdir().unwrap();
    let (sparse, pipe) = (dir.path().join("sparse"), dir.path().join("pipe"));
    std::fs::File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (path, why) in [
        (sparse.as_path(), "has 1099511627776 bytes"),
        (pipe.as_path(), "not a regular file"),
        (std::path::Path::new("/dev/zero"), "not a regular file"),
        (dir.path(), "not a regular file"),
    ] {
        let mark = format!("{}:f", path.display()).parse().unwrap();
        let refusal = resolve(&mark, Emulation { nop5: false }, false).unwrap_err().to_string();
        assert!(refusal.contains(why), "{refusal}");
    }
}

/// The kernel reports each call of a function once, and its return, where the site is a branch
/// after instructions that were skipped.
#[test]
fn the_kernel_sees_both_ends_at_a_site_inside() {
    const CALLS: u64 = 1000;
    let source = ".text\n.globl half\n.type half, @function\nhalf: mov %edi, %eax\n shr %eax\n\
        lea 1(%rax), %ecx\n test %eax, %eax\n je 1f\n mov %ecx, %eax\n1: ret\n\
        .size half, . - half\n.section .note.GNU-stack, \"\", @progbits\n";
    let dir = tempfile::tempdir().unwrap();
    let (text, library) = (dir.path().join("half.s"), dir.path().join("libhalf.so"));
    std::fs::write(&text, source).unwrap();
    let mut cc = Command::new("cc");
    let status = cc.args(["-shared", "-nostdlib", "-o"]).args([&library, &text]).status();
    assert!(status.expect("a C compiler").success());
    let mark = resolve_text(&format!("{}:half", library.display()), false).unwrap();
    assert_eq!((mark.skipped, mark.single_step), (4, false));

    let path = CString::new(library.to_str().unwrap()).unwrap();
    let counters = [false, true].map(|at_return| uprobe(&path, mark.offset, at_return));
    let [entries, returns] = match counters {
        [Ok(entries), Ok(returns)] => [entries, returns],
        [Err(why), _] | [_, Err(why)] => return eprintln!("skipped (77): no uprobes here: {why}"),
    };
    // SAFETY: the library has no initialisers, and the function this type.
    let half: extern "C" fn(u32) -> u32 = unsafe {
        let opened = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!opened.is_null());
        let found = libc::dlsym(opened, c"half".as_ptr());
        assert!(!found.is_null());
        std::mem::transmute(found)
    };
    let sum: u64 = (0..CALLS as u32).map(|number| u64::from(half(number))).sum();
    let expected: u64 = (2..CALLS).map(|number| number / 2 + 1).sum();
    assert_eq!(sum, expected, "it computes what it did");
    for (what, counter) in [("entries", entries), ("returns", returns)] {
        let mut count = [0; 8];
        std::fs::File::from(counter).read_exact(&mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), CALLS, "{what}");
    }
}

/// Counts executions of a place in a file, by this thread; with `at_return` returns from it.
fn uprobe(path: &CStr, offset: u64, at_return: bool) -> std::io::Result<OwnedFd> {
    let kind = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
    let event = Event {
        kind: kind.trim().parse().map_err(std::io::Error::other)?,
        config: at_return.into(),
        further: [path.as_ptr().expose_provenance() as u64, offset],
        ..Event::default()
    };
    perf::open(&event, Whose::Thread, None)
}
