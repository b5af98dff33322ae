// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every parser under mutated files: no panic, bounded time, bounded memory.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;

use cpumodel::Times;
use fuzztests::memory::Counting;
use fuzztests::{Target, corpus_of, fuzz};
use report::ctl;
use report::scan::Skipped;
use scan::segments::Image;
use scan::{Options, scan_archive, scan_file, scan_memory};
use sim::recorded::{Judge, Stalls};
use trace::demand::Bound;
use trace::follow::Follower;
use trace::perfetto::Perfetto;
use trace::summary::Summary;
use trace::timeline::{Hardware, Of, Timeline};
use trace::{Event, Info, Reader, Writer};

#[global_allocator]
static MEMORY: Counting = Counting;

/// Longest file of a corpus: short ones make many cases.
const LONGEST: u64 = 60_000;

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn ours(folder: &str, ends: &[&str]) -> Vec<Vec<u8>> {
    let corpus = corpus_of(&tree().join(folder), ends, 200_000);
    assert!(!corpus.is_empty(), "nothing in {folder}");
    corpus
}

fn machines(ends: &[&str]) -> Vec<Vec<u8>> {
    let mut corpus = corpus_of(Path::new("/usr/lib/x86_64-linux-gnu"), ends, LONGEST);
    corpus.truncate(40);
    corpus
}

fn no_repair(_: &mut Vec<u8>) {}

fn binary(name: &str, corpus: Vec<Vec<u8>>, run: &dyn Fn(&[u8])) {
    fuzz(&Target { name, corpus, is_text: false, repair: no_repair, run });
}

/// A parser of text gets what is one: others are refused where files are read.
fn text(name: &str, corpus: Vec<Vec<u8>>, run: &dyn Fn(&str)) {
    let run = |bytes: &[u8]| run(&String::from_utf8_lossy(bytes));
    fuzz(&Target { name, corpus, is_text: true, repair: no_repair, run: &run });
}

fn texts(all: &[&str]) -> Vec<Vec<u8>> {
    all.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn all() -> Options {
    Options { level: 0, ..Options::default() }
}

/// Programs and libraries, by sections and by segments.
#[test]
fn elf() {
    let mut corpus = machines(&[".so", ".o", ".0", ".1", ".2", ".3"]);
    corpus.extend(corpus_of(Path::new("/usr/bin"), &[], 30_000).into_iter().take(20));
    corpus.retain(|file| file.starts_with(b"\x7fELF"));
    binary("elf", corpus, &|bytes| {
        _ = black_box(scan_file("fuzz", bytes, &all()));
        let Ok(image) = Image::parse(bytes) else { return };
        black_box(image.extents().count());
        for segment in &image.segments {
            for at in (0..segment.code.len()).step_by(997) {
                _ = black_box(image.function_around(segment, at).map(|function| function.offset));
            }
        }
    });
}

/// Static libraries.
#[test]
fn archives() {
    let corpus = machines(&[".a"]);
    binary("archives", corpus, &|bytes| {
        _ = black_box(scan_archive("fuzz", bytes, &all(), &mut Skipped::default()));
    });
}

/// Debugging information: source lines of functions.
#[test]
fn dwarf() {
    let folder = tempfile::tempdir().unwrap();
    let code = "typedef float v8 __attribute__((vector_size(32)));\n\
        static inline v8 one(v8 a) { return a * 2.0f; }\n\
        void twice(v8 *a) { *a = one(*a); }\nvoid more(v8 *a) { while (1) *a = one(*a + *a); }\n";
    std::fs::write(folder.path().join("code.c"), code).unwrap();
    let corpus = ["-gdwarf-5", "-gdwarf-4"].map(|dwarf| {
        let file = folder.path().join("code.so");
        let mut cc = Command::new("cc");
        cc.args([dwarf, "-O1", "-mavx", "-shared", "-fPIC", "-nostdlib", "-o"]).arg(&file);
        assert!(cc.arg(folder.path().join("code.c")).status().unwrap().success());
        std::fs::read(file).unwrap()
    });
    binary("dwarf", corpus.into(), &|bytes| {
        _ = black_box(scan_file("fuzz", bytes, &all()));
    });
}

/// Memory of a process: its address in the first eight bytes.
#[test]
fn memory() {
    let of = |address: u64, code: &[u8]| [&address.to_le_bytes(), code].concat();
    let code = machines(&[".o", ".so"]);
    let corpus = code.iter().flat_map(|code| [of(0x7000, code), of(u64::MAX - 70_000, code)]);
    let map = scan::parse_perf_map("7010 20 one\n7040 100 two\n8000 1000 three\n");
    binary("memory", corpus.collect(), &|bytes| {
        let Some((address, code)) = bytes.split_first_chunk() else { return };
        let address = u64::from_le_bytes(*address);
        _ = black_box(scan_memory("fuzz", address, code, &map, &all()));
    });
}

/// Maps that compilers at run time write for perf.
#[test]
fn perf_maps() {
    let map = "7f0000001000 20 one\n7f0000001010 30 two three\n0x7f0000002000 400 four\n";
    text("perf_maps", texts(&[map, &map.repeat(300)]), &|text| {
        let symbols = scan::parse_perf_map(text);
        assert!(symbols.is_sorted_by(|a, b| a.address + a.size_bytes <= b.address));
    });
}

/// Puts right the check sum of each block, so that what is in it is read.
#[allow(clippy::ptr_arg)] // as `Target` has it
fn repair_trace(file: &mut Vec<u8>) {
    let mut at = 12;
    while let Some(head) = file.get(at..at + 16) {
        let length = u32::from_le_bytes(head[8..12].try_into().unwrap()) as usize;
        let end = (at + 16).saturating_add(length).min(file.len());
        let length = (end - at - 16) as u32;
        file[at..at + 4].copy_from_slice(b"TLBK");
        file[at + 8..at + 12].copy_from_slice(&length.to_le_bytes());
        let sum = !file[at + 4..at + 12].iter().chain(&file[at + 16..end]).fold(!0, |sum, byte| {
            (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
                if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 }
            })
        });
        file[at + 12..at + 16].copy_from_slice(&sum.to_le_bytes());
        at = end;
    }
}

/// Recordings, and everything that is made of them.
#[test]
fn recordings() {
    let corpus = corpus_of(&tree().join("tests/data/traces"), &[".trace"], 300_000);
    let run = |bytes: &[u8]| {
        let Ok(mut reader) = Reader::new(bytes) else { return };
        let info = reader.info().clone();
        let mut events = Vec::new();
        while let Ok(Some(event)) = reader.next_event() {
            events.push(event);
        }
        use_recording(&info, &events);
    };
    fuzz(&Target { name: "recordings", corpus, is_text: false, repair: repair_trace, run: &run });
}

fn use_recording(info: &Info, events: &[Event]) {
    let mut follower = Follower::new(info);
    let mut summary = Summary::default();
    events.iter().for_each(|event| follower.take(event, &mut summary));
    follower.finish(follower.now_ns(), &mut summary);
    let ending = trace::Ending::Partial { offset: 0 };
    black_box(summary.finish(info, &follower, ending).text(80, 20));

    let mut follower = Follower::new(info);
    let mut perfetto = Perfetto::new(std::io::sink(), info).unwrap();
    events.iter().for_each(|event| follower.take(event, &mut perfetto));
    follower.finish(follower.now_ns(), &mut perfetto);
    perfetto.finish(info, &follower).unwrap();

    for (of, bound) in [(Of::Cpu(0), Bound::Least), (Of::Cpu(1), Bound::Most)] {
        let times = Times { throttle_ns: 10_000, halt_ns: 10_000, relax_ns: 670_000 };
        let clock_khz = vec![2_800_000, 2_400_000, 1_900_000];
        let mut timeline = Timeline::new(of, Hardware { clock_khz, times }).with_bound(bound);
        let mut follower = Follower::new(info);
        events.iter().for_each(|event| follower.take(event, &mut timeline));
        follower.finish(follower.now_ns(), &mut timeline);
        black_box(timeline.export());
    }

    let bounds = sim::check::Bounds {
        moment_ns: 1_000_000,
        tick_ns: 4_000_000,
        wait_ns: 1_000_000_000,
        conserves: true,
    };
    let mut stalls = Stalls::default();
    events.iter().for_each(|event| stalls.take(event));
    let Ok(mut judge) = Judge::new(info, stalls, bounds) else { return };
    events.iter().for_each(|event| judge.take(event));
    _ = black_box(judge.finish(events.last().map_or(0, |event| event.at_ns)));
}

/// What `perf script` prints; it becomes a recording.
#[test]
fn perf_script() {
    let corpus = corpus_of(&tree().join("tests/data/traces"), &[".perf.txt"], 300_000);
    text("perf_script", corpus, &|text| {
        let read = trace::perf_script::read(text.as_bytes()).expect("no file to fail");
        let mut writer = Writer::new(Vec::new(), &read.info).unwrap();
        read.events.iter().for_each(|event| writer.push(event).unwrap());
        use_recording(&read.info, &read.events);
    });
}

/// Loads of the simulator.
#[test]
fn scenarios() {
    text("scenarios", ours("data/scenarios", &[".toml"]), &|text| {
        let Ok(scenario) = sim::scenario::Scenario::from_toml(text) else { return };
        let variants: Vec<&str> = scenario.variants().collect();
        for variant in variants {
            _ = black_box(scenario.workload(Some(variant)));
        }
    });
}

/// CPU files.
#[test]
fn cpu_files() {
    text("cpu_files", ours("crates/cpumodel/data/cpus", &[".toml"]), &|text| {
        _ = black_box(cpumodel::CpuModel::from_toml(text));
    });
}

/// Models of P-states.
#[test]
fn pstate_models() {
    text("pstate_models", ours("crates/cpumodel/data/pstates", &[".toml"]), &|text| {
        _ = black_box(cpumodel::PstateModel::from_toml(text));
    });
}

/// Lists of CPUs, and the topology that sysfs files say: a path and a text in each line.
#[test]
fn topologies() {
    let files: String = [("possible", "0-3"), ("online", "0-3")]
        .map(|(name, cpus)| format!("sys/devices/system/cpu/{name} {cpus}\n"))
        .into_iter()
        .chain((0..4).map(|cpu| {
            let at = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            let core = cpu / 2;
            format!("{at}/core_id {core}\n{at}/physical_package_id 0\n{at}/thread_siblings_list {0}-{1}\n", core * 2, core * 2 + 1)
        }))
        .collect();
    let corpus = texts(&["0-3,8-1023:2/4", "0", "1-2,5,7-9\n", &files]);
    text("topologies", corpus, &|text| {
        let line = |line: &str| line.split_once(' ').map(|(a, b)| (a.to_string(), b.to_string()));
        let files: cpumodel::Files = text.lines().filter_map(line).collect();
        _ = black_box(cpumodel::Topology::from_sysfs(&files));
        if let Ok(cpus) = text.parse::<cpumodel::CpuSet>() {
            assert_eq!(cpus.to_string().parse(), Ok(cpus));
        }
    });
}

/// Timelines that were recorded, and those that are modelled.
#[test]
fn timelines() {
    text("timelines", ours("tests/data/timelines", &[".jsonl"]), &|text| {
        _ = black_box(report::timeline::read(text));
    });
    text("timeline_models", ours("data/timelines", &[".toml"]), &|text| {
        _ = black_box(dvfs::Model::from_toml(text));
    });
}

/// Published figures.
#[test]
fn figures() {
    text("figures", ours("data/papers", &[".toml"]), &|text| {
        _ = black_box(papers::published::Paper::from_toml(text));
    });
}

/// Marks, and settings of `run`: a name and a value in each line.
#[test]
fn marks_and_settings() {
    let marks = "# wide\nlib.so.1:function@2\n/a b/c:name\nx:0x1234@1\n2 lib.so:f\n";
    text("marks", texts(&[marks, &marks.repeat(200)]), &|text| {
        _ = black_box(sched::marks::parse_list(text));
    });
    let config = sched::config::Config::default();
    let line =
        |setting: &sched::settings::Setting| format!("{} {}\n", setting.key, setting.get(&config));
    let settings: String = sched::settings::SETTINGS.iter().map(line).collect();
    text("settings", texts(&[&settings, "5ms", "wide-cpus 2-3,7\nslice 1.5us\n"]), &|text| {
        let mut config = sched::config::Config::default();
        for (key, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            if let Ok(setting) = sched::settings::setting(key) {
                _ = black_box(setting.set(&mut config, value));
            }
        }
        _ = black_box(sched::parse::duration_ns(text));
    });
}

/// The control socket's lines, both directions; what is understood can be said again.
#[test]
fn control() {
    let lines = [
        r#"{"schema":1,"get":{"keys":["slice","wide_cpus"]}}"#,
        r#"{"schema":1,"set":{"changes":[{"key":"slice","value":"3ms"}]}}"#,
        r#"{"schema":1,"mark_add":{"mark":"lib.so:f@2"}}"#,
        r#"{"schema":1,"tasks":{"since_ns":18446744073709551615}}"#,
        r#"{"schema":1,"status":null}"#,
        r#"{"schema":1,"error":{"what":"a","why":"b","next":"c"}}"#,
        r#"{"schema":1,"settings":[{"key":"slice","value":"5ms","meaning":"m","live":true}]}"#,
    ];
    let mut corpus: Vec<Vec<u8>> = lines.map(|line| format!("{line}\n").into_bytes()).into();
    corpus.push(format!("{}{}\n", "[".repeat(1000), "]".repeat(1000)).into_bytes());
    text("control", corpus, &|text| {
        let mut from = text.as_bytes();
        while let Ok(Some(request)) = ctl::receive::<ctl::Request>(&mut from) {
            let mut wire = Vec::new();
            ctl::send(&mut wire, &request).unwrap();
            assert_eq!(ctl::receive(&mut &wire[..]).unwrap(), Some(request));
        }
        let mut from = text.as_bytes();
        while let Ok(Some(reply)) = ctl::receive::<ctl::Reply>(&mut from) {
            black_box(reply);
        }
    });
}

/// The messages by which programs ask for hints: of one length, so whatever they hold comes back.
#[test]
fn hint_messages() {
    use turbolane::protocol::{MESSAGE_BYTES, Message, Reply, Request};
    binary("hint_messages", vec![vec![0; MESSAGE_BYTES], vec![255; MESSAGE_BYTES]], &|bytes| {
        let Some(message) = bytes.first_chunk::<MESSAGE_BYTES>() else { return };
        let message: Message = *message;
        _ = black_box(Request::from_bytes(&message).to_bytes());
        _ = black_box(Reply::from_bytes(&message).to_bytes());
    });
}
