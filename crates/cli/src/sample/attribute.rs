// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which samples are wide code's, and which other code's right after it.
//!
//! A sample is wide if its address is in a function of the scanner's list. Other code on the same
//! core (both siblings) counts as a victim's if it was sampled within the window after a wide
//! sample there. The window is a sample's period, but no less than the time for which Skylake-SP
//! keeps a level (670 us, SFMA 2): with fewer samples than that, what lies between two of them is
//! not known.
//!
//! Pure: what was observed and scanned goes in, a report comes out.

use std::collections::{BTreeMap, HashMap};

use report::sample::{
    CallChains, Frame, Offender, SampleReport, SampledLevel, SampledLoad, Victim,
};

use super::throttle::Counts;

/// Where a sample was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    Idle,
    Kernel,
    /// Code of no file, or of one that could not be found.
    Unknown,
    /// At an offset of a file, by its index.
    File(usize, u64),
}

/// Call chains with the index of their process's name, outermost caller first, and how often each
/// was seen.
pub(crate) type Stacks = HashMap<(usize, Vec<Place>), u64>;

/// A sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub cpu: u32,
    pub time_ns: u64,
    /// Number of the thread.
    pub thread: u32,
    /// Index of the process's name.
    pub process: usize,
    pub place: Place,
    /// Its process is one of those that were asked for.
    pub is_asked: bool,
}

/// A function with wide code.
#[derive(Clone, Debug, Default)]
pub(super) struct Wide {
    pub name: Option<String>,
    /// The symbol before a function without a name, with the distance.
    pub near: Option<String>,
    pub size_bytes: u64,
    pub license_level: u8,
    pub sustained_level: u8,
}

/// A file's functions with wide code, by their offsets.
#[derive(Debug, Default)]
pub(super) struct Code {
    pub path: String,
    by_offset: BTreeMap<u64, Wide>,
    /// Of the file that was scanned, in hexadecimal: its path may be another file's here.
    build_id: Option<String>,
    /// Why it could not be scanned.
    pub unread: Option<String>,
}

/// What was observed.
pub(crate) struct Observed {
    pub(super) seen: Vec<Seen>,
    pub(super) processes: Vec<String>,
    pub(super) files: Vec<Code>,
    /// Core of each CPU.
    pub(super) cores: Vec<u32>,
}

/// SFMA 2: how long Skylake-SP keeps a level after the last wide instruction.
const RELAX_NS: u64 = 670_000;

impl Code {
    pub(super) fn new(
        path: String,
        build_id: Option<String>,
        functions: impl Iterator<Item = (u64, Wide)>,
    ) -> Self {
        Code { path, by_offset: functions.collect(), build_id, unread: None }
    }

    pub(super) fn unread(path: String, why: String) -> Self {
        Code { path, unread: Some(why), ..Code::default() }
    }

    fn at(&self, offset: u64) -> Option<(u64, &Wide)> {
        let (&start, function) = self.by_offset.range(..=offset).next_back()?;
        (offset - start < function.size_bytes).then_some((start, function))
    }

    /// The function's name, or its place.
    fn name(&self, start: u64) -> String {
        let function = self.by_offset.get(&start);
        let name = function.and_then(|function| function.name.clone());
        let near = function.and_then(|function| function.near.as_ref());
        let near = near.map_or(String::new(), |near| format!(" ({near})"));
        name.unwrap_or_else(|| format!("function at {start:#x}{near}"))
    }
}

impl Observed {
    /// The wide function of a place: its file's index and its first offset.
    fn wide(&self, place: Place) -> Option<(usize, u64, &Wide)> {
        let Place::File(file, offset) = place else { return None };
        let (start, function) = self.files.get(file)?.at(offset)?;
        Some((file, start, function))
    }

    /// Samples of each CPU while it did not idle, and those of them in wide code.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for seen in self.seen.iter().filter(|seen| seen.place != Place::Idle) {
            let count = counts.entry(seen.cpu).or_default();
            count.0 += 1;
            count.1 += u64::from(seen.is_asked && self.wide(seen.place).is_some());
        }
        counts
    }

    /// A frame of a call chain: a wide function with its level, else the file.
    fn frame(&self, place: Place) -> Frame {
        let path = match place {
            Place::File(file, _) => self.files.get(file).map(|code| code.path.as_str()),
            _ => None,
        };
        let (function, license_level) = match (place, self.wide(place)) {
            (_, Some((file, start, function))) => {
                (self.files[file].name(start), function.license_level)
            }
            (Place::File(..), None) => {
                let path = path.unwrap_or("?");
                (format!("[{}]", path.rsplit('/').next().unwrap_or(path)), 0)
            }
            (Place::Kernel, _) => ("[kernel]".into(), 0),
            (Place::Idle, _) => ("[idle]".into(), 0),
            (Place::Unknown, _) => ("[unknown]".into(), 0),
        };
        Frame { function, file: path.map(str::to_owned), license_level }
    }

    /// Call chains by name.
    pub(super) fn chains(&self, stacks: &Stacks) -> CallChains {
        CallChains::new(stacks.iter().map(|((process, stack), samples)| {
            let frames = stack.iter().map(|place| self.frame(*place)).collect();
            (self.processes[*process].clone(), frames, *samples)
        }))
    }

    /// Adds all up. `report` brings what is known of the sampling itself.
    pub(super) fn judge(&self, report: SampleReport) -> SampleReport {
        let mut report = SampleReport { window_ns: report.period_ns.max(RELAX_NS), ..report };
        let mut levels: BTreeMap<u8, u64> = BTreeMap::new();
        let mut offenders: BTreeMap<(usize, usize, u64), u64> = BTreeMap::new();
        for seen in &self.seen {
            report.samples += 1;
            report.busy += u64::from(seen.place != Place::Idle);
            report.kernel += u64::from(seen.place == Place::Kernel);
            let is_unread =
                |file: usize| self.files.get(file).is_none_or(|code| code.unread.is_some());
            let is_unknown = match seen.place {
                Place::Unknown => true,
                Place::File(file, _) => is_unread(file),
                _ => false,
            };
            report.unknown += u64::from(is_unknown);
            if let Some((file, start, function)) = self.wide(seen.place).filter(|_| seen.is_asked) {
                *levels.entry(function.license_level).or_default() += 1;
                *offenders.entry((seen.process, file, start)).or_default() += 1;
            }
        }
        report.levels = levels
            .into_iter()
            .map(|(license_level, samples)| SampledLevel { license_level, samples })
            .collect();
        report.offenders = offenders
            .into_iter()
            .filter_map(|((process, file, start), samples)| {
                let function = self.files[file].by_offset.get(&start)?;
                Some(Offender {
                    function: self.files[file].name(start),
                    file: self.files[file].path.clone(),
                    file_offset: Some(start),
                    process: self.processes[process].clone(),
                    license_level: function.license_level,
                    sustained_level: function.sustained_level,
                    samples,
                })
            })
            .collect();
        report.offenders.sort_by_key(|offender| std::cmp::Reverse(offender.samples));
        report.victims = self.victims(report.window_ns);
        if let Some(load) = &mut report.load {
            self.add_load(report.period_ns, load);
        }
        report
    }

    /// Whether a sample is in wide code that lasts, of a process that was asked for.
    fn lasts(&self, seen: &Seen) -> bool {
        seen.is_asked
            && self.wide(seen.place).is_some_and(|(_, _, function)| function.sustained_level > 0)
    }

    /// Threads with and without wide code, how busy they are, and runs of wide samples. Samples of
    /// a thread belong to one run if nothing is between them and no sample is missing.
    fn add_load(&self, period_ns: u64, load: &mut SampledLoad) {
        let mut of_threads: BTreeMap<u32, Vec<&Seen>> = BTreeMap::new();
        for seen in self.seen.iter().filter(|seen| seen.place != Place::Idle) {
            of_threads.entry(seen.thread).or_default().push(seen);
        }
        for samples in of_threads.values_mut() {
            let wide = samples.iter().filter(|seen| self.lasts(seen)).count() as u64;
            if wide == 0 {
                load.other_threads += 1;
                continue;
            }
            load.wide_threads += 1;
            load.wide += wide;
            load.wide_threads_busy += samples.len() as u64;
            samples.sort_by_key(|seen| seen.time_ns);
            let mut before: Option<&Seen> = None;
            for seen in samples {
                let goes_on = before.is_some_and(|before| {
                    self.lasts(before) && seen.time_ns - before.time_ns < 2 * period_ns
                });
                load.runs += u64::from(self.lasts(seen) && !goes_on);
                before = Some(seen);
            }
        }
    }

    /// The build id of the file of that path as it was scanned; `None` if there were several, as in
    /// containers.
    pub(crate) fn build_id(&self, path: &str) -> Option<&str> {
        let mut builds = self.files.iter().filter(|file| file.path == path);
        let first = builds.next()?.build_id.as_deref();
        first.filter(|_| builds.all(|other| other.build_id.as_deref() == first))
    }

    /// The callers of a function of that file, in chains of addresses: innermost first, each with
    /// its file's path and the offset of the call's last byte, and how often the chain was seen.
    pub(crate) fn callers<'a>(
        &'a self,
        stacks: &'a Stacks,
        path: &str,
        start: u64,
    ) -> Vec<(Vec<(&'a str, u64)>, u64)> {
        let is_it = |place: Option<&Place>| {
            let found = place.and_then(|place| self.wide(*place));
            found.is_some_and(|(file, at, _)| self.files[file].path == path && at == start)
        };
        let chains = stacks.iter().filter(|((_, chain), _)| is_it(chain.last()));
        let place = |place: &Place| match place {
            Place::File(file, offset) => Some((self.files[*file].path.as_str(), *offset)),
            _ => None,
        };
        let callers = chains.map(|((_, chain), samples)| {
            (chain.iter().rev().skip(1).filter_map(place).collect(), *samples)
        });
        callers.collect()
    }

    /// Other code's samples after wide ones of its core, by the name of its process.
    fn victims(&self, window_ns: u64) -> Vec<Victim> {
        let mut in_time: Vec<&Seen> = self.seen.iter().collect();
        in_time.sort_by_key(|seen| seen.time_ns);
        let mut wide_until_ns: BTreeMap<u32, u64> = BTreeMap::new();
        let mut by_name: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for seen in in_time.into_iter().filter(|seen| seen.place != Place::Idle) {
            let core = self.cores.get(seen.cpu as usize).copied().unwrap_or(seen.cpu);
            if self.wide(seen.place).is_some() {
                if seen.is_asked {
                    wide_until_ns.insert(core, seen.time_ns + window_ns);
                }
                continue;
            }
            let is_victim = wide_until_ns.get(&core).is_some_and(|until| seen.time_ns <= *until);
            let (victim, all) = by_name.entry(&self.processes[seen.process]).or_default();
            *victim += u64::from(is_victim);
            *all += 1;
        }
        let mut victims: Vec<Victim> = by_name
            .into_iter()
            .filter(|(_, (samples, _))| *samples > 0)
            .map(|(name, (samples, of))| Victim { process: name.to_owned(), samples, of })
            .collect();
        victims.sort_by_key(|victim| std::cmp::Reverse(victim.samples));
        victims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NGINX: usize = 0;
    const REDIS: usize = 1;

    fn seen(cpu: u32, time_us: u64, process: usize, place: Place) -> Seen {
        let is_asked = process == NGINX;
        Seen { cpu, time_ns: time_us * 1000, thread: process as u32, process, place, is_asked }
    }

    fn observed(seen: Vec<Seen>) -> Observed {
        let wide = |name: Option<&str>, license_level| Wide {
            name: name.map(str::to_owned),
            near: Some("api+0x10".into()),
            size_bytes: 0x100,
            license_level,
            sustained_level: 1,
        };
        let functions = [(0x1000, wide(Some("f"), 2)), (0x2000, wide(None, 1))];
        Observed {
            seen,
            processes: vec!["nginx".into(), "redis".into()],
            files: vec![
                Code::new("/lib/libf.so".into(), Some("12".into()), functions.into_iter()),
                Code::unread("/lib/libg.so".into(), "it is gone".into()),
            ],
            cores: vec![0, 0, 1],
        }
    }

    fn empty() -> SampleReport {
        SampleReport { period_ns: 1_000_000, ..SampleReport::default() }
    }

    /// Idle samples count for no CPU, and code that was not asked for is not wide.
    #[test]
    fn samples_are_counted_by_cpu() {
        let wide = seen(0, 0, NGINX, Place::File(0, 0x1000));
        let other = Seen { is_asked: false, ..wide };
        let idle = Seen { place: Place::Idle, ..wide };
        let kernel = Seen { cpu: 2, place: Place::Kernel, ..wide };
        let counts = observed(vec![wide, other, idle, kernel]).counts();
        assert_eq!(counts, Counts::from([(0, (2, 1)), (2, (1, 0))]));
    }

    /// A sample belongs to the function that its offset is in: its first and last byte, and none
    /// beyond.
    #[test]
    fn offsets_find_their_functions() {
        let at = |offset| seen(0, 0, NGINX, Place::File(0, offset));
        let all = [0xfff, 0x1000, 0x10ff, 0x1100, 0x2000, 0x9000].map(at);
        let report = observed(all.to_vec()).judge(empty());
        assert_eq!((report.samples, report.busy, report.unknown), (6, 6, 0));
        let found: Vec<_> = report
            .offenders
            .iter()
            .map(|o| (o.function.as_str(), o.samples, o.license_level))
            .collect();
        assert_eq!(found, [("f", 2, 2), ("function at 0x2000 (api+0x10)", 1, 1)]);
        assert_eq!(report.wide(), 3);
    }

    /// Only processes that were asked for are offenders, and only they make victims.
    #[test]
    fn others_wide_code_is_not_asked_for() {
        let all =
            vec![seen(0, 0, REDIS, Place::File(0, 0x1000)), seen(0, 100, NGINX, Place::Kernel)];
        let report = observed(all).judge(empty());
        assert_eq!((report.offenders.len(), report.victims.len(), report.kernel), (0, 0, 1));
    }

    /// Other code counts on either sibling and within the window only, whatever order the samples
    /// come in; idle CPUs never.
    #[test]
    fn victims_follow_on_the_same_core() {
        let all = vec![
            seen(1, 10_900, REDIS, Place::Unknown), // sibling, within 1 ms
            seen(0, 10_000, NGINX, Place::File(0, 0x1000)),
            seen(0, 10_500, NGINX, Place::Idle),
            seen(2, 10_500, REDIS, Place::Kernel), // another core
            seen(0, 11_100, REDIS, Place::Kernel), // too late
            seen(0, 9_999, REDIS, Place::Kernel),  // before
            seen(0, 10_700, NGINX, Place::File(1, 0)),
        ];
        let report = observed(all).judge(empty());
        let victim = |process: &str, of| Victim { process: process.into(), samples: 1, of };
        assert_eq!(report.victims, [victim("nginx", 1), victim("redis", 4)]);
        assert_eq!((report.busy, report.unknown), (6, 2));
    }

    /// Runs end where other code comes between, or a sample is missing; threads without wide code
    /// are others.
    #[test]
    fn runs_of_wide_samples_are_counted() {
        let wide = |time_us| seen(0, time_us, NGINX, Place::File(0, 0x1000));
        let all = vec![
            wide(4000), // after a gap
            wide(0),
            wide(1000),
            seen(0, 5000, NGINX, Place::Kernel),
            wide(6000),
            seen(1, 6000, REDIS, Place::Kernel),
            seen(1, 7000, REDIS, Place::Idle),
        ];
        let load = Some(SampledLoad::default());
        let load = observed(all).judge(SampleReport { load, ..empty() }).load.unwrap();
        assert_eq!((load.wide, load.runs, load.wide_threads_busy), (4, 3, 5));
        assert_eq!((load.wide_threads, load.other_threads), (1, 1));
    }

    /// Chains by name keep all samples, under the level of the code that was executed.
    #[test]
    fn chains_keep_their_samples() {
        let stacks = Stacks::from([
            ((NGINX, vec![Place::File(1, 7), Place::File(0, 0x1010)]), 3),
            ((NGINX, vec![Place::File(1, 9), Place::File(0, 0x1020)]), 4),
            ((NGINX, vec![Place::File(0, 0x1010), Place::Kernel]), 5),
        ]);
        let chains = observed(Vec::new()).chains(&stacks);
        let text = "nginx;[libg.so];f [level 2] 7\nnginx;f [level 2];[kernel] 5\n";
        assert_eq!(chains.folded(), text);
        let wide = chains.chains.iter().filter(|chain| chains.license_level(chain) > 0);
        assert_eq!((wide.map(|chain| chain.samples).sum::<u64>(), chains.samples()), (7, 12));
    }

    /// Callers come innermost first, and only of the function that is asked about.
    #[test]
    fn callers_of_a_function_are_found() {
        let chain = |last| vec![Place::File(1, 7), Place::Unknown, Place::File(0, 5), last];
        let stacks = Stacks::from([
            ((NGINX, chain(Place::File(0, 0x1010))), 3),
            ((NGINX, chain(Place::File(0, 0x2010))), 9),
        ]);
        let observed = observed(Vec::new());
        let callers = observed.callers(&stacks, "/lib/libf.so", 0x1000);
        assert_eq!(callers, [(vec![("/lib/libf.so", 5), ("/lib/libg.so", 7)], 3)]);
    }

    /// A path that two files have is of no one build.
    #[test]
    fn builds_are_of_the_scanned_file() {
        let mut observed = observed(Vec::new());
        assert_eq!(observed.build_id("/lib/libf.so"), Some("12"));
        assert_eq!(observed.build_id("/lib/libg.so"), None);
        let other = Code::new("/lib/libf.so".into(), Some("34".into()), std::iter::empty());
        observed.files.push(other);
        assert_eq!(observed.build_id("/lib/libf.so"), None);
    }

    #[test]
    fn frames_name_wide_functions_and_files() {
        let observed = observed(Vec::new());
        let frame = |place| {
            let frame = observed.frame(place);
            (frame.function, frame.file, frame.license_level)
        };
        let file = || Some("/lib/libf.so".to_string());
        assert_eq!(frame(Place::File(0, 0x1008)), ("f".into(), file(), 2));
        assert_eq!(frame(Place::File(0, 8)), ("[libf.so]".into(), file(), 0));
        assert_eq!(frame(Place::Kernel), ("[kernel]".into(), None, 0));
    }
}
