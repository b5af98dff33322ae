// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the file's tables to a workload: names become indices, and what makes no sense is refused
//! with its line, what is wrong, and what to do.

mod group;

use std::collections::BTreeMap;
use std::ops::Range;

use cpumodel::{DataError, InsnClass};
use toml::Spanned;

use super::file::{Amount, CodeTable, GroupTable, Question, ScenarioFile, SourceTable, StepTable};
use crate::program::{
    Arrivals, Group, LockKind, OWN_INBOX, Queue, REPEAT_SLOTS, Source, Step, Workload,
};
use crate::rng::Dist;

/// Version of the files' format; grows when a key changes its meaning.
const SCHEMA: u32 = 1;
/// Longest simulated time, 1,000 s: sums of clock * time per CPU stay within 64 bits.
const DURATION_NS_MAX: u64 = 1_000_000_000_000;
/// Most tasks of a group and clients of a source: more need more memory than a run is worth.
const TASKS_MAX: usize = 100_000;
/// Largest amount of anything: cycles in the engine's fixed point, ns in its timers.
const AMOUNT_MAX: u64 = 1 << 40;

/// A scenario: what runs, and for how long.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What it shows.
    pub about: String,
    /// Id of the CPU model that it was made for.
    pub machine: String,
    /// Packages of it.
    pub packages: usize,
    /// Simulated time.
    pub duration_ns: u64,
    /// Of that, not counted.
    pub warmup_ns: u64,
    /// Questions that it decides.
    pub judges: Vec<Question>,
    /// What a completion of each group is, for tables.
    pub work: Vec<String>,
    /// Whether a group executes wide code.
    pub wide: Vec<bool>,
    base: Workload,
    /// By variant; what is in no variant is as in the base.
    variants: BTreeMap<String, Workload>,
}

impl Scenario {
    /// The workload of a variant; `None` if there is no such variant.
    pub fn workload(&self, variant: Option<&str>) -> Option<&Workload> {
        variant.map_or(Some(&self.base), |name| self.variants.get(name))
    }

    /// Names of the variants.
    pub fn variants(&self) -> impl Iterator<Item = &str> {
        self.variants.keys().map(String::as_str)
    }

    /// CPUs that the workload needs at least: the highest that a group is bound to.
    pub fn nr_cpus_needed(&self) -> usize {
        let bound = self.base.groups.iter().filter_map(|group| group.affinity.as_ref());
        bound.flatten().max().map_or(1, |&cpu| cpu + 1)
    }
}

/// What is needed to say where something is wrong.
struct Reader<'a> {
    text: &'a str,
    file: &'a ScenarioFile,
    variant: Option<&'a str>,
    codes: BTreeMap<String, (u16, f64)>,
    queues: BTreeMap<String, Queue>,
    locks: BTreeMap<String, u16>,
    groups: BTreeMap<String, u16>,
    barriers: BTreeMap<String, u16>,
}

type Result<T> = std::result::Result<T, DataError>;

pub(super) fn read(text: &str) -> Result<Scenario> {
    let file: ScenarioFile = toml::from_str(text).map_err(|error| {
        DataError::from_toml(text, &error, "compare with data/scenarios/thesis-nginx.toml")
    })?;
    let bad = |at: Range<usize>, what: &str, next: &str| Err(DataError::new(text, at, what, next));
    if *file.schema.get_ref() != SCHEMA {
        return bad(file.schema.span(), "this schema is unknown", "write schema = 1");
    }
    let duration_ns = *file.duration_ns.get_ref();
    if duration_ns == 0 || duration_ns > DURATION_NS_MAX || file.warmup_ns >= duration_ns {
        let next = "choose 1 to 10^12 ns, more than warmup_ns";
        return bad(file.duration_ns.span(), "nothing would be measured", next);
    }
    let packages = file.packages.as_ref().map_or(1, |packages| *packages.get_ref());
    if let Some(given) = file.packages.as_ref().filter(|_| packages == 0 || packages > 64) {
        return bad(given.span(), "there are too many packages", "choose 1 to 64");
    }
    if file.group.is_empty() {
        return bad(0..0, "nothing runs", "add a [[group]] with a program");
    }
    let base = Reader::new(text, &file, None)?.workload()?;
    let variants = file
        .variant
        .keys()
        .map(|name| Ok((name.clone(), Reader::new(text, &file, Some(name))?.workload()?)))
        .collect::<Result<_>>()?;
    Ok(Scenario {
        work: file
            .group
            .iter()
            .map(|g| g.get_ref().work.clone().unwrap_or_else(|| "completion".into()))
            .collect(),
        wide: base.groups.iter().map(|group| is_wide(&base, group)).collect(),
        packages,
        duration_ns,
        warmup_ns: file.warmup_ns,
        judges: file.judges,
        base,
        variants,
        name: file.name,
        about: file.about,
        machine: file.machine,
    })
}

fn is_wide(workload: &Workload, group: &Group) -> bool {
    let wide_code = |code: u16| workload.codes[code as usize].class > InsnClass::Light256;
    let is_wide = |step: &Step| matches!(step, Step::Work { code, .. } if wide_code(*code));
    workload.programs_of(group).any(|steps| steps.iter().any(is_wide))
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, file: &'a ScenarioFile, variant: Option<&'a str>) -> Result<Self> {
        let mut reader = Reader {
            text,
            file,
            variant,
            codes: BTreeMap::from([("scalar".to_string(), (0, 1.0))]),
            queues: BTreeMap::from([("inbox".to_string(), OWN_INBOX)]),
            locks: BTreeMap::new(),
            groups: BTreeMap::new(),
            barriers: BTreeMap::new(),
        };
        for (i, group) in file.group.iter().enumerate() {
            let name = group.get_ref().name.clone();
            if reader.groups.insert(name, i as u16).is_some() {
                return reader.bad(&group.span(), "two groups have this name", "rename one");
            }
        }
        for (i, name) in file.barrier.keys().enumerate() {
            reader.barriers.insert(name.clone(), i as u16);
        }
        for (i, name) in file.fair_locks.iter().enumerate() {
            reader.locks.insert(name.clone(), i as u16);
        }
        reader.check_codes()?;
        Ok(reader)
    }

    fn bad<T>(&self, at: &Range<usize>, what: impl Into<String>, next: &str) -> Result<T> {
        Err(DataError::new(self.text, at.clone(), what, next))
    }

    /// Numbers the codes of the file, as the variant has them; their classes are looked up later.
    fn check_codes(&mut self) -> Result<()> {
        let of_variant = self.variant.and_then(|name| self.file.variant.get(name));
        if let Some(variant) = of_variant {
            for (name, code) in &variant.code {
                if !self.file.code.contains_key(name) {
                    let what = format!("the variant changes code \"{name}\", which does not exist");
                    return self.bad(&code.span(), what, "add it as [code.NAME] first");
                }
            }
        }
        for (number, name) in (1..).zip(self.file.code.keys()) {
            let table = self.code_table(name);
            let scale = table.get_ref().scale.unwrap_or(1.0);
            if !(scale > 0.0 && scale <= 1e6) {
                return self.bad(&table.span(), "scale must be above 0", "1 changes nothing");
            }
            self.codes.insert(name.clone(), (number, scale));
        }
        Ok(())
    }

    fn code_table(&self, name: &str) -> &'a Spanned<CodeTable> {
        let of_variant = self.variant.and_then(|v| self.file.variant.get(v)?.code.get(name));
        of_variant.unwrap_or_else(|| &self.file.code[name])
    }

    fn workload(mut self) -> Result<Workload> {
        let mut w = Workload::new();
        self.add_codes(&mut w)?;
        w.barriers = self.file.barrier.values().map(|&size| size.max(1)).collect();
        for group in &self.file.group {
            let programs = self.programs(group)?;
            if w.programs.len() + programs.len() > usize::from(u16::MAX) {
                let next = "choose at most 65,535 in all groups together";
                return self.bad(&group.span(), "too many programs", next);
            }
            let programs = programs.into_iter().map(|steps| w.program(steps)).collect();
            let group = self.group(group, programs)?;
            w.group(group);
        }
        w.nr_queues = self.queues.len() - 1;
        let nr_fair = self.file.fair_locks.len();
        w.locks = (0..self.locks.len()).map(|i| LockKind { fair: i < nr_fair }).collect();
        for source in &self.file.source {
            w.sources.push(self.source(source)?);
        }
        Ok(w)
    }

    fn add_codes(&self, w: &mut Workload) -> Result<()> {
        for name in self.file.code.keys() {
            let table = self.code_table(name);
            let code = table.get_ref();
            let class = InsnClass::ALL.iter().find(|(_, known)| *known == code.class);
            let Some((class, _)) = class else {
                let known: Vec<&str> = InsnClass::ALL.iter().map(|(_, name)| *name).collect();
                let what = format!("\"{}\" is not a class of instructions", code.class);
                return self.bad(&table.span(), what, &format!("choose {}", known.join(", ")));
            };
            if !(code.per_cycle >= 0.0 && code.per_cycle <= 16.0) {
                return self.bad(&table.span(), "per_cycle is not a valid rate", "choose 0 to 16");
            }
            w.codes.push(crate::program::Code { class: *class, per_cycle: code.per_cycle });
        }
        Ok(())
    }

    /// The programs of a group, one or several.
    fn programs(&mut self, group: &'a Spanned<GroupTable>) -> Result<Vec<Vec<Step>>> {
        let GroupTable { program, programs, .. } = group.get_ref();
        match (program.is_empty(), programs.is_empty()) {
            (false, true) => Ok(vec![self.program(group, program)?]),
            (true, false) => programs.iter().map(|steps| self.program(group, steps)).collect(),
            (true, true) => self.bad(&group.span(), "its program is empty", "add a step"),
            (false, false) => {
                let what = "it has both program and programs";
                self.bad(&group.span(), what, "leave one out; programs has one for each task")
            }
        }
    }

    fn program(
        &mut self,
        group: &Spanned<GroupTable>,
        program: &[Spanned<StepTable>],
    ) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        if program.is_empty() {
            return self.bad(&group.span(), "one of its programs is empty", "add a step");
        }
        self.steps(program, 0, &mut steps)?;
        let takes_time = |step: &Step| {
            matches!(step, Step::Work { .. } | Step::Sleep { .. } | Step::Take { .. } | Step::End)
        };
        if !steps.iter().any(takes_time) {
            let next = "add work, sleep_ns, take, or end = true";
            return self.bad(&group.span(), "its program never ends and takes no time", next);
        }
        if steps.last() != Some(&Step::End) {
            steps.push(Step::Jump { to: 0 });
        }
        Ok(steps)
    }

    fn steps(
        &mut self,
        tables: &[Spanned<StepTable>],
        depth: usize,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        tables.iter().try_for_each(|table| self.step(table, depth, steps))
    }

    fn step(
        &mut self,
        table: &Spanned<StepTable>,
        depth: usize,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let (at, s) = (table.span(), table.get_ref());
        let verbs = s.verbs();
        let [verb] = verbs[..] else {
            let what = match verbs.is_empty() {
                true => "this step does nothing".to_string(),
                false => format!("this step is several: {}", verbs.join(", ")),
            };
            return self.bad(&at, what, "write one step per table");
        };
        if s.scalar_for_ns.is_some() && !["wide", "wide_end"].contains(&verb) {
            let what = "scalar_for_ns is allowed only at the end of a wide section";
            return self.bad(&at, what, "put scalar_for_ns next to wide or wide_end");
        }
        let call = |step: Step| [Step::Enter, step, Step::Exit];
        match verb {
            "work" | "wide" => self.code_step(&at, s, steps)?,
            "syscall_cycles" => {
                let cycles = self.amount(&at, s.syscall_cycles, 1.0)?;
                steps.extend(call(Step::Work { code: 0, cycles }));
            }
            "sleep_ns" => {
                let ns = self.amount(&at, s.sleep_ns, 1.0)?;
                steps.extend(call(Step::Sleep { ns }));
            }
            "take" => {
                let queue = self.queue(&s.take);
                steps.extend(call(Step::Take { queue }));
            }
            "put" => {
                let queue = self.queue(&s.put);
                steps.extend(call(Step::Put { queue }));
            }
            "wide_begin" => {
                let level = self.level(&at, s.wide_begin)?;
                steps.push(Step::WideBegin { level });
            }
            "wide_end" => steps.push(Step::WideEnd { rest_ns: s.scalar_for_ns.unwrap_or(0) }),
            "done" => steps.push(Step::Done),
            "yield" => steps.push(Step::Yield),
            "end" => steps.push(Step::End),
            "lock" => {
                let lock = self.lock_of(&s.lock);
                steps.push(Step::Lock { lock });
            }
            "unlock" => {
                let lock = self.lock_of(&s.unlock);
                steps.push(Step::Unlock { lock });
            }
            "barrier" => {
                let barrier =
                    self.named(&at, &s.barrier, &self.barriers, "[barrier] NAME = SIZE")?;
                steps.extend(call(Step::Barrier { barrier }));
            }
            "fork" => {
                let group = self.named(&at, &s.fork, &self.groups, "a [[group]] of that name")?;
                steps.extend(call(Step::Fork { group }));
            }
            _ => self.repeat(&at, s, depth, steps)?,
        }
        Ok(())
    }

    fn code_step(&self, at: &Range<usize>, s: &StepTable, steps: &mut Vec<Step>) -> Result<()> {
        let name = s.work.as_ref().or(s.wide.as_ref()).map_or("", String::as_str);
        let Some(&(code, scale)) = self.codes.get(name) else {
            let what = format!("code \"{name}\" does not exist");
            return self.bad(at, what, "name scalar, or add it as [code.NAME]");
        };
        let cycles = self.amount(at, s.cycles, scale)?;
        if s.wide.is_none() {
            steps.push(Step::Work { code, cycles });
            return Ok(());
        }
        let level = self.level(at, s.level)?;
        let work = Step::Work { code, cycles };
        let rest_ns = s.scalar_for_ns.unwrap_or(0);
        steps.extend([Step::WideBegin { level }, work, Step::WideEnd { rest_ns }]);
        Ok(())
    }

    fn level(&self, at: &Range<usize>, level: Option<u8>) -> Result<u8> {
        match level {
            Some(level @ 1..=3) => Ok(level),
            _ => self.bad(at, "a wide section has a level", "choose level 1, 2 or 3"),
        }
    }

    fn repeat(
        &mut self,
        at: &Range<usize>,
        s: &StepTable,
        depth: usize,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let Some(inner) = s.steps.as_ref().filter(|inner| !inner.is_empty()) else {
            return self.bad(at, "nothing is repeated", "add steps = [...]");
        };
        if depth >= REPEAT_SLOTS {
            return self.bad(at, "repetitions are nested too deeply", "nest four at most");
        }
        let times = match self.amount(at, s.repeat, 1.0)? {
            // the first pass is one of them
            Dist::Fixed(n) => Dist::Fixed(n.saturating_sub(1)),
            Dist::Uniform(a, b) => Dist::Uniform(a.saturating_sub(1), b.saturating_sub(1)),
            Dist::Exponential(mean) => Dist::Exponential(mean.saturating_sub(1)),
        };
        let to = steps.len() as u32;
        self.steps(inner, depth + 1, steps)?;
        steps.push(Step::Repeat { slot: depth as u8, times, to });
        Ok(())
    }

    fn amount(&self, at: &Range<usize>, amount: Option<Amount>, scale: f64) -> Result<Dist> {
        let scaled = |n: u64| (n as f64 * scale).round() as u64;
        let dist = match amount {
            None => return self.bad(at, "an amount is missing", "add cycles = N"),
            Some(Amount::Fixed(n)) => Dist::Fixed(scaled(n)),
            Some(Amount::Range([a, b])) if a <= b => Dist::Uniform(scaled(a), scaled(b)),
            Some(Amount::Range(_)) => {
                return self.bad(at, "the range is reversed", "write [least, most]");
            }
            Some(Amount::Mean { mean }) => Dist::Exponential(scaled(mean)),
        };
        if dist.mean() > AMOUNT_MAX as f64 || matches!(dist, Dist::Uniform(_, b) if b > AMOUNT_MAX)
        {
            return self.bad(at, "this amount is too large", "choose at most 2^40");
        }
        Ok(dist)
    }

    /// Queues and locks come to be by being named.
    fn queue(&mut self, name: &Option<String>) -> Queue {
        let next = self.queues.len() as Queue - 1;
        *self.queues.entry(name.clone().unwrap_or_default()).or_insert(next)
    }

    fn lock_of(&mut self, name: &Option<String>) -> u16 {
        let next = self.locks.len() as u16;
        *self.locks.entry(name.clone().unwrap_or_default()).or_insert(next)
    }

    fn named(
        &self,
        at: &Range<usize>,
        name: &Option<String>,
        known: &BTreeMap<String, u16>,
        next: &str,
    ) -> Result<u16> {
        let name = name.clone().unwrap_or_default();
        match known.get(&name) {
            Some(&index) => Ok(index),
            None => self.bad(at, format!("\"{name}\" does not exist"), &format!("add {next}")),
        }
    }

    fn source(&self, table: &Spanned<SourceTable>) -> Result<Source> {
        let (at, s) = (table.span(), table.get_ref());
        let to_group =
            self.named(&at, &Some(s.to.clone()), &self.groups, "a [[group]] of that name")?;
        let zero = Some(Amount::Fixed(0));
        let arrivals = match (s.clients, s.gap_ns) {
            (Some(clients), None) if (1..=TASKS_MAX).contains(&clients) => {
                let think_ns = self.amount(&at, s.think_ns.or(zero), 1.0)?;
                Arrivals::Closed { clients, think_ns }
            }
            (None, Some(gap)) => {
                let gap_ns = self.amount(&at, Some(gap), 1.0)?;
                if gap_ns.mean() < 100.0 {
                    let what = "requests come faster than any machine answers";
                    return self.bad(&at, what, "choose a mean gap of 100 ns or more");
                }
                Arrivals::Open { gap_ns }
            }
            (Some(_), None) => {
                return self.bad(&at, "clients is out of range", "choose 1 to 100,000");
            }
            _ => {
                let next = "give clients (closed loop) or gap_ns (open)";
                return self.bad(&at, "the arrival of requests is not specified", next);
            }
        };
        let group = self.file.group[to_group as usize].get_ref();
        if group.tasks == 0 {
            return self.bad(&at, "no task is there to answer", "give the group tasks");
        }
        Ok(Source { name: s.name.clone(), arrivals, to_group, start_ns: s.start_ns })
    }
}
