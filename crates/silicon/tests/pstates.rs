// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine whose P-states software sets: what a change takes is what its file says, and who
//! shares a module shares a clock.

use cpumodel::PstateModel;
use silicon::{Machine, Settings, Work, Written};

const HWCR: u32 = 0xc001_0015;
const CUR_LIMIT: u32 = 0xc001_0061;
const CTL: u32 = 0xc001_0062;
const STATUS: u32 = 0xc001_0063;
const DEFINITIONS: u32 = 0xc001_0064;

/// Numbers of the P-states.
const TURBO: u64 = 0;
const BASE: u64 = 2;
const SLOW: u64 = 6;

fn machine(settings: &str, cpus: u32, threads: u32) -> Machine {
    Machine::new(&Settings::parse(settings).unwrap(), cpus, threads).unwrap()
}

fn now_ns(machine: &Machine, cpu: usize) -> u64 {
    machine.clocks().ns_of(machine.local_times()[cpu])
}

fn run(machine: &mut Machine, cpu: usize, insns: u32) {
    machine.ran(cpu, &Work { insns, ..Work::default() });
}

fn run_until(machine: &mut Machine, cpu: usize, until_ns: u64) {
    while now_ns(machine, cpu) < until_ns {
        run(machine, cpu, 10);
    }
}

/// The clock that a thousand instructions see.
fn clock_ghz(machine: &mut Machine, cpu: usize) -> f64 {
    let start = machine.local_times()[cpu];
    (0..100).for_each(|_| run(machine, cpu, 10));
    let ticks = (machine.local_times()[cpu] - start) as f64 / 65536.0;
    1000.0 / ticks * f64::from(machine.clocks().tsc_khz()) / 1e6
}

fn assert_ghz(found: f64, want: f64) {
    assert!((found / want - 1.0).abs() < 2e-3, "{found} instead of {want}");
}

/// How long a write holds the CPU up, in cycles of the base clock.
fn held(machine: &mut Machine, cpu: usize, number: u64) -> f64 {
    let before = machine.local_times()[cpu];
    assert_eq!(machine.write_register(cpu, CTL, number), Written::Done);
    let ticks = (machine.local_times()[cpu] - before) as f64 / 65536.0;
    ticks * 3_100_000.0 / f64::from(machine.clocks().tsc_khz())
}

/// TURBO 8: each change's register write and transition; the ramp's mean clock is that of a line.
#[test]
fn changes_take_what_the_file_says() {
    let model = PstateModel::built_in("fx-8120").unwrap().unwrap();
    let changes = model.change.unwrap();
    let mut m = machine("fx-8120", 8, 1);
    assert_ghz(clock_ghz(&mut m, 0), 3.1);
    for (number, change, from, to) in [
        (SLOW, &changes.base_to_slow, 3.1, 1.4),
        (TURBO, &changes.slow_to_turbo, 1.4, 4.0),
        (BASE, &changes.turbo_to_base, 4.0, 3.1),
    ] {
        let took = held(&mut m, 0, number);
        assert!((took - change.write_cycles as f64).abs() < 2.0, "{number}: {took}");
        assert_eq!(m.read_register(0, CTL), Some(number));
        let (begun_ns, mut insns) = (now_ns(&m, 0), 0.0);
        let ramp_ns = (change.transition_cycles as f64 / 3.1) as u64;
        while now_ns(&m, 0) < begun_ns + ramp_ns {
            run(&mut m, 0, 10);
            insns += 10.0;
        }
        let mean = insns / (now_ns(&m, 0) - begun_ns) as f64;
        assert!((mean / ((from + to) / 2.0) - 1.0).abs() < 0.03, "{number}: {mean}");
        assert_ghz(clock_ghz(&mut m, 0), to);
        assert_eq!(m.read_register(0, STATUS), Some(number));
        assert_eq!(held(&mut m, 0, number), 0.0, "it was asked for already");
    }
}

/// A change during a ramp starts from where the clock is.
#[test]
fn a_ramp_can_be_turned_round() {
    let mut m = machine("fx-8120", 1, 1);
    held(&mut m, 0, SLOW);
    let end_ns = now_ns(&m, 0) + 10_000;
    run_until(&mut m, 0, end_ns);
    held(&mut m, 0, TURBO);
    // a third of 72.6 us
    let end_ns = now_ns(&m, 0) + 24_200;
    run_until(&mut m, 0, end_ns);
    let there = clock_ghz(&mut m, 0);
    assert!((2.2..2.4).contains(&there), "{there}");
    held(&mut m, 0, SLOW);
    let end_ns = now_ns(&m, 0) + 10_000;
    run_until(&mut m, 0, end_ns);
    assert_ghz(clock_ghz(&mut m, 0), 1.4);
}

/// What software reads: the definitions, fastest first, and the limits. A number that is too high
/// means the slowest, and other registers are none of this machine's.
#[test]
fn registers_are_those_of_family_15h() {
    let mut m = machine("fx-8120", 8, 1);
    let mhz = |m: &Machine, number| {
        let def = m.read_register(0, DEFINITIONS + number).unwrap();
        (def >> 63 == 1).then(|| (100 * ((def & 0x3f) + 16)) >> (def >> 6 & 7))
    };
    let all: Vec<_> = (0..8).map(|number| mhz(&m, number)).collect();
    let table = [4000, 3400, 3100, 2800, 2300, 1900, 1400].map(Some);
    assert_eq!((&all[..7], all[7]), (&table[..], None));
    assert_eq!(m.read_register(0, CUR_LIMIT), Some(6 << 4));
    assert_eq!(m.read_register(0, CTL), Some(BASE));
    assert_eq!(m.write_register(0, CTL, 7), Written::Done);
    assert_eq!(m.read_register(0, CTL), Some(SLOW));
    assert_eq!((m.read_register(0, 0x199), m.read_register(0, 0x611)), (None, None));
    assert_eq!(m.write_register(0, 0x199, 14 << 8), Written::Unknown);
    assert_eq!(m.write_register(0, STATUS, 0), Written::Unknown);
}

/// APERF over MPERF times the base clock is the clock.
#[test]
fn aperf_and_mperf_give_the_clock() {
    let mut m = machine("fx-8120", 8, 1);
    for (number, want) in [(BASE, 3.1), (SLOW, 1.4)] {
        held(&mut m, 0, number);
        let end_ns = now_ns(&m, 0) + 10_000;
        run_until(&mut m, 0, end_ns);
        let read = |m: &Machine| [0xe8, 0xe7].map(|r| m.read_register(0, r).unwrap() as f64);
        let before = read(&m);
        let end_ns = now_ns(&m, 0) + 100_000;
        run_until(&mut m, 0, end_ns);
        let after = read(&m);
        assert_ghz((after[0] - before[0]) / (after[1] - before[1]) * 3.1, want);
    }
}

/// Cores of a module run at the faster of their requests, each at nine tenths of its pace.
#[test]
fn modules_share_a_clock() {
    let mut m = machine("fx-8120", 8, 2);
    held(&mut m, 0, SLOW);
    let end_ns = now_ns(&m, 0) + 10_000;
    run_until(&mut m, 0, end_ns);
    assert_ghz(clock_ghz(&mut m, 0), 3.1 * 0.9);
    held(&mut m, 1, SLOW);
    run_until(&mut m, 1, end_ns + 10_000);
    assert_ghz(clock_ghz(&mut m, 0), 1.4 * 0.9);
    m.sleep(1);
    assert_ghz(clock_ghz(&mut m, 0), 1.4);
    assert_ghz(clock_ghz(&mut m, 2), 3.1 * 0.9);
}

/// A CPU that slept for long needs longer to wake up.
#[test]
fn deep_states_are_left_slowly() {
    let model = PstateModel::built_in("fx-8120").unwrap().unwrap();
    let mut m = machine("fx-8120", 8, 1);
    for (slept_ns, state) in [(100_000, 0), (1_000_000, 1)] {
        let start_ns = now_ns(&m, 0);
        m.sleep(0);
        m.wake(0, m.clocks().at_ns(start_ns + slept_ns), false);
        let exit_ns = now_ns(&m, 0) - start_ns - slept_ns;
        assert!(exit_ns.abs_diff(model.idle[state].exit_ns.value) <= 1, "{exit_ns}");
        let start_ns = now_ns(&m, 0);
        m.sleep(0);
        m.wake(0, m.clocks().at_ns(start_ns + slept_ns), true);
        assert_eq!(now_ns(&m, 0), start_ns + slept_ns, "a reset");
    }
}

/// In the hardware's hands a core has its turbo while half of them sleep, software's numbers begin
/// at the base, and a core that asks for less stays there.
#[test]
fn hardware_boosts_while_others_sleep() {
    let mut m = machine("fx-8120,boosted=1", 8, 1);
    assert_eq!((m.read_register(0, CTL), m.read_register(0, CUR_LIMIT)), (Some(0), Some(4 << 4)));
    assert_ghz(clock_ghz(&mut m, 0), 3.1);
    (4..8).for_each(|cpu| m.sleep(cpu));
    run_until(&mut m, 0, 30_000);
    assert_ghz(clock_ghz(&mut m, 0), 4.0);
    let before = m.read_register(0, HWCR).unwrap();
    assert_eq!(m.write_register(0, HWCR, before | 1 << 25), Written::Done);
    assert_ghz(clock_ghz(&mut m, 0), 3.1);
    assert_eq!(m.read_register(0, HWCR), Some(before | 1 << 25));
    assert_eq!(m.write_register(0, HWCR, before), Written::Done);
    held(&mut m, 1, 4);
    let end_ns = now_ns(&m, 1) + 10_000;
    run_until(&mut m, 1, end_ns);
    assert_ghz(clock_ghz(&mut m, 1), 1.4);
    assert_ghz(clock_ghz(&mut m, 0), 4.0);
    m.wake(4, m.local_times()[0], false);
    let end_ns = now_ns(&m, 0) + 30_000;
    run_until(&mut m, 0, end_ns);
    assert_ghz(clock_ghz(&mut m, 0), 3.1);
}
