// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sites in code that the assembler has made, and in this machine's libraries.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use super::*;

/// Assembles a shared library and returns what is found, with the offset of each label.
fn found_in(source: &str) -> (Found, impl Fn(&str) -> u64 + use<>) {
    found_as(source, Saves::ExceptResolvers)
}

/// The same with these saves.
fn found_as(source: &str, which: Saves) -> (Found, impl Fn(&str) -> u64 + use<>) {
    let dir = tempfile::tempdir().unwrap();
    let (input, library) = (dir.path().join("code.s"), dir.path().join("code.so"));
    std::fs::write(&input, source).unwrap();
    let linked = Command::new("cc")
        .args(["-shared", "-nostdlib", "-Wl,--build-id=none", "-o"])
        .args([&library, &input])
        .status()
        .unwrap();
    assert!(linked.success());
    let symbols = Command::new("nm").arg(&library).output().unwrap().stdout;
    let symbols = String::from_utf8(symbols).unwrap();
    let bytes = std::fs::read(&library).unwrap();
    let found = find_in(&bytes, which, &Limits::default()).unwrap();
    let image_shift = {
        let image = Image::parse(&bytes).unwrap();
        image.segments[0].address - image.segments[0].offset
    };
    let offset = move |label: &str| {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {label}")));
        let address = line.unwrap_or_else(|| panic!("no label {label}")).split(' ').next().unwrap();
        u64::from_str_radix(address, 16).unwrap() - image_shift
    };
    (found, offset)
}

/// A function with unwind information, like all that compilers make.
fn function(name: &str, body: &str) -> String {
    format!(
        ".text\n.type {name}, @function\n{name}: .cfi_startproc\n{body}\n.cfi_endproc\n.size {name}, .-{name}\n"
    )
}

fn xgetbv(offset: u64) -> Site {
    Site { offset, kind: Kind::Xgetbv }
}

/// The instruction before it, as every compiler makes it.
#[test]
fn the_instruction_before_xgetbv() {
    let (found, at) = found_in(&function("f", "cpuid\nhere: xor %ecx, %ecx\nxgetbv\nret"));
    assert_eq!(found, Found { sites: vec![xgetbv(at("here"))], ..Found::default() });
}

/// What cannot be probed is passed over, up to a branch.
#[test]
fn the_nearest_that_can_be_probed() {
    let body = "here: mov $0, %ecx\nvzeroupper\nlock incl (%rdi)\nxgetbv\nret";
    let (found, at) = found_in(&function("f", body));
    assert_eq!(found.sites, [xgetbv(at("here"))]);
    let (found, _) = found_in(&function("f", "xor %ecx, %ecx\ncall *%rax\nxgetbv\nret"));
    assert_eq!(found, Found { sites: vec![], unverified: 1, unread: 0 });
}

/// Who jumps past the site is seen at the jump.
#[test]
fn branches_to_xgetbv() {
    let body = "xor %ecx, %ecx\ntest %eax, %eax\nhere: jne again\nret\n\
                straight: xor %ecx, %ecx\nagain: xgetbv\nback: jc again\nret";
    let (found, at) = found_in(&function("f", body));
    let mut want = [xgetbv(at("here")), xgetbv(at("straight")), xgetbv(at("back"))];
    want.sort_unstable();
    assert_eq!(found.sites, want);
}

/// The same bytes inside another instruction are no xgetbv, and must not be touched.
#[test]
fn bytes_that_only_look_like_it() {
    let body = "nop\nmov $0x00d0010f, %eax\nmovabs $0x0fae2000d0010f, %rcx\nret";
    let (found, _) = found_in(&function("f", body));
    assert_eq!(found, Found::default());
}

/// Code that no one says where it begins.
#[test]
fn code_without_unwind_table_or_symbol() {
    let source = ".text\n.Lhidden: xor %ecx, %ecx\nxgetbv\nret\n";
    let (found, _) = found_in(source);
    assert_eq!(found, Found { sites: vec![], unverified: 1, unread: 0 });
}

/// A table of constants after a function, with code's bytes in it: a probe would change it.
#[test]
fn data_between_functions() {
    let code =
        function("f", "ret") + ".byte 0x31, 0xc9, 0x0f, 0x01, 0xd0\n" + &function("g", "ret");
    let (found, _) = found_in(&code);
    assert_eq!(found, Found { sites: vec![], unverified: 1, unread: 0 });
    let (found, at) = found_in(
        &code.replace("ret", "here: xor %ecx, %ecx\nxgetbv\nret").replacen("here: ", "", 1),
    );
    assert_eq!((found.sites.len(), found.unverified), (2, 1));
    assert!(found.sites.contains(&xgetbv(at("here"))));
}

fn saves(offset: u64, kind: Kind) -> Site {
    Site { offset, kind }
}

/// Saves and restores in a function that returns, but not in one that goes on to what it has found,
/// unless all are wanted.
#[test]
fn saves_except_the_resolvers() {
    let (found, at) =
        found_in(&function("f", "here: xsavec 64(%rsp)\ncall *%rax\nthere: xrstor 64(%rsp)\nret"));
    let expected = [saves(at("here"), Kind::Xsave), saves(at("there"), Kind::Xrstor)];
    assert_eq!(found.sites, expected);
    let body = "xsavec64 64(%rsp)\ncall *%rax\nxrstor64 64(%rsp)\nadd $8, %rsp\njmp *%r11";
    assert_eq!(found_in(&function("f", body)).0, Found::default());
    assert_eq!(found_as(&function("f", body), Saves::All).0.sites.len(), 2);
    let (found, at) = found_in(&function("f", "here: xsave64 (%rdi)\nret"));
    assert_eq!(found.sites, [saves(at("here"), Kind::Xsave)]);
    let (found, at) = found_in(&function("f", "lfence\nhere: xrstor64 (%rdi)\nret"));
    assert_eq!(found, Found { sites: vec![saves(at("here"), Kind::Xrstor)], ..Found::default() });
}

/// What looks like a save and cannot be shown to be none keeps the file unread; the same of XGETBV
/// does not.
#[test]
fn what_is_not_understood_is_unread() {
    for (bytes, unread) in [
        ("0x0f, 0xae, 0x27", 1),
        ("0x0f, 0xae, 0x2f", 1),
        ("0x0f, 0xc7, 0x27", 1),
        ("0x0f, 0x01, 0xd0", 0),
    ] {
        let (found, _) =
            found_in(&(function("f", "ret") + &format!(".byte {bytes}\n") + &function("g", "ret")));
        assert_eq!((found.unverified, found.unread), (1, unread), "{bytes}");
    }
}

/// Each library of this machine that surely asks is found to.
#[test]
fn libraries_of_this_machine() {
    for name in ["ld-linux-x86-64.so.2", "libcrypto.so.3", "libgcc_s.so.1"] {
        let path = Path::new("/usr/lib/x86_64-linux-gnu").join(name);
        if !path.exists() {
            continue;
        }
        let found = find(&path).unwrap();
        let asks = found.sites.iter().any(|site| site.kind == Kind::Xgetbv);
        assert!(asks || name.starts_with("libgcc"), "{name}: {found:?}");
    }
}

#[test]
fn what_is_no_program_fails() {
    assert!(matches!(find(Path::new("/nowhere")), Err(DetectionError::File { .. })));
    assert!(matches!(find(Path::new("/etc/passwd")), Err(DetectionError::NotElf { .. })));
    assert!(find_in(&[], Saves::All, &Limits::default()).is_err());
    assert!(find_in(b"\x7fELF\x02\x01\x01", Saves::All, &Limits::default()).is_err());
}

/// A damaged file is an error or has no sites; it never ends the program.
#[test]
fn damaged_files() {
    let path = Path::new("/usr/lib/x86_64-linux-gnu/libgcc_s.so.1");
    let Ok(bytes) = std::fs::read(path) else { return };
    for seed in 0..100_u64 {
        let mut damaged = bytes.clone();
        for i in 0..8 {
            let mixed = (seed * 8 + i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            // Mostly in the headers, where it matters.
            let range = if i % 2 == 0 { 1024 } else { damaged.len() };
            damaged[(mixed >> 20) as usize % range] = mixed as u8;
        }
        let _ = find_in(&damaged, Saves::All, &Limits::default());
        let _ = find_in(
            &damaged[..(seed as usize * 131) % bytes.len()],
            Saves::All,
            &Limits::default(),
        );
    }
}

/// A function of `count` times these bytes, and no other.
fn repeated(bytes: &str, count: usize) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (input, library) = (dir.path().join("code.s"), dir.path().join("code.so"));
    std::fs::write(&input, function("f", &format!(".rept {count}\n.byte {bytes}\n.endr"))).unwrap();
    let linked =
        Command::new("cc").args(["-shared", "-nostdlib", "-o"]).args([&library, &input]).status();
    assert!(linked.unwrap().success());
    std::fs::read(&library).unwrap()
}

/// A function full of candidates is decoded once: what is done grows with its length, not with its
/// square.
#[test]
fn many_candidates_take_one_pass() {
    // mov $0x00d0010f, %eax: looks like xgetbv, and is none.
    let bytes = repeated("0xb8, 0x0f, 0x01, 0xd0, 0x00", 200_000);
    let limits = Limits { work_bytes: 2_000_000, ..Limits::default() };
    assert_eq!(find_in(&bytes, Saves::All, &limits).unwrap(), Found::default());
}

/// Who makes the search quadratic by real instructions is refused: by the work, or by the number of
/// probes.
#[test]
fn hostile_functions_fail() {
    let go = AtomicBool::new(false);
    // jmp to the next instruction, xgetbv: each needs a look at all branches.
    let asks = repeated("0xeb, 0x00, 0x0f, 0x01, 0xd0", 200_000);
    let saves = repeated("0x0f, 0xae, 0x27", 300_000);
    for bytes in [&asks, &saves] {
        let error = find_in(bytes, Saves::ExceptResolvers, &Limits::strict(&go)).unwrap_err();
        assert!(error.contains("probes") || error.contains("work"), "{error}");
    }
    let little = Limits { work_bytes: 2_000_000, ..Limits::default() };
    let error = find_in(&asks, Saves::All, &little).unwrap_err();
    assert!(error.contains("more work"), "{error}");
}

/// A search in progress ends on request.
#[test]
fn slow_scans_are_stopped() {
    let bytes = repeated("0xb8, 0x0f, 0x01, 0xd0, 0x00", 1000);
    let error = find_in(&bytes, Saves::All, &Limits::strict(&AtomicBool::new(true))).unwrap_err();
    assert!(error.contains("stopped"), "{error}");
}
