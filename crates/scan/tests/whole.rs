// SPDX-License-Identifier: MIT OR Apache-2.0
//! Complete libraries: instruction by instruction against objdump and llvm-objdump, and with bytes
//! changed at random.

mod common;

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use common::all;
use proptest::prelude::*;
use scan::{Width, scan_file, widths};

/// Libraries that this machine has; each Debian machine has the first.
fn libraries() -> Vec<PathBuf> {
    let folder = PathBuf::from("/lib/x86_64-linux-gnu");
    let names = ["libc.so.6", "libm.so.6", "libcrypto.so.3"];
    let found: Vec<PathBuf> =
        names.iter().map(|name| folder.join(name)).filter(|path| path.exists()).collect();
    assert!(!found.is_empty(), "no C library in {}", folder.display());
    found
}

fn width_of(text: &str) -> Width {
    [("%zmm", Width::Zmm), ("%ymm", Width::Ymm), ("%xmm", Width::Xmm)]
        .into_iter()
        .find(|(name, _)| text.contains(name))
        .map_or(Width::None, |(_, width)| width)
}

/// `  address:<tab>instruction`, as both disassemblers print it.
fn disassembled(program: &str, path: &PathBuf) -> Option<HashMap<u64, String>> {
    let mut command = Command::new(program);
    let output = command.args(["-d", "--no-show-raw-insn"]).arg(path).output().ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |line: &str| {
        let (address, instruction) = line.split_once(':')?;
        let address = u64::from_str_radix(address.trim(), 16).ok()?;
        Some((address, instruction.trim().to_string()))
    };
    Some(text.lines().filter_map(line).collect())
}

/// Every instruction of every function names the register that the disassembler prints, and is one.
fn compare(program: &str) {
    for path in libraries() {
        let Some(theirs) = disassembled(program, &path) else {
            eprintln!("skipped: there is no {program}");
            return;
        };
        let (mut same, mut vectors, mut elsewhere) = (0u64, 0u64, 0u64);
        let bytes = fs::read(&path).unwrap();
        widths(&bytes, |address, width| match theirs.get(&address) {
            // What one of both does not know ("(bad)", "<unknown>", ".byte") is no register.
            Some(text)
                if text.contains("bad") || text.contains("unknown") || text.starts_with('.') =>
            {
                elsewhere += 1;
            }
            Some(text) => {
                assert_eq!(width, width_of(text), "{} {address:#x}: {text}", path.display());
                same += 1;
                vectors += u64::from(width > Width::Xmm);
            }
            None => elsewhere += 1,
        })
        .unwrap();
        println!(
            "{} {program}: {same} alike, {vectors} of them wide, {elsewhere} elsewhere",
            path.display()
        );
        assert!(same > 10_000 && elsewhere * 200 < same, "{elsewhere} of {same} are elsewhere");
    }
}

#[test]
fn registers_are_those_of_objdump() {
    compare("objdump");
}

#[test]
fn registers_are_those_of_llvm_objdump() {
    compare("llvm-objdump");
}

/// The result does not depend on the number of threads.
#[test]
fn threads_make_no_difference() {
    let bytes = fs::read(&libraries()[0]).unwrap();
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| scan_file("test", &bytes, &all()).unwrap())
    };
    assert_eq!(with(1), with(3));
}

/// Longest time for a file of less than a megabyte, however it is broken, on a machine that is
/// busy.
const PATIENCE: Duration = Duration::from_secs(20);

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// A library with bytes changed anywhere, headers among them, or cut: no panic, and an end.
    #[test]
    fn mutated_files(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..200),
        in_headers in prop::collection::vec((0usize..0x400, any::<u8>()), 0..8),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = fs::read(smallest()).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for (at, byte) in in_headers {
            if at >= 20 {
                bytes[at] = byte; // the machine stays what it is
            }
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let begun = Instant::now();
        _ = scan_file("mutated", &bytes, &all());
        prop_assert!(begun.elapsed() < PATIENCE);
    }

    /// Headers that place sections and segments anywhere: over each other, at the end of all
    /// addresses.
    #[test]
    fn mutated_headers(changes in prop::collection::vec(header_change(), 1..6), stripped: bool) {
        let mut bytes = fs::read(smallest()).unwrap();
        for change in changes {
            change.apply(&mut bytes);
        }
        if stripped {
            bytes[0x3c..0x3e].fill(0); // number of sections: the segments are scanned
        }
        let begun = Instant::now();
        _ = scan_file("mutated", &bytes, &all());
        prop_assert!(begun.elapsed() < PATIENCE);
    }

    /// Code of random bytes, without any boundary.
    #[test]
    fn random_code(code in prop::collection::vec(any::<u8>(), 1..20_000)) {
        let begun = Instant::now();
        _ = scan::scan_memory("random", 0x1000, &code, &[], &all());
        prop_assert!(begun.elapsed() < PATIENCE);
    }
}

/// A field of eight bytes in a program header or a section header, and what becomes of it.
#[derive(Clone, Debug)]
struct HeaderChange {
    of_section: bool,
    entry: prop::sample::Index,
    field: usize,
    base: u64,
    delta: i8,
}

fn header_change() -> impl Strategy<Value = HeaderChange> {
    let bases = [0, 0x1000, 0x2000, 1 << 31, 1 << 47, u64::MAX / 2, u64::MAX - 0x1000, u64::MAX];
    let base = prop::sample::select(bases.to_vec());
    (any::<bool>(), any::<prop::sample::Index>(), 1usize..6, base, any::<i8>()).prop_map(
        |(of_section, entry, field, base, delta)| HeaderChange {
            of_section,
            entry,
            field,
            base,
            delta,
        },
    )
}

impl HeaderChange {
    fn apply(&self, bytes: &mut [u8]) {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        let half = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        // Of ELF64: offset of the table, length of an entry, their number.
        let (table, length, entries) = if self.of_section {
            (word(0x28), half(0x3a), half(0x3c))
        } else {
            (word(0x20), half(0x36), half(0x38))
        };
        let at = table + self.entry.index(entries) * length + 8 * self.field;
        let value = self.base.wrapping_add_signed(self.delta.into());
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
}

/// The C library's companions are small.
fn smallest() -> PathBuf {
    let names = ["libdl.so.2", "libutil.so.1", "libm.so.6", "libc.so.6"];
    let folder = PathBuf::from("/lib/x86_64-linux-gnu");
    names.iter().map(|name| folder.join(name)).find(|path| path.exists()).expect("a C library")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Memory at any address, the last ones among them, with a map for perf of any content: no
    /// panic.
    #[test]
    fn memory_lies_anywhere(
        address: u64,
        below_the_end in 0u64..9000,
        map in "([0-9a-f]{1,3} [0-9a-f]{1,2} f\n){0,8}",
        code in prop::collection::vec(any::<u8>(), 1..600),
    ) {
        let symbols = scan::parse_perf_map(&map);
        for address in [address, u64::MAX - below_the_end, 0x100] {
            let end = address.checked_add(code.len() as u64);
            let fits = end.is_some_and(|end| end <= u64::MAX - 0xfff);
            let error = scan::scan_memory("random", address, &code, &symbols, &all()).err();
            let told = error.map(|error| error.to_string());
            prop_assert_eq!(told.is_none(), fits, "{:?}", told);
        }
    }
}
