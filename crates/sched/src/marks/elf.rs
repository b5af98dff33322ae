// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions of an ELF file: by name or by file offset, with their bytes.

use std::cell::OnceCell;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use object::elf::{
    EM_X86_64, ET_DYN, ET_EXEC, PF_X, PT_LOAD, STT_FILE, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE,
    STT_SECTION, STT_TLS,
};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, Sym};
use object::{Endianness, Object, ObjectSymbol, SymbolIndex};

use super::error::MarkError;
use super::version::FileVersion;
use crate::config::BuildId;
use cpumodel::near_names;

/// A function that is longer is taken to be cut off: its end only bounds a search for branches.
const MAX_FUNCTION_BYTES: u64 = 1 << 20;

/// The longest file that is read: a browser with all its symbols passes. A sparse file may be far
/// longer, and reading it would take the machine's memory.
const FILE_MAX_BYTES: u64 = 2 << 30;

/// The bytes of a file.
pub(super) struct ElfFile {
    /// See [`lasting_path`].
    pub path: PathBuf,
    /// Its path as the user gave it: what errors show.
    pub given: PathBuf,
    /// What was read.
    pub version: FileVersion,
    bytes: Vec<u8>,
}

/// A function with its place.
#[derive(Debug)]
pub(super) struct Function<'a> {
    /// Its name, if the file has one.
    pub name: Option<String>,
    /// File offset of its entry, bytes.
    pub offset: u64,
    /// Its instructions.
    pub code: &'a [u8],
}

/// A parsed file.
pub(super) struct Image<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    segments: Vec<Segment>,
    symbols: Vec<Symbol<'a>>,
    stripped: bool,
    /// In hexadecimal; empty if the file has none.
    build_id: String,
    /// Where functions begin and end in memory, ascending; read when it is first asked for.
    extents: OnceCell<Vec<(u64, u64)>>,
}

/// A part of the file that is loaded into memory.
struct Segment {
    address: u64,
    offset: u64,
    size: u64,
    executable: bool,
}

struct Symbol<'a> {
    name: &'a str,
    kind: u8,
    defined: bool,
    address: u64,
    size: u64,
}

impl Symbol<'_> {
    fn is_function(&self) -> bool {
        self.kind == STT_FUNC && self.defined
    }
}

/// A path of this file from the root, without symbolic links. Below `/proc/PID/root`, a process's
/// root, links lead to names that may be another file's here, or nobody's: such a path stays.
pub fn lasting_path(path: &Path) -> io::Result<PathBuf> {
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino()));
    let given = identity(path)?;
    match fs::canonicalize(path) {
        Ok(canonical) if identity(&canonical).is_ok_and(|found| found == given) => Ok(canonical),
        _ => std::path::absolute(path),
    }
}

impl ElfFile {
    /// Reads the file.
    pub fn open(path: &Path) -> Result<Self, MarkError> {
        let unreadable = |source| MarkError::File { path: path.to_path_buf(), source };
        let canonical = lasting_path(path).map_err(unreadable)?;
        let (version, bytes) = read_bounded(&canonical, FILE_MAX_BYTES).map_err(unreadable)?;
        Ok(ElfFile { path: canonical, given: path.to_path_buf(), version, bytes })
    }

    /// Reads its segments and symbols.
    pub fn parse(&self) -> Result<Image<'_>, MarkError> {
        let refuse = |why: &str| MarkError::NotElf { path: self.given.clone(), why: why.into() };
        if !self.bytes.starts_with(b"\x7fELF") {
            return Err(refuse("it does not start like an ELF file"));
        }
        let elf = ElfFile64::<Endianness>::parse(self.bytes.as_slice())
            .map_err(|error| refuse(&error.to_string()))?;
        let (header, endian) = (elf.elf_header(), elf.endian());
        if header.e_machine(endian) != EM_X86_64 {
            return Err(refuse("it is for another kind of CPU"));
        }
        if !matches!(header.e_type(endian), ET_EXEC | ET_DYN) {
            return Err(refuse("it is not linked"));
        }
        let segments = elf
            .elf_program_headers()
            .iter()
            .filter(|segment| segment.p_type(endian) == PT_LOAD)
            .map(|segment| Segment {
                address: segment.p_vaddr(endian),
                offset: segment.p_offset(endian),
                size: segment.p_filesz(endian),
                executable: segment.p_flags(endian) & PF_X != 0,
            })
            .collect();
        let symbols = elf
            .symbols()
            .chain(elf.dynamic_symbols())
            .filter(|symbol| symbol.index() != SymbolIndex(0))
            .filter_map(|symbol| {
                let raw = symbol.elf_symbol();
                Some(Symbol {
                    name: symbol.name().ok()?,
                    kind: raw.st_type(),
                    defined: !raw.is_undefined(endian),
                    address: symbol.address(),
                    size: symbol.size(),
                })
            })
            .collect();
        let stripped = elf.symbols().next().is_none();
        let build_id = elf.build_id().ok().flatten().unwrap_or_default();
        Ok(Image {
            path: &self.given,
            bytes: &self.bytes,
            segments,
            symbols,
            stripped,
            build_id: build_id.iter().map(|byte| format!("{byte:02x}")).collect(),
            extents: OnceCell::new(),
        })
    }
}

/// The bytes of a regular file that has at most so many. Opening does not wait, as it would for the
/// other end of a pipe.
fn read_bounded(path: &Path, max_bytes: u64) -> io::Result<(FileVersion, Vec<u8>)> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let refuse = |why: String| Err(io::Error::other(why));
    let meta = file.metadata()?;
    if !meta.is_file() {
        return refuse("it is not a regular file".into());
    }
    if meta.len() > max_bytes {
        let (length, most) = (meta.len(), max_bytes);
        return refuse(format!(
            "it has {length} bytes, and more than {most} are not looked through"
        ));
    }
    // It may grow meanwhile.
    let mut bytes = Vec::new();
    file.take(max_bytes).read_to_end(&mut bytes)?;
    Ok((FileVersion::of(&meta), bytes))
}

impl<'a> Image<'a> {
    /// The function of that name.
    pub fn function_named(&self, name: &str) -> Result<Function<'a>, MarkError> {
        let (path, name_owned) = (self.path.to_path_buf(), name.to_string());
        let named: Vec<&Symbol> =
            self.symbols.iter().filter(|symbol| symbol.name == name).collect();
        let Some(any) = named.first() else {
            let functions = self.symbols.iter().filter(|symbol| symbol.is_function());
            let near = near_names(name, functions.map(|symbol| symbol.name));
            return Err(MarkError::NoSymbol {
                path,
                name: name_owned,
                near,
                stripped: self.stripped,
            });
        };
        let Some(symbol) = named.iter().find(|symbol| symbol.defined) else {
            return Err(MarkError::Imported { path, name: name_owned });
        };
        if let Some(kind) = no_function(any.kind) {
            return Err(MarkError::NotAFunction { path, name: name_owned, kind });
        }
        if symbol.kind == STT_GNU_IFUNC {
            return Err(MarkError::Indirect { path, name: name_owned });
        }
        let mut offsets = named
            .iter()
            .filter(|symbol| symbol.defined)
            .map(|symbol| self.offset_of(symbol.address))
            .collect::<Result<Vec<u64>, MarkError>>()?;
        offsets.sort_unstable();
        offsets.dedup();
        match offsets[..] {
            [offset] => self.function(Some(name_owned), offset, symbol.address, symbol.size),
            _ => Err(MarkError::Ambiguous { path, name: name_owned, offsets }),
        }
    }

    /// Which build the file is, if it says so.
    pub fn build_id(&self) -> Option<BuildId> {
        BuildId::short(&self.build_id)
    }

    /// The function whose entry is at file offset `offset`. In another build there may be the
    /// middle of an instruction, which a probe would change: so either this is the build that is
    /// meant, or the file has to show an entry there.
    pub fn function_at(
        &self,
        offset: u64,
        build: Option<&BuildId>,
    ) -> Result<Function<'a>, MarkError> {
        if let Some(meant) = build.filter(|build| !build.is_of(&self.build_id)) {
            return Err(MarkError::OtherBuild {
                path: self.path.to_path_buf(),
                meant: meant.clone(),
                found: self.build_id(),
            });
        }
        let segment = self.executable_segment(offset)?;
        let address = segment.address + (offset - segment.offset);
        let mut functions = self.symbols.iter().filter(|symbol| symbol.is_function());
        if let Some(symbol) = functions.clone().find(|symbol| symbol.address == address) {
            return self.function(Some(symbol.name.into()), offset, address, symbol.size);
        }
        let around = functions
            .find(|symbol| symbol.address < address && address - symbol.address < symbol.size);
        match around {
            Some(symbol) => Err(MarkError::NotAnEntry {
                path: self.path.to_path_buf(),
                offset,
                function: symbol.name.to_string(),
                entry_offset: self.offset_of(symbol.address)?,
            }),
            None if build.is_some() || self.begins_at(address) => {
                self.function(None, offset, address, 0)
            }
            None => Err(MarkError::UnknownEntry {
                path: self.path.to_path_buf(),
                offset,
                build_id: self.build_id(),
            }),
        }
    }

    /// Whether the table for unwinding, or a symbol, has a function that begins there. A label
    /// within a function is none.
    fn begins_at(&self, address: u64) -> bool {
        let is_there = |symbol: &Symbol| symbol.defined && symbol.address == address;
        let mut named = self.symbols.iter().filter(|symbol| is_there(symbol));
        let is_named = named.any(|symbol| no_function(symbol.kind).is_none());
        let extents = self.extents.get_or_init(|| {
            let image = scan::segments::Image::parse(self.bytes);
            image.map_or_else(|_| Vec::new(), |image| image.extents().collect())
        });
        let next = extents.partition_point(|(start, _)| *start <= address);
        let Some((start, end)) = next.checked_sub(1).map(|last| extents[last]) else {
            return is_named;
        };
        start == address || is_named && address >= end
    }

    /// A function with its bytes, up to its size, or where that is unknown to the next function.
    fn function(
        &self,
        name: Option<String>,
        offset: u64,
        address: u64,
        size: u64,
    ) -> Result<Function<'a>, MarkError> {
        let segment = self.executable_segment(offset)?;
        let left = segment.offset + segment.size - offset;
        let to_next = self
            .symbols
            .iter()
            .filter(|symbol| symbol.is_function() && symbol.address > address)
            .map(|symbol| symbol.address - address)
            .min()
            .unwrap_or(left);
        let length = if size > 0 { size } else { to_next }.min(left).min(MAX_FUNCTION_BYTES);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let code = self.bytes.get(start..).unwrap_or_default();
        Ok(Function { name, offset, code: &code[..code.len().min(length as usize)] })
    }

    fn offset_of(&self, address: u64) -> Result<u64, MarkError> {
        self.segments
            .iter()
            .find(|segment| address >= segment.address && address - segment.address < segment.size)
            .map(|segment| segment.offset + (address - segment.address))
            .ok_or(MarkError::NotExecutable { path: self.path.to_path_buf(), offset: address })
    }

    fn executable_segment(&self, offset: u64) -> Result<&Segment, MarkError> {
        self.segments
            .iter()
            .filter(|segment| segment.executable)
            .find(|segment| offset >= segment.offset && offset - segment.offset < segment.size)
            .ok_or(MarkError::NotExecutable { path: self.path.to_path_buf(), offset })
    }
}

/// What a symbol is if it cannot be a function. Assemblers leave functions without a type.
fn no_function(kind: u8) -> Option<&'static str> {
    match kind {
        STT_FUNC | STT_GNU_IFUNC | STT_NOTYPE => None,
        STT_SECTION => Some("a section"),
        STT_FILE => Some("the name of a source file"),
        STT_TLS => Some("thread-local data"),
        _ => Some("data"),
    }
}
