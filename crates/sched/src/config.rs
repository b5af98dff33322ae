// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run is asked to do, and how each setting is written on the command line.

use std::path::PathBuf;

use policy::Rule;

/// Which CPUs are wide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WideCpus {
    /// These CPUs; the siblings of a named CPU are added, since a core has one licence.
    List(cpumodel::CpuSet),
    /// This many whole cores, the last ones of each node in turn
    /// ([`cpumodel::Topology::wide_order`]).
    Cores(usize),
    /// As many whole cores as the measured demand asks for (THESIS 4.3).
    Auto,
}

/// What ends a wide period (THESIS 4.4). The explicit ends (hint, uprobe return) always
/// end a period that they opened; the others are added to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Remigrate {
    /// At the entry of the next system call, which then runs on a scalar CPU.
    pub syscall_entry: bool,
    /// At the return of the next system call.
    pub syscall_return: bool,
    /// At the first context switch after the task ran on a wide CPU.
    pub context_switch: bool,
    /// This long after the last event that made the task wide, ns; `None`: no such limit.
    pub timeout_ns: Option<u64>,
    /// At an explicit end only where the task has not learned that its scalar code is short
    /// (policy/gap.h).
    pub gap: bool,
    /// At the entry of a section's last system call, where the task has learned which one that is
    /// (policy/last.h).
    pub last_syscall: bool,
}

/// How scalar and wide code are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The sched_ext scheduler.
    Scx,
    /// `sched_setaffinity` on hinted threads, from user space.
    Affinity,
    /// `Scx` where the kernel has it, else `Affinity`.
    Auto,
}

/// A function that is wide code: `FILE:FUNCTION` or `FILE:+0xOFFSET`, with an optional `@LEVEL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The ELF file, as given.
    pub file: PathBuf,
    /// The function.
    pub site: MarkSite,
    /// Licence level of the function's code, 1..=3.
    pub level: u32,
    /// Which of its calls count; `None`: all.
    pub filter: Option<MinArg>,
    /// The build of the file that an offset is for.
    pub build_id: Option<BuildId>,
}

/// The beginning of a file's build id, in hexadecimal: which build of it is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildId(String);

impl BuildId {
    /// Fewest digits that mean one build.
    pub const LEAST_DIGITS: usize = 8;
    /// Digits that are written: 64 bits.
    const DIGITS: usize = 16;

    /// By these digits, at least [`BuildId::LEAST_DIGITS`].
    pub fn of_digits(digits: &str) -> Option<Self> {
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let is_enough = digits.len() >= Self::LEAST_DIGITS;
        (is_hex && is_enough).then(|| BuildId(digits.to_ascii_lowercase()))
    }

    /// The beginning of this id, in hexadecimal, which is enough; `None` if it is too short to mean
    /// anything.
    pub fn short(id: &str) -> Option<Self> {
        Self::of_digits(id.get(..id.len().min(Self::DIGITS))?)
    }

    /// Whether a file with this id, in hexadecimal, is that build.
    pub fn is_of(&self, id: &str) -> bool {
        id.starts_with(&self.0)
    }

    /// The digits.
    pub fn digits(&self) -> &str {
        &self.0
    }
}

/// Of a marked function only the calls with a large enough argument count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinArg {
    /// Integer argument, counted from 1, at most [`policy::MARK_ARGS`].
    pub arg: u32,
    /// Its least value; its lower 32 bits are compared, without a sign.
    pub least: u32,
}

/// Where in its file a mark is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkSite {
    /// A symbol of .symtab or .dynsym.
    Symbol(String),
    /// A file offset, bytes.
    Offset(u64),
}

/// What scalar CPUs withhold from user code, so that its use traps (kmod/).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Components {
    /// Nothing; no module is loaded.
    None,
    /// Mask and 512-bit registers.
    Avx512,
    /// The same and 256-bit registers.
    Avx,
    /// Tiles.
    Amx,
}

/// What is done about a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrapMode {
    /// It is counted, and the task left alone for a while.
    Count,
    /// A task that uses what is heavy moves; others are left alone for a while.
    Grace,
    /// Every task that traps moves.
    Steer,
}

/// Type of user tasks that neither an event nor a parent has classified (SYSTOR 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unclassified {
    /// Shares scalar and wide CPUs alike.
    Default,
    /// Kept off the wide CPUs while these have wide work.
    Scalar,
}

/// Whether power scores show what is wide (policy/score.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scores {
    /// Where the CPU counts licence levels, and neither marks nor traps are used.
    Auto,
    /// Yes, or the run fails.
    On,
    /// No.
    Off,
}

/// Where an application's own figure comes from, which decides whether wide code is kept apart
/// (policy/goal.h).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// There is none: the scheduler estimates what is lost and won.
    None,
    /// The first number in a file.
    File(PathBuf),
    /// The first number that a shell command prints.
    Command(String),
}

/// What such a figure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoalKind {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// It counts: the faster it grows, the better.
    Counter,
}

/// Which tasks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selector {
    /// Those of a unit of the system's systemd, and below it; the name with its ending.
    Unit(String),
    /// Those of a control group and below it; the path from the root of all groups, `/a/b`.
    Group(String),
    /// Those of this name, the kernel's (`comm`), of up to 15 bytes.
    Name(String),
}

/// Selectors of one kind of rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors(pub Vec<Selector>);

/// Selectors of wide tasks, with their licence levels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WideSelectors(pub Vec<(Selector, u8)>);

/// What the user has decided about tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Wide all the time.
    pub wide: WideSelectors,
    /// Scalar, whatever they do.
    pub scalar: Selectors,
    /// Sharing all CPUs, whatever they do.
    pub alone: Selectors,
}

impl Scope {
    /// Whether there are rules for units or control groups.
    pub fn names_groups(&self) -> bool {
        self.rules().any(|(selector, _)| !matches!(selector, Selector::Name(_)))
    }

    /// All rules, in the order in which they are written.
    pub fn rules(&self) -> impl Iterator<Item = (&Selector, Rule)> {
        let wide = self.wide.0.iter().map(|(selector, level)| (selector, Rule::Wide(*level)));
        let scalar = self.scalar.0.iter().map(|selector| (selector, Rule::Scalar));
        wide.chain(scalar).chain(self.alone.0.iter().map(|selector| (selector, Rule::Alone)))
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules().next().is_none()
    }
}

/// All settings of a run; `settings.rs` says which can be changed while it runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which CPUs are wide.
    pub wide_cpus: WideCpus,
    /// One class of wide CPUs per licence level instead of one for all.
    pub tiers: bool,
    /// What ends a wide period.
    pub remigrate: Remigrate,
    /// Time a scalar or default task may run before others get their turn, ns.
    pub slice_ns: u64,
    /// The same for wide tasks, ns.
    pub slice_wide_ns: u64,
    /// How long a task stays wide with no open section and no new event, ns: the fallback
    /// after every heuristic.
    pub wide_timeout_ns: u64,
    /// Scalar phases announced to be shorter are spent where the task is, ns; 0 is none.
    pub rest_below_ns: u64,
    /// Type of tasks no one classified.
    pub unclassified: Unclassified,
    /// Tasks that the user has classified.
    pub scope: Scope,
    /// What scalar CPUs withhold.
    pub trap: Components,
    /// What is done about a trap.
    pub trap_mode: TrapMode,
    /// Licence level from which a trapped instruction is wide, 1..=3.
    pub trap_level: u32,
    /// Whether power scores show what is wide.
    pub scores: Scores,
    /// The application's own figure.
    pub goal: Goal,
    /// What it means.
    pub goal_kind: GoalKind,
    /// How often it is read, ns.
    pub goal_every_ns: u64,
    /// Functions that are wide code.
    pub marks: Vec<Mark>,
    /// Accept marks whose first instruction the kernel must single-step (20 times slower).
    pub force_single_step: bool,
    /// Scheduler or affinity.
    pub mode: Mode,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            wide_cpus: WideCpus::Auto,
            tiers: false,
            remigrate: Remigrate::default(),
            slice_ns: 5_000_000,
            slice_wide_ns: 5_000_000,
            wide_timeout_ns: policy::WIDE_TIMEOUT_NS,
            // there and back by sched_setaffinity, median: 15.6 us on the development machine
            rest_below_ns: 15_000,
            unclassified: Unclassified::Default,
            scope: Scope::default(),
            trap: Components::None,
            trap_mode: TrapMode::Grace,
            trap_level: 2,
            scores: Scores::Auto,
            goal: Goal::None,
            goal_kind: GoalKind::Higher,
            goal_every_ns: 1_000_000_000,
            marks: Vec::new(),
            force_single_step: false,
            mode: Mode::Auto,
        }
    }
}
