// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the functions that were found as marks.
//!
//! Not every function can be marked: a uprobe sits cheaply on few instructions (`sched::marks` says
//! which and why), and `turbolane run` refuses others. So each is tried here, as for the oldest
//! kernel. Nor is a part of a function marked, which is only jumped to: a return probe takes what
//! is on top of the stack for the return address. For both, marks at the functions that call it are
//! written, if they are all of them (`scan::callers`): a call of the marked function then counts as
//! wide from its entry to its return. What remains is written as a comment with the reason. By name
//! where the name finds it, by offset where not.
//!
//! Limits: a function that calls others by pointers, or that other files call, has callers that are
//! not known. A mark at a caller covers scalar code too; a comment names what it is for.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::{self, File as Opened};
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use report::problem::Problem;
use report::scan::{Confidence, File, Function, Marks, Scan};
use scan::{Callers, Limits, Reach, Start, Uncovered, callers};
use sched::config::{BuildId, Mark, MarkSite};
use sched::marks::{Emulation, MarkError, ResolvedMark, lasting_path, resolve_all};

use super::mapping::map;
use crate::failure::Failure;

const HEAD: &str = "\
# Functions that can raise the licence level, found by turbolane scan.
# Use: sudo turbolane run --marks THIS-FILE. Remove what your program never runs.
";

/// Kernels before 6.18 can do no more.
const OLDEST: Emulation = Emulation { nop5: false };
/// How many calls away from a function its mark may be. Each call further up covers more code that
/// is not wide.
const LEVELS_MAX: u32 = 4;
/// Functions that a comment names before the rest is only counted.
const NAMED_MAX: usize = 3;

/// Writes the file, and notes in the scan what its marks cover.
pub(super) fn write(path: &Path, scan: &mut Scan) -> Result<(), Failure> {
    let text: String = HEAD.to_string() + &scan.files.iter_mut().map(lines).collect::<String>();
    fs::write(path, text).map_err(|error| {
        let what = format!("cannot write the marks to {}", path.display());
        Failure::failed(Problem::new(what, error.to_string(), "name another file"))
    })
}

/// Notes in the scan what marks would cover.
pub(super) fn cover(scan: &mut Scan) {
    scan.files.par_iter_mut().for_each(|file| {
        let functions = wanted(file);
        if !functions.is_empty() && takes_marks(file, &functions) {
            file.marks = Some(Plan::of(file, &functions).share());
        }
    });
}

/// The functions that are to be marked.
fn wanted(file: &File) -> Vec<&Function> {
    let is_wide =
        |function: &&Function| function.license_level > 0 && function.confidence != Confidence::Low;
    file.listed.iter().filter(is_wide).collect()
}

/// Whether it is a program or a library.
fn takes_marks(file: &File, functions: &[&Function]) -> bool {
    functions.iter().all(|function| function.file_offset.is_some()) && file.kind != "object"
}

fn lines(file: &mut File) -> String {
    let functions = wanted(file);
    if functions.is_empty() {
        return String::new();
    }
    let mut text = format!("\n# {}\n", plain(&file.path));
    if !takes_marks(file, &functions) {
        text += "# neither a program nor a library: nothing in it can be marked\n";
        return text;
    }
    let plan = Plan::of(file, &functions);
    text += &plan.text(&functions);
    file.marks = Some(plan.share());
    text
}

/// How one function is reached.
enum Outcome {
    /// By a mark of its own.
    Own(ResolvedMark),
    /// By marks at so many functions.
    Callers(usize),
    /// It is not.
    Refused(Unfit, Option<Uncovered>),
}

/// Why a function has no mark of its own.
enum Unfit {
    /// There is no instruction for it.
    Site(MarkError),
    /// It is none, but a part of one.
    Part,
}

/// A mark at a function that others are called by.
struct Caller {
    symbol: Option<String>,
    level: u8,
    /// What it is for: indexes of functions.
    covers: Vec<usize>,
}

struct Plan {
    library: PathBuf,
    build_id: Option<BuildId>,
    /// One for each function.
    outcomes: Vec<Outcome>,
    /// By offset in the file.
    callers: BTreeMap<u64, Caller>,
}

type Tried = Result<ResolvedMark, MarkError>;

impl Plan {
    fn of(file: &File, functions: &[&Function]) -> Plan {
        let path = &file.path;
        let library = lasting_path(Path::new(path)).unwrap_or_else(|_| PathBuf::from(path));
        let offsets = functions.iter().map(|function| function.file_offset.unwrap_or_default());
        // of what was scanned: its path may be another file's here
        let build_id = file.build_id.as_deref().and_then(BuildId::short);
        let tried = resolve(&library, build_id.as_ref(), offsets);
        let outcomes = tried.into_iter().map(|tried| match tried {
            Ok(mark) => Outcome::Own(mark),
            Err(error) => Outcome::Refused(Unfit::Site(error), None),
        });
        let mut plan =
            Plan { library, build_id, outcomes: outcomes.collect(), callers: BTreeMap::new() };
        if let Some(graph) = graph(Path::new(path)) {
            for (outcome, function) in plan.outcomes.iter_mut().zip(functions) {
                if matches!(outcome, Outcome::Own(_)) && graph.is_part(function.address) {
                    *outcome = Outcome::Refused(Unfit::Part, None);
                }
            }
            plan.climb(functions, &graph);
        }
        plan
    }

    /// Finds marks at callers for the functions that are refused.
    fn climb(&mut self, functions: &[&Function], graph: &Callers) {
        let refused = |(at, outcome): (usize, &Outcome)| {
            matches!(outcome, Outcome::Refused(..)).then(|| functions[at].address)
        };
        let refused: Vec<u64> = self.outcomes.iter().enumerate().filter_map(refused).collect();
        let above = graph.above(&refused, LEVELS_MAX);
        let (library, build_id) = (&self.library, self.build_id.as_ref());
        let tried = resolve(library, build_id, above.iter().map(|start| start.file_offset));
        let sites: HashMap<u64, ResolvedMark> =
            tried.into_iter().flatten().map(|mark| (mark.entry_offset, mark)).collect();
        let is_markable = |start: Start| sites.contains_key(&start.file_offset);
        for (at, outcome) in self.outcomes.iter_mut().enumerate() {
            let Outcome::Refused(_, why) = outcome else { continue };
            let function = functions[at];
            match graph.cover(function.address, LEVELS_MAX, is_markable) {
                Ok(marks) => {
                    for start in &marks {
                        let symbol = || sites[&start.file_offset].symbol.clone();
                        let new = || Caller { symbol: symbol(), level: 0, covers: Vec::new() };
                        let caller = self.callers.entry(start.file_offset).or_insert_with(new);
                        caller.level = caller.level.max(function.license_level);
                        caller.covers.push(at);
                    }
                    *outcome = Outcome::Callers(marks.len());
                }
                Err(reason) => *why = Some(reason),
            }
        }
    }

    fn text(&self, functions: &[&Function]) -> String {
        let sites = self.sites(functions);
        let mark = |offset: u64, level: u8| {
            let site = sites.get(&offset).cloned().unwrap_or(MarkSite::Offset(offset));
            Mark { level: level.into(), ..mark_at(&self.library, site, self.build_id.as_ref()) }
        };
        let mut text = String::new();
        for (function, outcome) in functions.iter().zip(&self.outcomes) {
            let offset = function.file_offset.unwrap_or_default();
            let called = self.callers.get(&offset).map_or(0, |caller| caller.level);
            let mark = mark(offset, called.max(function.license_level));
            text += &line(function, outcome, &mark);
        }
        let is_own = |offset: &u64| functions.iter().any(|one| one.file_offset == Some(*offset));
        for (offset, caller) in self.callers.iter().filter(|(offset, _)| !is_own(offset)) {
            let purpose = purpose(caller, functions);
            text += &format!("{}  # {purpose}\n", mark(*offset, caller.level));
        }
        text
    }

    /// The names that find their function, by its offset in the file.
    fn sites(&self, functions: &[&Function]) -> HashMap<u64, MarkSite> {
        let own =
            functions.iter().filter_map(|one| Some((one.file_offset?, one.symbol.as_deref()?)));
        let callers = self.callers.iter();
        let callers = callers.filter_map(|(at, caller)| Some((*at, caller.symbol.as_deref()?)));
        let named = own.chain(callers);
        let (offsets, marks): (Vec<u64>, Vec<Mark>) = named
            .filter_map(|(offset, name)| {
                Some((offset, mark_at(&self.library, MarkSite::of_name(name)?, None)))
            })
            .unzip();
        let found = resolve_all(&marks, OLDEST, false);
        let is_it = |(offset, found): &(u64, Tried)| {
            found.as_ref().is_ok_and(|found| found.entry_offset == *offset)
        };
        let sites = marks.into_iter().map(|mark| mark.site);
        let tried = offsets.into_iter().zip(found).zip(sites);
        tried.filter(|(tried, _)| is_it(tried)).map(|((offset, _), site)| (offset, site)).collect()
    }

    fn share(&self) -> Marks {
        let mut share = Marks { functions: self.outcomes.len() as u64, ..Marks::default() };
        for outcome in &self.outcomes {
            match outcome {
                Outcome::Own(mark) if mark.skipped == 0 => share.at_entry += 1,
                Outcome::Own(_) => share.inside += 1,
                Outcome::Callers(_) => share.by_callers += 1,
                Outcome::Refused(..) => {}
            }
        }
        share.callers = self.callers.len() as u64;
        share.markable_pct = 100.0 * share.reached() as f64 / share.functions.max(1) as f64;
        share
    }
}

/// The graph of a file's functions; `None` where it cannot be read, which its scan has reported.
fn graph(path: &Path) -> Option<Callers> {
    let bytes = map(&Opened::open(path).ok()?).ok()?;
    callers(&bytes, &Limits::default()).ok()
}

fn resolve(
    library: &Path,
    build_id: Option<&BuildId>,
    offsets: impl Iterator<Item = u64>,
) -> Vec<Tried> {
    let mark = |offset| mark_at(library, MarkSite::Offset(offset), build_id);
    resolve_all(&offsets.map(mark).collect::<Vec<Mark>>(), OLDEST, false)
}

/// A mark, which by offset is for this build.
fn mark_at(library: &Path, site: MarkSite, build_id: Option<&BuildId>) -> Mark {
    let build_id = build_id.filter(|_| matches!(site, MarkSite::Offset(_))).cloned();
    Mark { file: library.to_path_buf(), site, level: 1, filter: None, build_id }
}

fn line(function: &Function, outcome: &Outcome, mark: &Mark) -> String {
    let name =
        function.name.as_deref().map_or(String::new(), |name| format!("  # {}", plain(name)));
    match outcome {
        Outcome::Own(_) if matches!(mark.site, MarkSite::Symbol(_)) => format!("{mark}\n"),
        Outcome::Own(_) => format!("{mark}{name}\n"),
        Outcome::Callers(1) => format!("# {mark}{name}: by the mark at its caller\n"),
        Outcome::Callers(marks) => format!("# {mark}{name}: by the marks at {marks} callers\n"),
        Outcome::Refused(error, None) => format!("# {mark}{name}: {error}\n"),
        Outcome::Refused(error, Some(why)) => {
            format!("# {mark}{name}: {error}; {}\n", reason(*why))
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Site(error) => error.fmt(f),
            Unfit::Part => f.write_str("a part of another function, which jumps to it"),
        }
    }
}

/// Why callers do not help.
fn reason(why: Uncovered) -> String {
    match why {
        Uncovered::Reached(at, Reach::Export) => {
            format!("not all callers are known: other files can call {at:#x}")
        }
        Uncovered::Reached(at, _) => {
            format!("not all callers are known: {at:#x} is called by pointer")
        }
        Uncovered::NoCaller(at) => format!("nothing is known that calls {at:#x}"),
        Uncovered::TooFar => format!("no mark is within {LEVELS_MAX} calls above it"),
    }
}

/// What a mark at a caller is for.
fn purpose(caller: &Caller, functions: &[&Function]) -> String {
    let name = |&at: &usize| match (&functions[at].name, functions[at].file_offset) {
        (Some(name), _) => plain(name),
        (None, offset) => format!("+{:#x}", offset.unwrap_or_default()),
    };
    let shown: Vec<String> = caller.covers.iter().take(NAMED_MAX).map(name).collect();
    let rest = match caller.covers.len() - shown.len() {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    format!("calls {}{rest}", shown.join(", "))
}

/// A name in a comment: it comes from the file or from an archive, and a line break in it would
/// begin a mark.
fn plain(name: &str) -> String {
    name.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_no_comment() {
        assert_eq!(plain("a\n/lib/b.so:f@2\u{1b}[31m"), "a?/lib/b.so:f@2?[31m");
    }
}
