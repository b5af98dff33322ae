// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of `perf script`: what it says of licence levels is found among all else, and no text does
//! harm.

use proptest::collection::vec;
use proptest::prelude::*;
use trace::perf_script::{PerfScript, read};
use trace::{Event, Name, What};

/// Written by hand, see tests/data/traces/README.md.
const TEXT: &str = include_str!("../../../tests/data/traces/licenses.perf.txt");

fn cycles(script: &PerfScript, tid: u32) -> Vec<(u64, u16, u8)> {
    let of = |event: &Event| match event.what {
        What::LevelCycles { license_level, .. } if event.tid == tid => {
            Some((event.at_ns, event.cpu, license_level))
        }
        _ => None,
    };
    script.events.iter().filter_map(of).collect()
}

/// Samples with call chains, names with blanks, a header; in order of time, and what is left out is
/// counted.
#[test]
fn a_whole_text_is_read() {
    let script = read(TEXT.as_bytes()).unwrap();
    assert_eq!((script.samples, script.others, script.without_period), (9, 1, 0));
    assert_eq!(script.unknown_lines, 1);
    let last = TEXT.lines().count() as u64;
    assert_eq!(script.first_unknown, Some(last), "perf's own message");
    assert_eq!(script.info.kernel, "4.18.0-147.el8.x86_64");
    assert_eq!(script.info.cpus, "0-3");
    assert!(script.info.processor.contains("Gold 6130"));
    assert_eq!(script.info.start_ns, 5_120_100_000_000);
    let nginx = [
        (5_120_100_321_000, 0, 0),
        (5_120_100_642_000, 0, 0),
        (5_120_101_009_000, 0, 1),
        (5_120_101_330_000, 0, 1),
        (5_120_101_711_000, 2, 2),
    ];
    assert_eq!(cycles(&script, 4711), nginx);
    assert_eq!(cycles(&script, 4800).len(), 3);
    let name = What::Name { tgid: 0, name: Name::new(b"x265 frame 0.1") };
    assert_eq!(script.events.iter().filter(|event| event.what == name).count(), 1);
    assert!(script.events.iter().any(|event| event.what == What::Lost { events: 2 }));
    assert!(script.events.is_sorted_by_key(|event| event.at_ns));
}

/// perf's own text of a load of known levels, and when it asked for which: see
/// tests/data/traces/README.md.
const REAL: &str = include_str!("../../../tests/data/traces/levels.perf.txt");
const ASKED: [(u8, u64, u64); 3] = [
    (2, 82_476_893_120, 82_576_896_896),
    (1, 82_616_919_754, 82_716_922_945),
    (2, 82_756_928_255, 82_756_930_393),
];
const GRANT_NS: u64 = 50_000;
const RELAX_NS: u64 = 20_000_000;
const CYCLES_PER_NS: u64 = 2;
const SAMPLED_NS: u64 = 3_000_000;

/// What perf prints of a group that a clock leads is what the load asked for: each level's cycles
/// from grant to relaxation, nothing of the clock's samples, no level at a time at which nobody
/// asked.
#[test]
fn a_real_group_is_read() {
    let script = read(REAL.as_bytes()).unwrap();
    assert_eq!((script.unknown_lines, script.without_period), (0, 0));
    assert_eq!(script.others, REAL.matches(" cpu-clock:").count() as u64);
    assert_eq!(script.info.kernel, "7.3.4+deb13-cloud-amd64");
    let mut counted = [0; 3];
    for event in &script.events {
        let What::LevelCycles { license_level, cycles } = event.what else { continue };
        assert_eq!(event.cpu, 2);
        counted[usize::from(license_level)] += cycles;
        let held = |&(level, from_ns, until_ns): &(u8, u64, u64)| {
            let end_ns = until_ns + RELAX_NS + SAMPLED_NS;
            level == license_level && (from_ns + GRANT_NS..end_ns).contains(&event.at_ns)
        };
        assert!(license_level == 0 || ASKED.iter().any(held), "{event:?}");
    }
    for level in [1, 2] {
        let asked = ASKED.iter().filter(|asked| asked.0 == level);
        let held_ns: u64 = asked.map(|(_, from, until)| until - from + RELAX_NS - GRANT_NS).sum();
        let counted_ns = counted[usize::from(level)] / CYCLES_PER_NS;
        // When the last instruction was executed, the load knows to some microseconds.
        assert!(counted_ns.abs_diff(held_ns) < 20_000, "level {level}: {counted_ns}, {held_ns}");
    }
}

/// Samples without CPU or period are counted, and taken for nothing.
#[test]
fn samples_that_say_too_little_fail() {
    let text = "nginx 4711 5.000001: 100 core_power.lvl1_turbo_license: 55d0\n\
                nginx 4711 [000] 5.000002: core_power.lvl1_turbo_license: 55d0\n";
    let script = read(text.as_bytes()).unwrap();
    assert_eq!((script.samples, script.unknown_lines, script.without_period), (0, 1, 1));
    assert_eq!(script.events, []);
}

/// A line longer than any symbol is cut, and the next one is read.
#[test]
fn endless_lines_are_cut() {
    let sample = "x 1 [000] 1.000000: 7 core_power.lvl2_turbo_license: ";
    let text = format!("{sample}{}\n{sample}\n", "f".repeat(100_000));
    let script = read(text.as_bytes()).unwrap();
    assert_eq!((script.samples, script.unknown_lines), (2, 0));
}

fn sample() -> impl Strategy<Value = (String, u32, u32, u16, u64, u64, u8)> {
    let name = "[a-zA-Z:/_.-][a-zA-Z0-9 :/_.-]{0,13}[a-zA-Z:/_.-]";
    (name, 1u32..4_194_304, 0u32..4_194_304, 0u16..512, 0u64..1 << 40, 1u64.., 0u8..3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What perf prints of a sample comes back, for every name, number, time and period.
    #[test]
    fn printed_samples_come_back(samples in vec(sample(), 1..20), chain in any::<bool>()) {
        let mut samples = samples;
        samples.sort_by_key(|sample| sample.4);
        let mut text = String::new();
        for (name, tid, tgid, cpu, at_us, cycles, level) in &samples {
            let (s, us) = (at_us / 1_000_000, at_us % 1_000_000);
            text += &format!("{name:>16} {tgid}/{tid} [{cpu:03}] {s:5}.{us:06}: {cycles:10} ");
            text += &format!("core_power.lvl{level}_turbo_license:u:  55d0 f (/bin/x)\n");
            if chain {
                text += "\t    55d0c1a2b3c4 f+0x14 (/bin/x)\n\n";
            }
        }
        let script = read(text.as_bytes()).unwrap();
        prop_assert_eq!(script.unknown_lines + script.others + script.without_period, 0);
        let got: Vec<_> = script.events.iter().filter_map(|event| match event.what {
            What::LevelCycles { license_level, cycles } => {
                Some((event.tid, event.cpu, event.at_ns / 1_000, cycles, license_level))
            }
            _ => None,
        }).collect();
        let told: Vec<_> = samples
            .iter()
            .map(|(_, tid, _, cpu, at_us, cycles, level)| (*tid, *cpu, *at_us, *cycles, *level))
            .collect();
        prop_assert_eq!(got, told);
    }

    /// Whatever the bytes are: no panic, and no more events than lines have room for.
    #[test]
    fn rubbish_does_no_harm(bytes in vec(any::<u8>(), 0..400)) {
        let script = read(&bytes[..]).unwrap();
        let lines = bytes.split(|byte| *byte == b'\n').count();
        prop_assert!(script.events.len() <= 2 * lines);
    }

    /// The text with some bytes changed: no panic, times in order, and every line is accounted for.
    #[test]
    fn damaged_texts_do_no_harm(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
    ) {
        let mut bytes = TEXT.as_bytes().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let script = read(&bytes[..]).unwrap();
        prop_assert!(script.events.is_sorted_by_key(|event| event.at_ns));
        let counted = script.samples + script.others + script.without_period + script.unknown_lines;
        let lines = bytes.split(|byte| *byte == b'\n').count() as u64;
        prop_assert!(counted <= lines);
        prop_assert!(script.first_unknown.is_none_or(|line| line <= lines));
    }
}
