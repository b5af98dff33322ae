// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages and pprof profiles of the samples in `tests/data/samples`: what is in the report is in
//! them, and profiles are read back by a decoder that shares nothing with the encoder.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use report::sample::{CallChains, Frame, Offender, SampleReport};

/// The reports in `tests/data/samples`, by name.
fn samples() -> Vec<(String, SampleReport)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/samples");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let reports = paths.filter(|path| path.extension().is_some_and(|kind| kind == "json"));
    let reports = reports.map(|path| {
        let report = SampleReport::parse(&fs::read_to_string(&path).unwrap()).unwrap();
        (path.display().to_string(), report)
    });
    reports.collect()
}

/// Chains for a report: each offender called from a scalar file, and the rest of busy time.
fn chains(report: &SampleReport) -> CallChains {
    let scalar = |function: &str| Frame {
        function: function.into(),
        file: Some("/usr/bin/main".into()),
        license_level: 0,
    };
    let chain = |offender: &Offender| {
        let wide = Frame {
            function: offender.function.clone(),
            file: Some(offender.file.clone()),
            license_level: offender.license_level,
        };
        (offender.process.clone(), vec![scalar("[main]"), wide], offender.samples)
    };
    let rest = ("rest".to_string(), vec![scalar("[main]")], report.busy - report.wide());
    CallChains::new(report.offenders.iter().map(chain).chain([rest]))
}

/// Every function of a report is in its page, in its table's data and in its graph's.
#[test]
fn pages_have_every_function() {
    let mut functions = 0;
    for (name, report) in samples() {
        let page = report.html(&chains(&report));
        for offender in &report.offenders {
            let text = serde_json::to_string(&offender.function).unwrap();
            let shown = page.matches(&format!("\"function\":{text}")).count();
            assert!(shown >= 2, "{name}: {text} is in the page {shown} times");
            functions += 1;
        }
        assert!(page.contains("<title>Who executes wide code - turbolane sample</title>"));
        for address in ["http://", "https://", "src=", "@import", "url("] {
            let rest = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!rest.contains(address), "{name}: {address}");
        }
    }
    assert!(functions > 3, "{functions} functions in all samples");
}

/// No name can end the page's data or begin a tag.
#[test]
fn names_are_no_markup() {
    let (_, plain) = samples().into_iter().find(|(_, report)| report.wide() > 0).unwrap();
    let mut evil = plain.clone();
    for offender in &mut evil.offenders {
        offender.function = "</script><script>alert(1)</script><!--".into();
        offender.process = "<img src=x>".into();
    }
    let (page, plain) = (evil.html(&chains(&evil)), plain.html(&chains(&plain)));
    assert!(page.contains("alert(1)"));
    for tag in ["<script", "</script", "<!--", "<img"] {
        assert_eq!(page.matches(tag).count(), plain.matches(tag).count(), "{tag}");
    }
}

/// A field of a message: its number, and a number or bytes.
#[derive(Clone, Debug, PartialEq)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a number ends");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number of more than 64 bits")
}

/// A message's fields by number, in their order.
fn decoded(mut bytes: &[u8]) -> BTreeMap<u64, Vec<Field>> {
    let mut fields: BTreeMap<u64, Vec<Field>> = BTreeMap::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (content, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(content.to_vec())
            }
            kind => panic!("wire type {kind}"),
        };
        fields.entry(tag >> 3).or_default().push(field);
    }
    fields
}

fn bytes(fields: &BTreeMap<u64, Vec<Field>>, number: u64) -> Vec<Vec<u8>> {
    let of = fields.get(&number).cloned().unwrap_or_default().into_iter();
    of.map(|field| match field {
        Field::Bytes(bytes) => bytes,
        Field::Number(_) => panic!("field {number} is a number"),
    })
    .collect()
}

fn number(fields: &BTreeMap<u64, Vec<Field>>, number: u64) -> u64 {
    match fields.get(&number).and_then(|fields| fields.first()) {
        Some(Field::Number(value)) => *value,
        other => panic!("field {number} is {other:?}"),
    }
}

fn packed(mut bytes: &[u8]) -> Vec<u64> {
    let mut values = Vec::new();
    while !bytes.is_empty() {
        values.push(varint(&mut bytes));
    }
    values
}

/// A sample: functions with their files, innermost first; values; labels.
type Sample = (Vec<(String, String)>, Vec<u64>, BTreeMap<String, String>);

/// What a profile says: its types of values, its samples, its length and period.
fn read(profile: &[u8]) -> (Vec<(String, String)>, Vec<Sample>, u64, u64) {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(profile).read_to_end(&mut plain).unwrap();
    let profile = decoded(&plain);
    let strings: Vec<String> =
        bytes(&profile, 6).into_iter().map(|text| String::from_utf8(text).unwrap()).collect();
    assert_eq!(strings[0], "");
    let text = |index: u64| strings[index as usize].clone();
    let by_id = |field| -> BTreeMap<u64, BTreeMap<u64, Vec<Field>>> {
        let all = bytes(&profile, field).into_iter().map(|one| decoded(&one));
        all.map(|one| (number(&one, 1), one)).collect()
    };
    let (mappings, locations, functions) = (by_id(3), by_id(4), by_id(5));
    let function = |location: u64| {
        let location = &locations[&location];
        let line = decoded(&bytes(location, 4)[0]);
        let function = &functions[&number(&line, 1)];
        let file = text(number(function, 4));
        if !file.is_empty() {
            let mapping = &mappings[&number(location, 2)];
            assert_eq!((text(number(mapping, 5)), number(mapping, 7)), (file.clone(), 1));
        }
        (text(number(function, 2)), file)
    };
    let sample = |sample: Vec<u8>| {
        let sample = decoded(&sample);
        let chain = packed(&bytes(&sample, 1)[0]).into_iter().map(function).collect();
        let labels = bytes(&sample, 3).into_iter().map(|label| decoded(&label));
        let labels = labels.map(|label| (text(number(&label, 1)), text(number(&label, 2))));
        (chain, packed(&bytes(&sample, 2)[0]), labels.collect())
    };
    let types = bytes(&profile, 1).into_iter().map(|kind| decoded(&kind));
    let types = types.map(|kind| (text(number(&kind, 1)), text(number(&kind, 2)))).collect();
    let samples = bytes(&profile, 2).into_iter().map(sample).collect();
    (types, samples, number(&profile, 10), number(&profile, 12))
}

/// Samples and CPU time of a profile add up to those of its report, by level and by function.
#[test]
fn profiles_add_up_to_their_reports() {
    for (name, report) in samples() {
        let profile = report.pprof(&chains(&report));
        let (types, samples, duration_ns, period_ns) = read(&profile);
        let kind = |kind: &str, unit: &str| (kind.to_string(), unit.to_string());
        assert_eq!(types, [kind("samples", "count"), kind("cpu", "nanoseconds")], "{name}");
        assert_eq!((duration_ns, period_ns), (report.time_ns, report.period_ns), "{name}");
        let mut levels: BTreeMap<String, u64> = BTreeMap::new();
        let mut functions: BTreeMap<(String, String), u64> = BTreeMap::new();
        for (chain, values, labels) in samples {
            assert_eq!(values[1], values[0] * report.period_ns, "{name}: {chain:?}");
            *levels.entry(labels["level"].clone()).or_default() += values[0];
            assert_eq!(chain.last().unwrap().0, "[main]", "{name}: the outermost comes last");
            let key = (labels["process"].clone(), chain[0].0.clone());
            *functions.entry(key).or_default() += values[0];
        }
        assert_eq!(levels.values().sum::<u64>(), report.busy, "{name}");
        for level in &report.levels {
            assert_eq!(levels[&level.license_level.to_string()], level.samples, "{name}");
        }
        for offender in &report.offenders {
            let key = (offender.process.clone(), offender.function.clone());
            let of =
                report.offenders.iter().filter(|o| (&o.process, &o.function) == (&key.0, &key.1));
            assert_eq!(functions[&key], of.map(|o| o.samples).sum::<u64>(), "{name}: {key:?}");
        }
    }
}

/// Without samples there is a profile too.
#[test]
fn an_empty_profile_is_read() {
    let (types, samples, _, _) = read(&SampleReport::default().pprof(&CallChains::default()));
    assert_eq!((types.len(), samples.len()), (2, 0));
}
