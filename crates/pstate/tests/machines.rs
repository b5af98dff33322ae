// SPDX-License-Identifier: MIT OR Apache-2.0
//! P-states on folders that serve as test machines: which method is chosen and why, what is
//! written, what is refused, and that everything is as it was afterwards.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pstate::{Control, Error, Options, Restored, Scope, Way, fake};

struct Machine {
    root: tempfile::TempDir,
    before: Vec<(PathBuf, Vec<u8>)>,
}

impl Machine {
    fn new(name: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        fake::build(name, root.path()).unwrap();
        let before = fake::contents(root.path()).unwrap();
        Machine { root, before }
    }

    fn open(&self, way: Option<Way>) -> Control {
        Control::open(&Options { root: self.root.path().to_path_buf(), way }).unwrap()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn policy(&self, number: u32, file: &str) -> String {
        first_line(&self.path(&format!("sys/devices/system/cpu/cpufreq/policy{number}/{file}")))
    }

    fn msr(&self, cpu: u32, number: u32) -> u64 {
        let file = File::open(self.path(&format!("dev/cpu/{cpu}/msr"))).unwrap();
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, plain_offset(number)).unwrap();
        u64::from_le_bytes(bytes)
    }

    /// Everything but scaling_setspeed, which under the restored governor is nobody's.
    fn is_as_before(&self) {
        let kept = |all: &[(PathBuf, Vec<u8>)]| -> Vec<_> {
            all.iter().filter(|(path, _)| !path.ends_with("scaling_setspeed")).cloned().collect()
        };
        let now = kept(&fake::contents(self.root.path()).unwrap());
        for (was, is) in kept(&self.before).iter().zip(&now) {
            assert!(was == is, "{:?} has changed", was.0);
        }
        assert_eq!(now.len(), kept(&self.before).len());
    }
}

/// The layout of src/setting.rs.
fn plain_offset(number: u32) -> u64 {
    let range = u64::from(number >> 31) | u64::from(number >> 16 & 1) << 1;
    (u64::from(number & 0x1fff) | range << 13) * 8
}

fn first_line(path: &Path) -> String {
    fs::read_to_string(path).unwrap().lines().next().unwrap_or_default().to_string()
}

/// acpi-cpufreq offers the governor userspace: it is taken per policy at first use, the mark of
/// Intel's turbo is the fastest P-state, and closing brings the governor back.
#[test]
fn setspeed_sets_and_restores() {
    let machine = Machine::new("acpi-cpufreq-i7-4770");
    let control = machine.open(None);
    assert_eq!(control.choice().way, Way::Setspeed, "{}", control.choice().why);
    assert!(control.choice().why.contains("acpi-cpufreq"));
    let speeds = control.speeds(3).unwrap();
    assert_eq!(
        (speeds.slow_khz, speeds.base_khz, speeds.turbo_khz),
        (800_000, 3_400_000, 3_401_000)
    );

    control.boost(3).unwrap();
    assert_eq!(machine.policy(3, "scaling_governor"), "userspace");
    assert_eq!(machine.policy(3, "scaling_setspeed"), "3401000");
    assert_eq!(machine.policy(2, "scaling_governor"), "schedutil", "nobody asked for CPU 2");
    control.slow(3).unwrap();
    assert_eq!(machine.policy(3, "scaling_setspeed"), "800000");
    assert_eq!(control.requested_khz(3), Ok(Some(800_000)));
    control.restore(3).unwrap();
    assert_eq!(machine.policy(3, "scaling_setspeed"), "3400000", "at rest: the base frequency");
    control.release(3).unwrap();
    assert_eq!(machine.policy(3, "scaling_governor"), "schedutil");
    control.request(5, 2_100_000).unwrap();
    control.set_turbo(false).unwrap();
    assert_eq!(control.turbo(), Ok(false));
    assert_eq!(control.close(), Restored { restored: 2, left: 0, failed: 0 });
    machine.is_as_before();
}

/// Where a policy covers a module, a waiting core does not slow its neighbour, and a boosted one
/// lifts it.
#[test]
fn a_shared_clock_gets_the_fastest_request() {
    let machine = Machine::new("acpi-cpufreq-fx-8120");
    let control = machine.open(None);
    let speed = || machine.policy(2, "scaling_setspeed");
    assert_eq!(control.set_together(3).unwrap(), [2, 3]);
    control.slow(2).unwrap();
    assert_ne!(speed(), "1400000", "CPU 3 has said nothing and is not slowed");
    control.slow(3).unwrap();
    assert_eq!(speed(), "1400000");
    control.boost(2).unwrap();
    assert_eq!(speed(), "4000000");
    control.request(3, 2_300_000).unwrap();
    assert_eq!(speed(), "4000000");
    control.slow(2).unwrap();
    assert_eq!(speed(), "2300000");
    drop(control);
    machine.is_as_before();
}

/// A boosted lock's requests are granted: its critical section runs on a boosted CPU, which is as
/// before behind it. One for a CPU that the machine does not have is dropped.
#[test]
fn a_lock_boosts_its_owner() {
    use locks::{CpuFrequency, Decorated, Futex, Mutex, Owner, Spin};

    let machine = Machine::new("acpi-cpufreq-i7-4770");
    let control = std::sync::Arc::new(machine.open(None));
    let speed = || machine.policy(3, "scaling_setspeed");
    control.request(3, 2_100_000).unwrap();
    let lock = Decorated::new(Futex::new(Spin), Owner::new(OnCpu3(control.clone())));
    let lock = Mutex::new(lock, ());
    let held = lock.lock();
    assert_eq!(speed(), "3401000");
    drop(held);
    assert_eq!(speed(), "3400000", "at rest");
    CpuFrequency::boost(&*control, 99);
    drop((lock, control));
    machine.is_as_before();

    /// Whatever CPU the test itself runs on.
    struct OnCpu3(std::sync::Arc<Control>);
    impl CpuFrequency for OnCpu3 {
        fn boost(&self, _cpu: u32) {
            CpuFrequency::boost(&*self.0, 3);
        }
        fn slow(&self, _cpu: u32) {
            CpuFrequency::slow(&*self.0, 3);
        }
        fn restore(&self, _cpu: u32) {
            CpuFrequency::restore(&*self.0, 3);
        }
    }
}

/// intel_pstate active has no userspace governor: limits hold the frequency, the governor stays.
#[test]
fn limits_hold_the_frequency() {
    let machine = Machine::new("intel-pstate-gold-6130");
    let control = machine.open(None);
    assert_eq!(control.choice().way, Way::Limits);
    assert!(control.choice().why.contains("not setspeed: driver intel_pstate has governors"));
    let limits = || (machine.policy(1, "scaling_min_freq"), machine.policy(1, "scaling_max_freq"));
    let both = |khz: &str| (khz.to_string(), khz.to_string());
    control.boost(1).unwrap();
    assert_eq!(limits(), both("3700000"));
    control.slow(1).unwrap();
    assert_eq!(limits(), both("1000000"));
    control.request(1, 1_234_500).unwrap();
    assert_eq!(limits(), both("1234500"));
    control.restore(1).unwrap();
    assert_eq!(limits(), ("1000000".to_string(), "3700000".to_string()));
    control.set_turbo(false).unwrap();
    let no_turbo = "sys/devices/system/cpu/intel_pstate/no_turbo";
    assert_eq!(first_line(&machine.path(no_turbo)), "1");
    assert_eq!(machine.policy(1, "scaling_governor"), "powersave");
    assert_eq!(control.close().failed, 0);
    machine.is_as_before();
}

/// Registers of an Intel CPU without HWP: the ratio, and turbo allowed by it; other bits stay.
#[test]
fn perf_ctl_takes_ratios() {
    let machine = Machine::new("msr-i7-4770");
    let control = machine.open(None);
    assert_eq!(control.choice().way, Way::Msr, "{}", control.choice().why);
    let speeds = control.speeds(0).unwrap();
    assert_eq!(
        (speeds.slow_khz, speeds.base_khz, speeds.turbo_khz),
        (800_000, 3_400_000, 3_900_000)
    );
    control.boost(2).unwrap();
    assert_eq!(machine.msr(2, 0x199), 39 << 8);
    control.slow(2).unwrap();
    assert_eq!(machine.msr(2, 0x199), 8 << 8);
    control.restore(2).unwrap();
    assert_eq!(machine.msr(2, 0x199), 34 << 8);
    control.set_turbo(false).unwrap();
    assert_eq!(machine.msr(3, 0x1a0), 0x850089 | 1 << 38);
    let steps: Vec<_> = control.clocks().turbo_steps.iter().map(|s| (s.cores, s.khz)).collect();
    assert_eq!(steps, [(1, 3_900_000), (2, 3_900_000), (3, 3_800_000), (4, 3_700_000)]);
    drop(control);
    machine.is_as_before();
}

/// With hardware P-states all three levels are the same, and the energy preference stays.
#[test]
fn hwp_takes_levels() {
    let machine = Machine::new("msr-hwp");
    let control = machine.open(Some(Way::Msr));
    assert!(control.choice().why.contains("IA32_HWP_REQUEST"));
    assert_eq!(control.speeds(0).unwrap().slow_khz, 1_000_000, "the slowest ratio, not level 1");
    control.boost(0).unwrap();
    assert_eq!(machine.msr(0, 0x774), 0x8025_2525);
    control.request(1, 2_100_000).unwrap();
    assert_eq!(machine.msr(1, 0x774), 0x8015_1515);
    let steps: Vec<_> = control.clocks().turbo_steps.iter().map(|s| s.cores).collect();
    assert_eq!(steps, [2, 4, 8, 12, 16, 20, 24, 28]);
    drop(control);
    machine.is_as_before();
}

/// Family 15h: the boosted P-states come under the program's control. Every core, also those that
/// nobody asked for, keeps its frequency: its number is shifted with the count.
#[test]
fn amd_boosts_by_hand() {
    let machine = Machine::new("msr-fx-8120");
    let control = machine.open(None);
    assert!(control.choice().why.contains("2 boosted P-states by hand"), "{:?}", control.choice());
    let speeds = control.speeds(0).unwrap();
    assert_eq!((speeds.base_khz, speeds.turbo_khz), (3_100_000, 4_000_000));
    let boost_control = || {
        let file = File::open(machine.path("sys/bus/pci/devices/0000:00:18.4/config")).unwrap();
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 0x15c).unwrap();
        u32::from_le_bytes(bytes)
    };
    control.boost(0).unwrap();
    assert_eq!((machine.msr(0, 0xc001_0062), boost_control()), (0, 0));
    assert_eq!(machine.msr(1, 0xc001_0062), 3, "2.8 GHz was number 1 and is number 3 now");
    control.slow(1).unwrap();
    assert_eq!(machine.msr(1, 0xc001_0062), 6);
    control.release(1).unwrap();
    assert_eq!(machine.msr(1, 0xc001_0062), 3);
    drop(control);
    machine.is_as_before();
}

/// With the lock bit the boosted P-states stay the hardware's, and the base is the fastest.
#[test]
fn amd_boost_locked_fail() {
    let machine = Machine::new("msr-fx-8120");
    let config = machine.path("sys/bus/pci/devices/0000:00:18.4/config");
    let file = File::options().write(true).open(config).unwrap();
    file.write_all_at(&0x8000_0009u32.to_le_bytes(), 0x15c).unwrap();
    let control = machine.open(None);
    assert!(control.choice().why.contains("BoostLock"), "{:?}", control.choice());
    assert_eq!(control.speeds(0).unwrap().turbo_khz, 3_100_000);
    control.boost(0).unwrap();
    assert_eq!(machine.msr(0, 0xc001_0062), 0);
    assert_eq!(machine.msr(1, 0xc001_0062), 1, "no count changes, no number shifts");
}

/// A frequency off the table is refused with its neighbours, and changes nothing.
#[test]
fn off_the_table_fail() {
    let machine = Machine::new("acpi-cpufreq-i7-4770");
    let control = machine.open(None);
    let error = control.request(0, 2_000_000).unwrap_err();
    assert_eq!(error.errno(), libc::ERANGE);
    assert!(error.to_string().contains("1500000 and 2100000 kHz"), "{error}");
    assert!(matches!(control.boost(8), Err(Error::NoCpu(8))));
    machine.is_as_before();
}

/// A driver that takes values and keeps none: the first boost and the first slowing, each request
/// and the turbo switch report it, and nothing is left to restore.
#[test]
fn ignored_requests_fail() {
    let machine = Machine::new("msr-i7-4770");
    let control = machine.open(None);
    // reads as zeros, whatever is written
    let registers = machine.path("dev/cpu/1/msr");
    fs::remove_file(&registers).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &registers).unwrap();
    let tries = [
        control.boost(1),
        control.boost(1),
        control.slow(1),
        control.request(1, 2_100_000),
        control.set_turbo(false),
    ];
    for (number, done) in tries.into_iter().enumerate() {
        let error = done.unwrap_err();
        assert!(matches!(error, Error::NotKept(_)), "{number}: {error}");
        assert_eq!(error.errno(), libc::EIO);
        assert!(error.to_string().starts_with("dev/cpu/1/msr took a value"), "{error}");
    }
    assert_eq!(control.requested_khz(1), Ok(None));
    control.boost(0).unwrap();
    assert_eq!(machine.msr(0, 0x199), 39 << 8, "other CPUs are not concerned");
    assert_eq!(control.close().failed, 0);
    fs::remove_file(&registers).unwrap();
    fs::copy(machine.path("dev/cpu/0/msr"), &registers).unwrap();
    machine.is_as_before();
}

/// A limit that somebody else has set, which the kernel would clamp to without a word, is named.
#[test]
fn another_tools_limit_fail() {
    let machine = Machine::new("acpi-cpufreq-i7-4770");
    let max = machine.path("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq");
    fs::write(&max, "1500000\n").unwrap();
    let control = machine.open(None);
    let error = control.boost(0).unwrap_err();
    assert!(error.to_string().contains("scaling_max_freq, which another program"), "{error}");
    control.slow(0).unwrap();
    fs::write(&max, "3401000\n").unwrap();
    control.boost(0).unwrap();
    drop(control);
    machine.is_as_before();
}

/// A governor that somebody else has set meanwhile stays, after close too.
#[test]
fn another_tools_governor_stays() {
    let machine = Machine::new("acpi-cpufreq-i7-4770");
    let control = machine.open(None);
    control.boost(0).unwrap();
    let governor = machine.path("sys/devices/system/cpu/cpufreq/policy0/scaling_governor");
    fs::write(&governor, "performance\n").unwrap();
    assert!(matches!(control.release(0), Err(Error::Taken(_))));
    assert_eq!(control.close(), Restored { restored: 0, left: 1, failed: 0 });
    assert_eq!(first_line(&governor), "performance");
}

/// A machine without anything opens, says what is missing for each way, and refuses.
#[test]
fn no_driver_fail() {
    let root = tempfile::tempdir().unwrap();
    let cpu = "cpus = 0\n/sys/devices/system/cpu/cpu0/topology/physical_package_id = 0\n\
               /sys/devices/system/cpu/cpu0/topology/core_cpus_list = 0\n\
               /proc/cpuinfo = vendor_id : GenuineIntel\\ncpu family : 6\\nmodel : 85\n";
    fake::build_from(cpu, root.path()).unwrap();
    let options = Options { root: root.path().to_path_buf(), way: None };
    let control = Control::open(&options).unwrap();
    assert_eq!(control.choice().way, Way::None);
    assert!(control.choice().why.contains("no cpufreq driver"), "{:?}", control.choice());
    assert!(control.choice().why.contains("modprobe msr"), "{:?}", control.choice());
    assert_eq!(control.boost(0), Err(Error::NoBackend));
    assert_eq!(control.watchdog_pid(), None, "nothing to watch");
}

/// Siblings, modules and packages that share a clock are found in whatever file says so.
#[test]
fn clocks_are_found() {
    let domains = |name: &str| -> Vec<(String, Scope)> {
        let machine = Machine::new(name);
        let control = machine.open(Some(Way::None));
        let domains = &control.clocks().domains;
        domains.iter().map(|domain| (domain.cpus.to_string(), domain.scope)).collect()
    };
    let is = |list: &str, scope| (list.to_string(), scope);
    assert_eq!(domains("acpi-cpufreq-i7-4770"), [is("0-7", Scope::Package)]);
    let cores = domains("intel-pstate-gold-6130");
    assert_eq!((cores.len(), &cores[1]), (4, &is("1,5", Scope::Core)));
    let modules = domains("acpi-cpufreq-fx-8120");
    assert_eq!((modules.len(), &modules[3]), (4, &is("6-7", Scope::Module)));
}

/// Threads that make requests for CPUs of one policy at the same time: at the end the setting is
/// what the last requests say, and nothing is lost.
#[test]
fn concurrent_requests_settle() {
    let machine = Machine::new("acpi-cpufreq-fx-8120");
    let control = machine.open(None);
    std::thread::scope(|scope| {
        for cpu in 0..4 {
            let control = &control;
            scope.spawn(move || {
                for _ in 0..300 {
                    control.boost(cpu).unwrap();
                    control.slow(cpu).unwrap();
                }
            });
        }
    });
    for policy in [0, 2] {
        assert_eq!(machine.policy(policy, "scaling_setspeed"), "1400000");
    }
    drop(control);
    machine.is_as_before();
}
