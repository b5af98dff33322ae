// SPDX-License-Identifier: MIT OR Apache-2.0
//! The method for threads, on folders that serve as test machines: when it is chosen, when it is
//! refused and with which words, and that it never sets anything.

use std::fs;

use pstate::{Control, Error, Options, Way, fake};

/// Two CPUs with one policy each and no file that could be set: what an ordinary user finds.
const ORDINARY: &str = "\
cpus = 0-1
/proc/cpuinfo = vendor_id : AuthenticAMD\\ncpu family : 25\\nmodel : 1
/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id = 0
/sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list = {cpu}
/sys/devices/system/cpu/cpufreq/policy{cpu}/affected_cpus = {cpu}
/sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_driver = acpi-cpufreq
/sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_available_governors = performance schedutil
/sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_available_frequencies = 3000000 2000000 1000000
/sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_governor = schedutil
/sys/devices/system/cpu/cpufreq/policy{cpu}/cpuinfo_min_freq = 1000000
/sys/devices/system/cpu/cpufreq/policy{cpu}/cpuinfo_max_freq = 4000000
";

fn machine(description: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fake::build_from(description, root.path()).unwrap();
    root
}

fn options(root: &tempfile::TempDir, way: Option<Way>) -> Options {
    Options { root: root.path().to_path_buf(), way }
}

fn open(root: &tempfile::TempDir, way: Option<Way>) -> Control {
    Control::open_for_threads(&options(root, way), &|| Ok(())).unwrap()
}

/// Where nothing can be set, the scheduler is asked, and the words say why not before. Nothing is
/// changed, so nobody watches.
#[test]
fn taken_where_nothing_can_be_set() {
    let root = machine(ORDINARY);
    let before = fake::contents(root.path()).unwrap();
    let control = open(&root, None);
    let choice = control.choice();
    assert_eq!(choice.way, Way::Scheduler, "{choice:?}");
    assert!(choice.why.starts_with("scheduler: targets of threads"), "{choice:?}");
    assert!(choice.why.contains("not limits: ") && !choice.why.contains("msr"), "{choice:?}");
    assert_eq!(control.watchdog_pid(), None);
    assert_eq!(control.turbo(), Err(Error::NoTurboSwitch));
    control.close();
    assert_eq!(fake::contents(root.path()).unwrap(), before);
}

/// Who may set frequencies does so, since that serves CPUs too; a scheduler goes before registers.
#[test]
fn it_has_its_rank() {
    let root = tempfile::tempdir().unwrap();
    fake::build("acpi-cpufreq-i7-4770", root.path()).unwrap();
    assert_eq!(open(&root, None).choice().way, Way::Setspeed);
    assert_eq!(open(&root, Some(Way::Scheduler)).choice().way, Way::Scheduler);
    let root = machine(&format!("{ORDINARY}msr 0x199 = 0x1800\nmsr 0xce = 0x80838f3012200\n"));
    assert_eq!(open(&root, None).choice().way, Way::Scheduler);
}

/// A request for a CPU is refused with the next step, and leaves no trace; taking one back is none.
#[test]
fn requests_of_cpus_fail() {
    let root = machine(ORDINARY);
    let control = open(&root, None);
    let refused = [control.boost(1), control.slow(1), control.request(1, 2_000_000)];
    assert_eq!(refused, [Err(Error::ByThread); 3]);
    assert_eq!(Error::ByThread.errno(), libc::EOPNOTSUPP);
    assert_eq!(control.requested_khz(1), Ok(None));
    assert_eq!((control.restore(1), control.release(1)), (Ok(()), Ok(())));
}

/// Targets count from the clock that the governor counts from, which may be above the table. What
/// is no P-state is refused with its neighbours.
#[test]
fn frequencies_become_targets() {
    let root = machine(ORDINARY);
    let control = open(&root, None);
    assert_eq!(control.speeds(0).unwrap().turbo_khz, 4_000_000);
    let targets = [1_000_000, 2_000_000, 4_000_000].map(|khz| control.target_q10(0, khz).unwrap());
    assert_eq!(targets, [1, 409, 1024]);
    let off = Error::OffTable { asked_khz: 1, below_khz: 0, above_khz: 1_000_000 };
    assert_eq!(control.target_q10(0, 1), Err(off));
    assert_eq!(control.target_q10(2, 2_000_000), Err(Error::NoCpu(2)));
    control.restore_all();
    assert_eq!(control.target_q10(0, 2_000_000), Err(Error::Closed));
}

/// Each thing that is missing is named: the driver, the governor on one CPU, the scheduler,
/// somebody who speaks for threads. The scheduler is looked for last.
#[test]
fn what_is_missing_is_named_fail() {
    let why = |root: &tempfile::TempDir, scheduler: Result<(), &str>| {
        let asked = std::cell::Cell::new(false);
        let takes_targets = || {
            asked.set(true);
            scheduler.map_err(str::to_string)
        };
        let wanted = options(root, Some(Way::Scheduler));
        let control = Control::open_for_threads(&wanted, &takes_targets).unwrap();
        assert_eq!(control.choice().way, Way::None, "{:?}", control.choice());
        assert_eq!(control.target_q10(0, 1), Err(Error::NoBackend));
        (control.choice().why.clone(), asked.get())
    };
    let root = machine(ORDINARY);
    assert_eq!(why(&root, Err("nobody there")), ("none: scheduler: nobody there".into(), true));
    let alone = Control::open(&options(&root, Some(Way::Scheduler))).unwrap();
    assert!(alone.choice().why.contains("through a session"), "{:?}", alone.choice());
    let plain = Control::open(&options(&root, None)).unwrap();
    assert!(!plain.choice().why.contains("scheduler"), "{:?}", plain.choice());

    let governor = root.path().join("sys/devices/system/cpu/cpufreq/policy1/scaling_governor");
    fs::write(governor, "performance\n").unwrap();
    let (text, asked) = why(&root, Ok(()));
    assert!(text.contains("policy1 has governor performance, and only schedutil"), "{text}");
    assert!(!asked, "no scheduler changes that");
    let bare: Vec<_> = ORDINARY.lines().filter(|line| !line.contains("policy")).collect();
    let (text, _) = why(&machine(&bare.join("\n")), Ok(()));
    assert!(text.contains("no cpufreq driver"), "{text}");
}
