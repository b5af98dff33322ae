// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files: what is written is read again; what is damaged, cut off or invented is reported, within
//! bounds.

use cpumodel::CpuSet;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use trace::{
    End, Ending, Event, Info, Lane, MarkInfo, Name, Reader, TraceError, What, Why, Writer,
};

fn lane() -> impl Strategy<Value = Lane> {
    (0u8..16, 0u8..8).prop_map(|(task_type, level)| Lane { task_type, level })
}

fn why() -> impl Strategy<Value = Why> {
    prop_oneof![Just(Why::Preempted), Just(Why::Sleeps), Just(Why::Blocks), Just(Why::Ends)]
}

fn name() -> impl Strategy<Value = Name> {
    vec(any::<u8>(), 0..20).prop_map(|bytes| Name::new(&bytes))
}

fn what() -> impl Strategy<Value = What> {
    let tid = 0u32..40;
    let switch = (tid.clone(), why(), any::<bool>(), option::of(lane()), option::of(lane()));
    prop_oneof![
        8 => switch.prop_map(|(next, why, bound, lane, next_lane)| {
            What::Switch { next, why, bound, lane, next_lane }
        }),
        4 => (any::<u32>(), any::<u32>(), any::<bool>())
            .prop_map(|(waker, delay_ns, new)| What::Wake { waker, delay_ns, new }),
        1 => (any::<u16>(), any::<u16>()).prop_map(|(from, to)| What::Migrate { from, to }),
        1 => (tid, any::<u32>()).prop_map(|(parent, tgid)| What::Fork { parent, tgid }),
        1 => Just(What::Exit),
        1 => any::<u32>().prop_map(|number| What::Syscall { number }),
        1 => any::<i64>().prop_map(|value| What::SyscallReturn { value }),
        1 => any::<u32>().prop_map(|mark| What::Mark { mark }),
        1 => any::<u32>().prop_map(|mark| What::MarkReturn { mark }),
        1 => (any::<u8>(), any::<u64>()).prop_map(|(level, ip)| What::Trap { level, ip }),
        1 => (any::<u32>(), any::<[bool; 3]>(), name()).prop_map(|(tgid, flags, name)| {
            let [kernel, running, followed] = flags;
            What::Task { tgid, kernel, running, followed, name }
        }),
        1 => (any::<u32>(), name()).prop_map(|(tgid, name)| What::Name { tgid, name }),
        1 => vec(0usize..1024, 0..9).prop_map(|cpus| {
            let cpus: CpuSet = cpus.into_iter().collect();
            What::Affinity { cpus: Box::new(cpus) }
        }),
        1 => any::<u8>().prop_map(|class| What::Class { class }),
        1 => (0u64..1 << 40).prop_map(|events| What::Lost { events }),
        1 => (0u64..1 << 40).prop_map(|ns| What::Stall { ns }),
        1 => (any::<u8>(), any::<u64>())
            .prop_map(|(license_level, cycles)| What::LevelCycles { license_level, cycles }),
    ]
}

/// Events in order of time.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (0u64..1 << 33, 0u16..1024, any::<u32>(), what());
    (0u64..1 << 50, vec(event, 0..120)).prop_map(|(start_ns, steps)| {
        let mut at_ns = start_ns;
        let event = |(step_ns, cpu, tid, what): (u64, u16, u32, What)| {
            at_ns += step_ns;
            let about_none = what.is_of_cpu();
            Event { at_ns, cpu, tid: if about_none { 0 } else { tid }, what }
        };
        steps.into_iter().map(event).collect()
    })
}

fn info() -> Info {
    let mark = |level, name: &str| MarkInfo { level, name: name.into() };
    Info {
        target: "a test".into(),
        start_ns: 17,
        everybody: true,
        marks: vec![mark(2, "lib.so:f g"), mark(1, "b")],
        ..Info::default()
    }
}

fn written(events: &[Event], flush_each: usize) -> (Vec<u8>, End) {
    let mut writer = Writer::new(Vec::new(), &info()).unwrap();
    for (at, event) in events.iter().enumerate() {
        writer.push(event).unwrap();
        if at % flush_each == flush_each - 1 {
            writer.flush().unwrap();
        }
    }
    let (file, end, bytes) = writer.finish(0).unwrap();
    assert_eq!(bytes, file.len() as u64);
    (file, end)
}

type Got = (Vec<Event>, Option<Ending>);

fn read(file: &[u8]) -> Result<Got, TraceError> {
    let mut reader = Reader::new(file)?;
    let mut events = Vec::new();
    while let Some(event) = reader.next_event()? {
        events.push(event);
    }
    Ok((events, reader.ending()))
}

proptest! {
    // Enough to meet each kind of event a hundred times, and quick in a debug build.
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// What was written comes back, however it was cut into blocks.
    #[test]
    fn recordings_come_back(events in events(), flush_each in 1usize..60) {
        let (file, end) = written(&events, flush_each);
        let (got, ending) = read(&file).unwrap();
        prop_assert_eq!(&got, &events);
        prop_assert_eq!(ending, Some(Ending::Complete(end)));
        prop_assert_eq!(end.events, events.len() as u64);
        let reader = Reader::new(&file[..]).unwrap();
        prop_assert_eq!(reader.info(), &info());
    }

    /// A file that is still being written is read up to its last whole block, wherever it ends.
    #[test]
    fn files_that_end_early_are_partial(
        events in events(),
        flush_each in 1usize..60,
        cut: prop::sample::Index,
    ) {
        let (file, _) = written(&events, flush_each);
        let begin = written(&[], 1).0.len() - end_block_bytes(&[]);
        let cut = begin + cut.index(file.len() - begin);
        let (got, ending) = read(&file[..cut]).unwrap();
        prop_assert!(events.starts_with(&got));
        prop_assert!(got.len().is_multiple_of(flush_each) || got.len() == events.len());
        let is_partial =
            matches!(ending, Some(Ending::Partial { offset }) if offset <= cut as u64);
        prop_assert!(is_partial || cut == file.len());
    }

    /// A changed byte is an error, or in what is not read: never other events.
    #[test]
    fn changed_bytes_fail(events in events(), at: prop::sample::Index, change in 1u8..) {
        let (mut file, _) = written(&events, 50);
        let at = at.index(file.len());
        file[at] ^= change;
        if let Ok((got, ending)) = read(&file) {
            prop_assert!(events.starts_with(&got));
            let is_partial = matches!(ending, Some(Ending::Partial { .. }));
            prop_assert!(is_partial, "byte {at}");
        }
    }

    /// Rubbish with the right check sum, as no damage has it: no panic, and no more events than
    /// bytes.
    #[test]
    fn invented_blocks_do_no_harm(payload in vec(any::<u8>(), 0..400), kind in 1u32..5) {
        let mut file = written(&[], 1).0;
        file.truncate(file.len() - end_block_bytes(&[]));
        file.extend(block(kind, &payload));
        if let Ok((got, _)) = read(&file) {
            prop_assert!(got.len() <= payload.len());
        }
    }

    /// Rubbish is no recording.
    #[test]
    fn rubbish_fails(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(read(&bytes).is_err());
    }
}

/// Bytes of the last block of a file.
fn end_block_bytes(events: &[Event]) -> usize {
    let (_, end) = written(events, 1);
    let mut varints = 0;
    for value in [end.at_ns, end.events, end.lost, end.late] {
        varints += (64 - value.leading_zeros()).max(1).div_ceil(7) as usize;
    }
    16 + varints
}

/// A block as docs/trace-format.md describes it, made without this crate's writer.
fn block(kind: u32, payload: &[u8]) -> Vec<u8> {
    let head = [kind.to_le_bytes(), (payload.len() as u32).to_le_bytes()].concat();
    let mut sum = !0u32;
    for byte in head.iter().chain(payload) {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
        }
    }
    [&b"TLBK"[..], &head, &(!sum).to_le_bytes(), payload].concat()
}

fn switch(at_ns: u64, cpu: u16, tid: u32, next: u32) -> Event {
    let what = What::Switch { next, why: Why::Sleeps, bound: false, lane: None, next_lane: None };
    Event { at_ns, cpu, tid, what }
}

/// The example of docs/trace-format.md, byte by byte: the format is what the page says.
#[test]
fn the_documented_example_is_read() {
    let mut file = b"\x89TLTRC\r\n\x01\0\0\0".to_vec();
    file.extend(block(1, b"\x02\x06target\x03cmd\x09everybody\x03yes"));
    // At 1000 ns on CPU 2 task 7 sleeps and task 9 runs; 100 ns later 9 sleeps and 7 runs.
    file.extend(block(2, &[0xe8, 0x07, 0x61, 0, 2, 1, 14, 4, 0x01, 100, 1, 3]));
    file.extend(block(3, &[0xcc, 0x08, 2, 0, 0]));
    let (events, ending) = read(&file).unwrap();
    assert_eq!(events, [switch(1000, 2, 7, 9), switch(1100, 2, 9, 7)]);
    let end = End { at_ns: 1100, events: 2, lost: 0, late: 0 };
    assert_eq!(ending, Some(Ending::Complete(end)));
    assert_eq!(Reader::new(&file[..]).unwrap().info().target, "cmd");
}

/// A switch, of which a recording mostly consists, takes no more than 7 bytes on a busy machine.
#[test]
fn switches_are_short() {
    let events: Vec<Event> = (0..10_000u32)
        .map(|at| {
            let cpu = at % 64;
            let tid = |turn: u32| 4_000_000 + cpu + turn % 5;
            switch(1_000_000 + u64::from(at) * 900, cpu as u16, tid(at / 64), tid(at / 64 + 1))
        })
        .collect();
    let (file, _) = written(&events, usize::MAX);
    assert!(file.len() < 7 * events.len(), "{} bytes", file.len());
    assert_eq!(read(&file).unwrap().0, events);
}

/// Versions, other files, and what is damaged are told apart.
#[test]
fn errors_say_what_is_wrong_fail() {
    let (file, _) = written(&[switch(5, 0, 1, 2)], 1);
    let mut other = file.clone();
    other[8] = 9;
    assert!(matches!(read(&other), Err(TraceError::Version { found: 9, .. })));
    assert!(matches!(read(b"PK\x03\x04 a zip file"), Err(TraceError::NotATrace)));
    assert!(matches!(read(b""), Err(TraceError::NotATrace)));
    assert!(matches!(read(&file[..20]), Err(TraceError::Corrupt { offset: 12, .. })));
    let long = [&file[..12], b"TLBK", &[1, 0, 0, 0], &[0xff; 4], &[0; 4]].concat();
    let error = read(&long).unwrap_err();
    assert!(error.to_string().contains("at byte 12: a block is longer"), "{error}");
    let mut tail = file[..file.len() - end_block_bytes(&[])].to_vec();
    tail.extend(block(2, &[5, 0xff, 0]));
    assert!(matches!(read(&tail), Err(TraceError::Corrupt { .. })));
}

/// An event that comes too late is kept, at the time of the one before, and counted.
#[test]
fn late_events_are_counted() {
    let (file, end) = written(&[switch(50, 0, 1, 2), switch(40, 1, 3, 4)], 9);
    assert_eq!((end.late, end.events, end.at_ns), (1, 2, 50));
    assert_eq!(read(&file).unwrap().0[1], switch(50, 1, 3, 4));
}

/// A block of a kind that is not known yet is passed over.
#[test]
fn unknown_blocks_are_passed_over() {
    let (file, end) = written(&[], 1);
    let at = file.len() - end_block_bytes(&[]);
    let longer = [&file[..at], &block(77, b"news"), &file[at..]].concat();
    assert_eq!(read(&longer).unwrap(), (vec![], Some(Ending::Complete(end))));
}
