// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a guest in Bochs gets its kernel: Bochs puts kernel, initramfs and what the kernel must know
//! into its memory, and a boot sector enters the kernel by the PVH boot protocol
//! (`include/xen/interface/hvm/start_info.h` in the kernel's source, Xen's `docs/misc/pvh.pandoc`).
//! A boot loader would read them through the BIOS, a sector at a time, and the kernel would unpack
//! itself: half of a boot.
//!
//! | address | what |
//! |---|---|
//! | where the kernel says | the kernel |
//! | [`INFO`] | a page: start info, memory map, module list, command line |
//! | [`INITRAMFS`] | the initramfs |

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use object::LittleEndian;
use object::elf::PT_LOAD;
use object::read::elf::{ElfFile64, ProgramHeader};

/// Behind any kernel, which begins at 16 MiB.
pub(super) const INITRAMFS: u64 = 256 << 20;
/// Below it.
pub(super) const INFO: u64 = INITRAMFS - PAGE;

const PAGE: u64 = 4096;

/// Where parts of the page are.
const MAP_AT: usize = 64;
const MODULES_AT: usize = 256;
const COMMAND_LINE_AT: usize = 512;

/// Above it devices begin.
const MEMORY_MAX: u64 = 3 << 30;
/// At the end of the memory the BIOS keeps its ACPI tables.
const ACPI_BYTES: u64 = 0x1_0000;

/// The kind of note in which a kernel names its entry (`XEN_ELFNOTE_PHYS32_ENTRY`).
const PHYS32_ENTRY: u32 = 18;

/// Kinds of memory, as in a BIOS' map.
const RAM: u32 = 1;
const RESERVED: u32 = 2;
const ACPI: u32 = 3;

/// A kernel as it lies in memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kernel {
    /// Address of its first byte.
    pub(super) base: u64,
    /// Where it is entered.
    pub(super) entry: u32,
    pub(super) bytes: Vec<u8>,
}

impl Kernel {
    /// Reads an ELF file such as `vmlinux`.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let file = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        parse(&file).with_context(|| format!("{} is no kernel with a PVH entry", path.display()))
    }

    /// The first sector of a disk, which enters it.
    pub(super) fn boot_sector(&self) -> [u8; 512] {
        let (info, entry) = ((INFO as u32).to_le_bytes(), self.entry.to_le_bytes());
        let mut code = vec![
            0xfa, // cli
            0x31, 0xc0, // xor ax, ax
            0x8e, 0xd8, // mov ds, ax
            0x0f, 0x01, 0x16, 0x40, 0x7c, // lgdt [0x7c40]
            0x0f, 0x20, 0xc0, // mov eax, cr0
            0x0c, 0x01, // or al, 1
            0x0f, 0x22, 0xc0, // mov cr0, eax
            0xea, 0x17, 0x7c, 0x08,
            0x00, // jmp 8:0x7c17, the next instruction: 32 bits from here
            0x66, 0xb8, 0x10, 0x00, // mov ax, 16
            0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, // mov ds, ax; mov es, ax; mov ss, ax
        ];
        code.push(0xbb); // mov ebx, info
        code.extend(info);
        code.push(0xb8); // mov eax, entry
        code.extend(entry);
        code.extend([0xff, 0xe0]); // jmp eax
        let mut sector = [0; 512];
        sector[..code.len()].copy_from_slice(&code);
        // The table of segments and where it is: none, flat code, flat data.
        sector[0x40..0x46].copy_from_slice(&[23, 0, 0x48, 0x7c, 0, 0]);
        let segments = [0, 0x00cf_9a00_0000_ffff_u64, 0x00cf_9200_0000_ffff];
        for (place, segment) in sector[0x48..0x60].chunks_exact_mut(8).zip(segments) {
            place.copy_from_slice(&segment.to_le_bytes());
        }
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        sector
    }
}

/// Segments of an ELF file that have a place in memory, and the entry that its note names.
fn parse(file: &[u8]) -> Option<Kernel> {
    let elf = ElfFile64::<LittleEndian>::parse(file).ok()?;
    let headers = elf.elf_program_headers();
    let loaded: Vec<(u64, &[u8])> = headers
        .iter()
        .filter(|header| header.p_type(LittleEndian) == PT_LOAD)
        .map(|header| Some((header.p_paddr(LittleEndian), header.data(LittleEndian, file).ok()?)))
        .collect::<Option<_>>()?;
    let entry = headers.iter().find_map(|header| {
        let mut notes = header.notes(LittleEndian, file).ok()??;
        while let Some(note) = notes.next().ok()? {
            if note.name() == b"Xen" && note.n_type(LittleEndian) == PHYS32_ENTRY {
                return Some(u32::from_le_bytes(note.desc().get(..4)?.try_into().ok()?));
            }
        }
        None
    })?;
    let base = loaded.iter().map(|(address, _)| *address).min()?;
    let mut bytes = Vec::new();
    for (address, segment) in loaded {
        let at = usize::try_from(address - base).ok()?;
        bytes.resize(bytes.len().max(at + segment.len()), 0);
        bytes[at..at + segment.len()].copy_from_slice(segment);
    }
    Some(Kernel { base, entry, bytes })
}

/// The page that tells the kernel about its machine.
pub(super) fn info(memory_mib: u32, initramfs_bytes: u64, command_line: &str) -> Result<Vec<u8>> {
    let memory = u64::from(memory_mib) << 20;
    ensure!(memory <= MEMORY_MAX, "a guest in Bochs has {} MiB at most", MEMORY_MAX >> 20);
    ensure!(
        INITRAMFS + initramfs_bytes < memory - ACPI_BYTES,
        "{memory_mib} MiB are too little for the guest's kernel and files"
    );
    let room = PAGE as usize - COMMAND_LINE_AT;
    ensure!(command_line.len() < room, "the kernel's command line has {room} bytes or more");
    let map = [
        (0, 0x9_f000, RAM),
        (0x9_f000, 0x1000, RESERVED),
        (0xe_8000, 0x1_8000, RESERVED),
        (0x10_0000, memory - ACPI_BYTES - 0x10_0000, RAM),
        (memory - ACPI_BYTES, ACPI_BYTES, ACPI),
        (0xfffc_0000, 0x4_0000, RESERVED),
    ];
    let mut page = vec![0; PAGE as usize];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &0x336e_c578_u32.to_le_bytes());
    put(4, &1_u32.to_le_bytes()); // the version, which has a map
    put(12, &1_u32.to_le_bytes()); // modules
    let at = |part: usize| (INFO + part as u64).to_le_bytes();
    put(16, &at(MODULES_AT));
    put(24, &at(COMMAND_LINE_AT));
    put(40, &at(MAP_AT));
    put(48, &(map.len() as u32).to_le_bytes());
    for (index, (address, bytes, kind)) in map.into_iter().enumerate() {
        let entry = MAP_AT + 24 * index;
        put(entry, &u64::to_le_bytes(address));
        put(entry + 8, &u64::to_le_bytes(bytes));
        put(entry + 16, &kind.to_le_bytes());
    }
    put(MODULES_AT, &INITRAMFS.to_le_bytes());
    put(MODULES_AT + 8, &initramfs_bytes.to_le_bytes());
    put(COMMAND_LINE_AT, command_line.as_bytes());
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with segments of a kind at an address.
    fn elf(segments: &[(u32, u64, &[u8])]) -> Vec<u8> {
        let mut file = vec![0; 64 + 56 * segments.len()];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        file[32] = 64;
        file[54] = 56;
        file[56] = segments.len() as u8;
        for (index, (kind, address, bytes)) in segments.iter().enumerate() {
            let (header, offset) = (64 + 56 * index, file.len() as u64);
            file[header..header + 4].copy_from_slice(&kind.to_le_bytes());
            file[header + 8..header + 16].copy_from_slice(&offset.to_le_bytes());
            file[header + 24..header + 32].copy_from_slice(&address.to_le_bytes());
            file[header + 32..header + 40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            file.extend_from_slice(bytes);
        }
        file
    }

    fn note(name: &[u8], kind: u32, value: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [name.len() as u32, value.len() as u32, kind] {
            note.extend(word.to_le_bytes());
        }
        for part in [name, value] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn segments_lie_where_they_belong() {
        let notes =
            [note(b"GNU\0", 18, &[9; 6]), note(b"Xen\0", 18, &0x0100_0010_u32.to_le_bytes())];
        let file =
            elf(&[(1, 0x100_0008, b"data"), (4, 0, &notes.concat()), (1, 0x100_0000, b"code")]);
        let kernel = parse(&file).unwrap();
        assert_eq!((kernel.base, kernel.entry), (0x100_0000, 0x100_0010));
        assert_eq!(kernel.bytes, b"code\0\0\0\0data");
    }

    #[test]
    fn what_is_no_kernel_is_refused() {
        assert_eq!(parse(b"MZ"), None);
        assert_eq!(parse(&elf(&[(1, 0x100_0000, b"code")])), None, "no note");
        let file = elf(&[(1, 0, b"code"), (4, 0, &note(b"Xen\0", 18, &[1, 2, 3, 4]))]);
        for length in 0..file.len() {
            let _ = parse(&file[..length]);
        }
    }

    #[test]
    fn a_boot_sector_is_one() {
        let kernel = Kernel { base: 0x100_0000, entry: 0x1234_5678, bytes: Vec::new() };
        let sector = kernel.boot_sector();
        assert_eq!(sector[510..], [0x55, 0xaa]);
        let entry = sector.windows(5).any(|bytes| bytes == [0xb8, 0x78, 0x56, 0x34, 0x12]);
        assert!(entry);
        assert_eq!(sector[0x17], 0x66, "the far jump leads to the code behind it");
    }

    #[test]
    fn files_must_fit_into_the_memory() {
        assert!(info(2048, 64 << 20, "quiet").is_ok());
        assert!(info(300, 64 << 20, "quiet").is_err());
        assert!(info(4096, 0, "quiet").is_err());
        assert!(info(2048, 0, &"x".repeat(3600)).is_err());
    }
}
