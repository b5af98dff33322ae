// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `turbolane scan` found in programs and libraries.

mod html;
mod summary;
mod text;

use serde::{Deserialize, Serialize};

use crate::{SCHEMA, json_line};

/// How it is known that a function begins there, the most reliable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The symbol table (.symtab).
    Symtab,
    /// The exported symbols (.dynsym).
    Dynsym,
    /// The symbol table of a separate file with debugging information.
    DebugFile,
    /// The compressed symbol table of a stripped file (.gnu_debugdata).
    Debugdata,
    /// What a just-in-time compiler wrote for perf.
    PerfMap,
    /// The unwind table (.eh_frame).
    Unwind,
    /// An entry point: of the program, of a section of stubs.
    Entry,
    /// A pointer in relocations or data.
    Pointer,
    /// An instruction computes its address.
    Address,
    /// An instruction calls it, or jumps there.
    Call,
    /// It begins after the padding that follows another function, and ends as functions do.
    Padding,
    /// Nothing but what the bytes look like: what is found there is attributed to no function.
    Guess,
}

impl Source {
    /// All, in order.
    pub const ALL: [Source; 12] = [
        Source::Symtab,
        Source::Dynsym,
        Source::DebugFile,
        Source::Debugdata,
        Source::PerfMap,
        Source::Unwind,
        Source::Entry,
        Source::Pointer,
        Source::Address,
        Source::Call,
        Source::Padding,
        Source::Guess,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Source::Symtab => "symbols",
            Source::Dynsym => "exported symbols",
            Source::DebugFile => "debug file",
            Source::Debugdata => ".gnu_debugdata",
            Source::PerfMap => "perf map",
            Source::Unwind => "unwind table",
            Source::Entry => "entry points",
            Source::Pointer => "pointers",
            Source::Address => "addresses in code",
            Source::Call => "calls",
            Source::Padding => "padding",
            Source::Guess => "no function",
        }
    }

    /// The range of the function is stated by the file, not inferred.
    pub fn is_stated(self) -> bool {
        self <= Source::Unwind
    }
}

/// How far a finding can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// The file states the function's range.
    High,
    /// The function was found by following pointers, addresses and calls.
    Medium,
    /// It may be data that looks like code: no boundary is known, or no known branch leads there.
    Low,
}

impl Confidence {
    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Confidence::High => "high",
            Confidence::Medium => "medium",
            Confidence::Low => "low",
        }
    }
}

/// The widest vector register that is named.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Widest {
    /// None.
    #[default]
    None,
    /// 128 bits.
    Xmm,
    /// 256 bits.
    Ymm,
    /// 512 bits.
    Zmm,
}

impl Widest {
    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Widest::None => "-",
            Widest::Xmm => "xmm",
            Widest::Ymm => "ymm",
            Widest::Zmm => "zmm",
        }
    }
}

/// Instructions with VEX or EVEX prefix, by the length of their vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ByLength {
    /// 128 bits and scalars.
    pub xmm: u64,
    /// 256 bits.
    pub ymm: u64,
    /// 512 bits.
    pub zmm: u64,
}

/// How many instructions of which kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Counts {
    /// FP, integer multiplication, scatter.
    pub heavy: ByLength,
    /// All other vector instructions.
    pub light: ByLength,
    /// AMX.
    pub tile: u64,
    /// Those of AMX that multiply.
    pub tile_multiply: u64,
    /// Dot products of bytes and words.
    pub vnni: u64,
    /// Scatters.
    pub scatter: u64,
    /// Gathers.
    pub gather: u64,
}

impl Counts {
    /// Adds another's.
    pub fn add(&mut self, other: &Counts) {
        let lengths = [(&mut self.heavy, &other.heavy), (&mut self.light, &other.light)];
        for (sum, more) in lengths {
            sum.xmm += more.xmm;
            sum.ymm += more.ymm;
            sum.zmm += more.zmm;
        }
        self.tile += other.tile;
        self.tile_multiply += other.tile_multiply;
        self.vnni += other.vnni;
        self.scatter += other.scatter;
        self.gather += other.gather;
    }
}

/// A function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Function {
    /// Its name as people write it; `None` if the file does not say.
    pub name: Option<String>,
    /// Its name as linkers write it.
    pub symbol: Option<String>,
    /// Address in memory before relocation; in an object file the offset in its section.
    pub address: u64,
    /// Offset of its first byte in the file; `None` in memory and in members of archives.
    pub file_offset: Option<u64>,
    /// Its section, in object files, which have many.
    pub section: Option<String>,
    /// Its length.
    pub size_bytes: u64,
    /// Why it is taken to be a function.
    pub source: Source,
    /// How far to trust the finding.
    pub confidence: Confidence,
    /// Licence level that its most demanding instruction asks for: what it can reach.
    pub license_level: u8,
    /// Licence level if heavy instructions count only where they can be dense enough.
    pub sustained_level: u8,
    /// Widest register.
    pub widest: Widest,
    /// All its instructions.
    pub instructions: u64,
    /// Those that matter.
    pub counts: Counts,
    /// Heavy instructions of 256 bits and more per instruction, in its densest loop, or in the
    /// whole function if none is in a loop; `None` if it has none.
    pub heavy_frac: Option<f64>,
    /// Whether `heavy_frac` is that of a loop.
    pub in_loop: Option<bool>,
    /// Natural loops; `None` if no one looked: without heavy code of 256 bits, or too large.
    pub loops: Option<u32>,
    /// Returns that a dirty upper half reaches: `vzeroupper` is missing.
    pub dirty_returns: u32,
    /// Legacy SSE instructions that a dirty upper half reaches.
    pub dirty_sse: u32,
    /// Source file and line of its first instruction.
    pub line: Option<String>,
    /// Of a function without a name: the symbol before it, with the distance.
    #[serde(default)]
    pub near: Option<String>,
}

/// An instruction by which a program asks what the CPU can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Question {
    /// `cpuid`.
    Cpuid,
    /// `xgetbv`.
    Xgetbv,
}

/// Where it asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Check {
    /// The instruction.
    pub kind: Question,
    /// Its address before relocation.
    pub address: u64,
    /// Its offset in the file, as with functions.
    pub file_offset: Option<u64>,
    /// The function's name.
    pub function: Option<String>,
}

/// Wide instructions and functions by how the functions are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SourceShare {
    /// How they are known.
    pub source: Source,
    /// Functions.
    pub functions: u64,
    /// Instructions of 256 bits and more, and tiles, in them.
    pub wide_instructions: u64,
}

/// One program, library, object, archive member or process memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct File {
    /// Its path, with the member of an archive in parentheses.
    pub path: String,
    /// For people: "shared object", "executable", "object", "memory".
    pub kind: String,
    /// "x86-64" or "x86".
    pub architecture: String,
    /// Build id, in hexadecimal.
    pub build_id: Option<String>,
    /// Code in it.
    pub code_bytes: u64,
    /// Functions.
    pub functions: u64,
    /// Licence level that it can reach, guesses left out.
    pub license_level: u8,
    /// The same, if heavy instructions count only where they can be dense enough.
    pub sustained_level: u8,
    /// Widest register; `xmm` stands for none or xmm, which make no difference.
    pub widest: Widest,
    /// Sums over functions with wide instructions, guesses left out.
    pub counts: Counts,
    /// Functions that return with a dirty upper half.
    pub dirty_functions: u64,
    /// Functions by how they are known; those without any are left out.
    pub sources: Vec<SourceShare>,
    /// Share of wide instructions that are in a known function; `None` if there are none.
    pub coverage_pct: Option<f64>,
    /// Where it asks what the CPU can do.
    pub checks: Vec<Check>,
    /// Functions of the least level that was asked for, and above.
    pub found: u64,
    /// The same, those that were chosen, in the order that was chosen.
    pub listed: Vec<Function>,
    /// What could not be looked at.
    pub partial: Vec<String>,
    /// Running services that map it, and processes of none, most processes first; `null` if that
    /// was not looked for.
    #[serde(default)]
    pub mapped_by: Option<Vec<User>>,
    /// What the marks that were written cover; `null` if none were asked for.
    #[serde(default)]
    pub marks: Option<Marks>,
}

/// Functions of the least level that was asked for and above, by how a mark reaches them without
/// single-stepping.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Marks {
    /// All of them, guesses left out.
    pub functions: u64,
    /// The mark is at their first instruction.
    pub at_entry: u64,
    /// It is at a later one.
    pub inside: u64,
    /// Marks are at functions that call them, on every known path.
    pub by_callers: u64,
    /// Functions that are marked only because others are called by them.
    pub callers: u64,
    /// The share of functions that a mark reaches.
    pub markable_pct: f64,
}

impl Marks {
    /// Functions that a mark reaches.
    pub fn reached(&self) -> u64 {
        self.at_entry + self.inside + self.by_callers
    }
}

/// A service with processes that map a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct User {
    /// The service's unit, or the processes' name if they are in none.
    pub name: String,
    /// How many processes map the file.
    pub processes: u32,
}

/// Processes that were asked which files they map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Processes {
    /// Those that could be looked at.
    pub looked_at: u32,
    /// Those that only root may look at.
    pub refused: u32,
}

impl File {
    /// A file of which nothing but its size is known.
    pub fn new(path: &str, kind: &str, code_bytes: u64) -> Self {
        File {
            path: path.into(),
            kind: kind.into(),
            architecture: "x86-64".into(),
            build_id: None,
            code_bytes,
            functions: 0,
            license_level: 0,
            sustained_level: 0,
            widest: Widest::None,
            counts: Counts::default(),
            dirty_functions: 0,
            sources: Vec::new(),
            coverage_pct: None,
            checks: Vec::new(),
            found: 0,
            listed: Vec::new(),
            partial: Vec::new(),
            mapped_by: None,
            marks: None,
        }
    }
}

impl File {
    /// The same as a member of an archive: its offsets are those of no file.
    #[must_use]
    pub fn in_archive(mut self) -> Self {
        self.listed.iter_mut().for_each(|function| function.file_offset = None);
        self.checks.iter_mut().for_each(|check| check.file_offset = None);
        self
    }
}

/// What was passed over, for all folders and archives together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Skipped {
    /// No ELF files.
    pub not_elf: u64,
    /// For another kind of CPU.
    pub other_cpu: u64,
    /// ELF files that make no sense.
    pub broken: u64,
    /// Not readable.
    pub unreadable: u64,
    /// Without code: data, and the debugging half of stripped files.
    pub no_code: u64,
    /// Too big, or too much work.
    #[serde(default)]
    pub beyond_limits: u64,
}

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Scan {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// Functions below this level are not listed.
    pub least_level: u8,
    /// What was looked at.
    pub files: Vec<File>,
    /// What was not.
    pub skipped: Skipped,
    /// Whose mappings `mapped_by` is from; `null` if that was not looked for.
    #[serde(default)]
    pub processes: Option<Processes>,
}

/// A file as a document of its own.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Line<'a> {
    /// See [`SCHEMA`].
    schema: u32,
    /// Functions below this level are not listed.
    least_level: u8,
    /// What was looked at.
    #[serde(flatten)]
    file: &'a File,
}

impl Scan {
    /// A document without files.
    pub fn new(least_level: u8) -> Self {
        Scan {
            schema: SCHEMA,
            least_level,
            files: Vec::new(),
            skipped: Skipped::default(),
            processes: None,
        }
    }

    /// A line of JSON for each file, each with the line's end.
    pub fn json_lines(&self) -> String {
        let Scan { schema, least_level, .. } = *self;
        let line = |file| json_line(&Line { schema, least_level, file }) + "\n";
        self.files.iter().map(line).collect()
    }

    /// Functions of the least level and above, listed or not.
    pub fn found(&self) -> u64 {
        self.files.iter().map(|file| file.found).sum()
    }
}
