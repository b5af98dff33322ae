// SPDX-License-Identifier: MIT OR Apache-2.0

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;

use cpumodel::{InsnClass, Phase};

use super::*;

const NS_PER_S: f64 = 1e9;

fn machine(settings: &str, cpus: u32, threads: u32) -> Machine {
    Machine::new(&Settings::parse(settings).unwrap(), cpus, threads).unwrap()
}

/// Ten instructions, so many of them of a class.
fn work(class: InsnClass, count: u32) -> Work {
    Work { insns: 10, wide: WideCounts::one(class).0 * count, is_user: 1, ..Work::default() }
}

fn scalar() -> Work {
    work(InsnClass::Scalar, 0)
}

fn now_ns(machine: &Machine, cpu: usize) -> u64 {
    machine.clocks().ns_of(machine.local_times()[cpu])
}

/// Runs a CPU until this time.
fn run_until(machine: &mut Machine, cpu: usize, work: &Work, until_ns: u64) {
    while now_ns(machine, cpu) < until_ns {
        machine.ran(cpu, work);
    }
}

/// The clock that a thousand instructions see.
fn clock_khz(machine: &mut Machine, cpu: usize) -> f64 {
    let start = machine.local_times()[cpu];
    for _ in 0..100 {
        machine.ran(cpu, &scalar());
    }
    let ticks = (machine.local_times()[cpu] - start) as f64 / 65536.0;
    1000.0 / ticks * f64::from(machine.clocks().tsc_khz())
}

fn assert_khz(found: f64, want: f64) {
    assert!((found / want - 1.0).abs() < 1e-3, "{found} instead of {want}");
}

/// A burst of each class: the clock before, after and 670 us later is that of the CPU file.
#[test]
fn a_burst_lowers_the_clock_for_the_relax_time() {
    for (class, low_khz, halts_ns) in [
        (InsnClass::Heavy512, 1_900_000.0, 20_000),
        (InsnClass::Light512, 2_400_000.0, 10_000),
        (InsnClass::Heavy256, 2_400_000.0, 10_000),
        (InsnClass::Light256, 2_800_000.0, 0),
    ] {
        let mut m = machine("xeon-gold-6130", 1, 1);
        assert_khz(clock_khz(&mut m, 0), 2_800_000.0);
        let end_ns = now_ns(&m, 0) + 100_000;
        run_until(&mut m, 0, &work(class, 8), end_ns);
        assert_khz(clock_khz(&mut m, 0), low_khz);
        let end_ns = now_ns(&m, 0);
        run_until(&mut m, 0, &scalar(), end_ns + 660_000);
        assert_khz(clock_khz(&mut m, 0), low_khz);
        run_until(&mut m, 0, &scalar(), end_ns + 690_000);
        assert_khz(clock_khz(&mut m, 0), 2_800_000.0);
        let halted_ns = m.clocks().ns_of(m.cpus[0].halted);
        let down_ns = if halts_ns > 0 { 10_000 } else { 0 };
        // Each halt begins with the trace at whose end it is due.
        assert!(halted_ns.abs_diff(halts_ns + down_ns) <= 20, "{class:?}: {halted_ns}");
    }
}

/// Wide code runs at a quarter of its rate until the grant; scalar code beside it does not.
#[test]
fn throttling_slows_wide_code_only() {
    let mut m = machine("xeon-gold-6130", 1, 1);
    let wide = work(InsnClass::Light512, 8);
    m.ran(0, &wide);
    let time = |m: &mut Machine, work: &Work| {
        let start = m.local_times()[0];
        m.ran(0, work);
        m.local_times()[0] - start
    };
    let (slow, fast) = (time(&mut m, &wide), time(&mut m, &scalar()));
    assert_eq!(slow, 4 * fast);
    assert_eq!(m.license(0).phase(), Phase::Throttled);
}

/// Clocks follow the number of active cores, at the power control unit's next look.
#[test]
fn clocks_follow_active_cores() {
    let mut m = machine("xeon-gold-6130,others=0", 4, 1);
    for cpu in 1..4 {
        m.sleep(cpu);
    }
    assert_khz(clock_khz(&mut m, 0), 3_500_000.0);
    run_until(&mut m, 0, &scalar(), 500_000);
    assert_khz(clock_khz(&mut m, 0), 3_700_000.0);
    for cpu in 1..3 {
        m.wake(cpu, m.local_times()[0], false);
    }
    assert_khz(clock_khz(&mut m, 0), 3_700_000.0);
    run_until(&mut m, 0, &scalar(), 1_000_000);
    assert_khz(clock_khz(&mut m, 0), 3_500_000.0);
}

/// A requested ratio is a ceiling under the licence's clock.
#[test]
fn p_states_are_ceilings() {
    const PERF_CTL: u32 = 0x199;
    let mut m = machine("xeon-gold-6130", 1, 1);
    assert_eq!(m.write_register(0, PERF_CTL, 14 << 8), Written::Done);
    assert_khz(clock_khz(&mut m, 0), 1_400_000.0);
    assert_eq!(m.read_register(0, 0x198), Some(14 << 8));
    assert_eq!(m.write_register(0, PERF_CTL, 37 << 8), Written::Done);
    assert_khz(clock_khz(&mut m, 0), 2_800_000.0);
    assert_eq!(m.read_register(0, 0x198), Some(28 << 8));
}

/// Siblings have one clock, the higher of what they ask for.
#[test]
fn siblings_share_their_p_state() {
    const PERF_CTL: u32 = 0x199;
    let mut m = machine("xeon-gold-6130", 2, 2);
    m.sleep(1);
    m.write_register(0, PERF_CTL, 14 << 8);
    assert_khz(clock_khz(&mut m, 0), 2_800_000.0);
    m.write_register(1, PERF_CTL, 20 << 8);
    assert_khz(clock_khz(&mut m, 0), 2_000_000.0);
    assert_eq!(m.read_register(0, PERF_CTL), Some(14 << 8));
    assert_eq!(m.read_register(0, 0x198), Some(20 << 8));
}

/// APERF over MPERF times the base clock is the clock, alone and beside a busy sibling.
#[test]
fn aperf_and_mperf_give_the_clock() {
    let mut m = machine("xeon-gold-6130", 2, 2);
    for alone in [false, true] {
        if alone {
            m.sleep(1);
        }
        let read = |m: &Machine| [0xe8, 0xe7].map(|r| m.read_register(0, r).unwrap() as f64);
        let before = read(&m);
        let start_ns = now_ns(&m, 0);
        let mut insns = 0.0;
        while now_ns(&m, 0) < start_ns + 100_000 {
            m.ran(0, &scalar());
            insns += 10.0;
        }
        let after = read(&m);
        assert_khz((after[0] - before[0]) / (after[1] - before[1]) * 2_100_000.0, 2_800_000.0);
        let rate = insns * NS_PER_S / 100_000.0 / 2.8e9;
        let want = if alone { 1.0 } else { 0.625 };
        assert!((rate / want - 1.0).abs() < 1e-2, "{rate}");
    }
}

/// Siblings share a licence: the burst of one lowers the other's clock, and both halt.
#[test]
fn siblings_share_their_licence() {
    let mut m = machine("xeon-gold-6130", 4, 2);
    for until_ns in (0..100_000).step_by(100) {
        run_until(&mut m, 0, &work(InsnClass::Heavy512, 8), until_ns);
        run_until(&mut m, 1, &scalar(), until_ns);
        run_until(&mut m, 2, &scalar(), until_ns);
    }
    assert_khz(clock_khz(&mut m, 1), 1_900_000.0 * 0.625);
    assert_khz(clock_khz(&mut m, 2), 2_800_000.0 * 0.625);
    assert_eq!(m.clocks().ns_of(m.cpus[1].halted) / 1000, 19, "less the skew of 100 ns");
    assert_eq!(m.cpus[2].halted, 0);
}

/// A core whose CPUs sleep gives its level up in the meantime.
#[test]
fn a_sleeping_core_relaxes() {
    let mut m = machine("xeon-gold-6130", 1, 1);
    run_until(&mut m, 0, &work(InsnClass::Heavy512, 8), 100_000);
    assert_eq!(m.license(0).level(), 2);
    m.sleep(0);
    m.wake(0, m.clocks().at_ns(5_000_000), false);
    assert_eq!(m.license(0).level(), 0);
    assert_eq!(now_ns(&m, 0), 5_000_000, "the halt was long ago");
}

/// Licence counters add up to the cycles of the burst at its level.
#[test]
fn licence_counters_count() {
    let mut m = machine("xeon-gold-6130", 1, 1);
    for (k, umask) in [0x07u64, 0x18, 0x20, 0x40].into_iter().enumerate() {
        m.write_register(0, 0x186 + k as u32, 0x43_0028 | umask << 8);
    }
    m.write_register(0, 0x38f, 15);
    run_until(&mut m, 0, &scalar(), 100_000);
    run_until(&mut m, 0, &work(InsnClass::Heavy512, 8), 329_300);
    let count = |k| m.read_counter(0, k) as f64;
    assert!((count(0) / (2.8 * 109_300.0) - 1.0).abs() < 0.01, "{}", count(0));
    assert_eq!(count(1), 0.0);
    assert!((count(2) / (1.9 * 200_000.0) - 1.0).abs() < 0.01, "{}", count(2));
    assert!((count(3) / (2.8 * 9_300.0) - 1.0).abs() < 0.01, "{}", count(3));
}

/// What software reads of the energy is what the log has, and that is power times time: of the
/// package and its other cores all the time, of a core while one of its CPUs executes, by level and
/// clock, of two CPUs not twice.
#[test]
fn energy_is_power_times_time() {
    const PERF_CTL: u32 = 0x199;
    let mut m = machine("xeon-gold-6130,others=5", 4, 2);
    m.sleep(3);
    for until_ns in (0..1_000_000).step_by(100) {
        run_until(&mut m, 0, &work(InsnClass::Heavy512, 8), until_ns);
        run_until(&mut m, 1, &scalar(), until_ns);
        run_until(&mut m, 2, &scalar(), until_ns);
    }
    m.sleep(0);
    m.sleep(1);
    m.write_register(2, PERF_CTL, 14 << 8);
    m.write_register(3, PERF_CTL, 8 << 8);
    run_until(&mut m, 2, &scalar(), 3_000_000);
    let platform = Settings::parse("xeon-gold-6130").unwrap().platform(4, 2).unwrap().0;
    // Seven cores are active until the last look of the power control unit, then six.
    let (clock, w) = (|level, active| platform.clock_khz(level, active), &platform);
    let looks_ms = [(7, 1.0), (6, 2.0)];
    let others_mj = |(active, ms): (usize, f64)| 5.0 * w.busy_core_w(0, clock(0, active)) * ms;
    let mut want_mj = 3.0 * w.idle_w + looks_ms.map(others_mj).iter().sum::<f64>();
    // Throttled, then halted twice, then at level 2.
    want_mj += w.busy_core_w(0, clock(0, 7)) * 0.0093;
    want_mj += w.busy_core_w(2, clock(2, 7)) * (1.0 - 0.0293);
    want_mj += w.busy_core_w(0, clock(0, 7)) * 1.0 + w.busy_core_w(0, 1_400_000) * 2.0;
    let read = f64::from(m.read_register(2, 0x611).unwrap() as u32) / f64::from(1 << 14) * 1e3;
    assert!((read / want_mj - 1.0).abs() < 2e-3, "{read} mJ instead of {want_mj}");
    let log = Log::default();
    m.truth = Truth::to(Box::new(log.clone()));
    m.mark(2, 1);
    let text = String::from_utf8(log.0.borrow().clone()).unwrap();
    let logged = crate::Log::parse(&text).unwrap().marks[0].energy_uj as f64 / 1e3;
    assert!((logged - read).abs() < 0.07, "{read} mJ read, {logged} logged");
}

/// DIM 7.1: software that forces a change has the high clock at once, for the price of a halt; a
/// delay of its own takes the place of the relax time. Siblings share both. A value that makes no
/// sense changes nothing.
#[test]
fn software_raises_the_clock() {
    let [delay, force, status] = [0x4000_0081, 0x4000_0082, 0x4000_0083];
    let mut m = machine("xeon-gold-6130", 2, 2);
    m.sleep(1);
    let burst = |m: &mut Machine| {
        let end_ns = now_ns(m, 0) + 100_000;
        run_until(m, 0, &work(InsnClass::Heavy512, 8), end_ns);
        m.ran(0, &scalar());
        assert_khz(clock_khz(m, 0), 1_900_000.0);
    };
    burst(&mut m);
    assert_eq!(m.read_register(1, status), Some(0x0202));
    let (before_ns, at_ns) = (m.clocks().ns_of(m.cpus[0].halted), now_ns(&m, 0));
    assert_eq!(m.write_register(0, force, 0), Written::Done);
    assert_khz(clock_khz(&mut m, 0), 2_800_000.0);
    let halted_ns = m.clocks().ns_of(m.cpus[0].halted) - before_ns;
    assert!(halted_ns.abs_diff(10_000) <= 1, "{halted_ns}");
    assert!(now_ns(&m, 0) - at_ns < 11_000);
    assert_eq!(m.write_register(1, delay, 1 << 63 | 50_000), Written::Done);
    burst(&mut m);
    let end_ns = now_ns(&m, 0);
    run_until(&mut m, 0, &scalar(), end_ns + 40_000);
    assert_khz(clock_khz(&mut m, 0), 1_900_000.0);
    run_until(&mut m, 0, &scalar(), end_ns + 70_000);
    assert_khz(clock_khz(&mut m, 0), 2_800_000.0);
    assert_eq!(m.read_register(0, delay), Some(1 << 63 | 50_000));
    assert_eq!(m.write_register(0, force, 3), Written::Refused);
    assert_eq!(m.write_register(0, status, 0), Written::Refused);
    assert_eq!(m.write_register(0, 0x4000_0085, 0), Written::Unknown);
}

/// SYSTOR 5: notice before wide code is executed, while the clock is still high; and when there was
/// none for a while.
#[test]
fn software_gets_notice() {
    const NOTICE: u32 = 0x4000_0084;
    let mut m = machine("xeon-gold-6130", 1, 1);
    let (wide, light) = (work(InsnClass::Heavy512, 8), work(InsnClass::Light512, 1));
    assert!(!m.warns(0, wide.wide, wide.insns), "not armed");
    m.write_register(0, NOTICE, 100_000 << 32 | 3 << 8 | 1);
    assert!(!m.warns(0, light.wide, light.insns), "asks for level 1");
    // Dense code asks for level 2 from its third trace on.
    let mut traces = 0;
    while !m.warns(0, wide.wide, wide.insns) {
        m.ran(0, &wide);
        traces += 1;
    }
    assert_eq!(traces, 3);
    assert!(m.license(0).demand() <= 1);
    assert_eq!(m.read_register(0, NOTICE).map(|value| value & 0xf_ff00), Some(0x1_0200));
    let mut ended_ns = None;
    let mut until = |m: &mut Machine, work: &Work, until_ns| {
        while now_ns(m, 0) < until_ns {
            let now_ns = now_ns(m, 0);
            if m.ran(0, work) {
                assert_eq!(ended_ns.replace(now_ns), None, "once");
            }
        }
    };
    let start_ns = now_ns(&m, 0);
    until(&mut m, &wide, start_ns + 200_000);
    let end_ns = now_ns(&m, 0);
    until(&mut m, &scalar(), end_ns + 1_000_000);
    let after_ns = ended_ns.unwrap() - end_ns;
    assert!((100_000..100_020).contains(&after_ns), "{after_ns}");
}

/// A log that can be read while the machine has it.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The log of a burst: each phase once, at the time of the CPU file.
#[test]
fn the_log_has_every_phase() {
    let mut m = machine("xeon-gold-6130", 1, 1);
    let log = Log::default();
    m.truth = Truth::to(Box::new(log.clone()));
    run_until(&mut m, 0, &scalar(), 100_000);
    let start_ns = now_ns(&m, 0);
    run_until(&mut m, 0, &work(InsnClass::Light512, 8), 200_000);
    m.mark(0, 7);
    run_until(&mut m, 0, &scalar(), 1_000_000);
    m.finish();
    let text = String::from_utf8(log.0.borrow().clone()).unwrap();
    let phases: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("license t_ns="))
        .map(|rest| {
            let (t_ns, rest) = rest.split_once(' ').unwrap();
            format!("{} {rest}", t_ns.parse::<u64>().unwrap() - start_ns)
        })
        .collect();
    assert_eq!(phases[0], "0 core=0 phase=throttled level=0 target=1");
    assert_eq!(phases[1], "9300 core=0 phase=halted level=0 target=1");
    assert_eq!(phases[2], "19300 core=0 phase=steady level=1 target=1");
    assert!(phases[3].ends_with(" phase=halted level=1 target=0"));
    assert!(phases[4].ends_with(" phase=steady level=0 target=0"));
    assert_eq!(phases.len(), 5);
    assert_eq!(text.matches("mark ").count(), 1);
    assert_eq!(text.matches("cpu t_ns").count(), 2);
    let end = text.lines().rfind(|line| line.starts_with("cpu ")).unwrap();
    assert!(end.contains(" halted_ns=20000 "), "{end}");
}

/// What `data/isa` does not know is noted once.
#[test]
fn unknown_mnemonics_are_noted() {
    let mut m = machine("xeon-gold-6130", 1, 1);
    let log = Log::default();
    m.truth = Truth::to(Box::new(log.clone()));
    for _ in 0..2 {
        assert_eq!(m.classify("vnonsense", 512), WideCounts(0));
    }
    assert_eq!(m.classify("vaddps", 512), WideCounts::one(InsnClass::Heavy512));
    assert_eq!(&*log.0.borrow(), b"unclassified mnemonic=vnonsense\n");
}

/// Code that asks for the level needs it; code in the hold after it does not.
#[test]
fn time_at_a_level_is_needed_while_code_asks_for_it() {
    let mut m = machine("xeon-gold-6130", 1, 1);
    run_until(&mut m, 0, &work(InsnClass::Heavy512, 8), 500_000);
    let busy_ns = |m: &Machine| m.clocks().ns_of(m.cpus[0].busy[1..].iter().sum::<Time>());
    let needed_ns = |m: &Machine| m.clocks().ns_of(m.cpus[0].needed);
    // From the grant on, all of it. Before it is level 1, which is less than what is asked for.
    let of_burst_ns = busy_ns(&m);
    assert!(of_burst_ns > 400_000);
    assert_eq!(needed_ns(&m), of_burst_ns);
    run_until(&mut m, 0, &scalar(), 1_500_000);
    assert_eq!(needed_ns(&m), of_burst_ns);
    let held_ns = busy_ns(&m) - of_burst_ns;
    assert!(held_ns.abs_diff(670_000) < 1_000, "{held_ns}");
}
