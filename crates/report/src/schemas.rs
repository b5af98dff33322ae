// SPDX-License-Identifier: MIT OR Apache-2.0
//! JSON Schemas of what commands print with `--json`: the files in `docs/schemas`.
//!
//! **Problem.** A program that reads the output needs to know each key, its unit and when it is
//! `null`; a list written by hand would miss the next key.
//!
//! **Idea.** The schemas derive from the types, and descriptions from the comments of their fields.
//! Only tests need them, so that the command does not carry the derivation. `tests/cli/schemas.rs`
//! checks what the command prints against the files.
//!
//! A file accepts keys that it does not list, because a new key does not raise [`SCHEMA`].

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use crate::{Document, SCHEMA};

/// Ends of keys, and the unit for readers.
const UNITS: [(&str, &str); 13] = [
    ("_ns", "ns"),
    ("_khz", "kHz"),
    ("_pct", "percent"),
    ("_permille", "1/1000"),
    ("_frac", "a fraction of 1"),
    ("_bytes", "bytes"),
    ("_mib", "MiB"),
    ("_cycles", "cycles"),
    ("_ticks", "ticks of the time stamp counter"),
    ("_nj", "nJ"),
    ("_j", "J"),
    ("_w", "W"),
    ("_per_s", "per second"),
];

/// File name, the command that prints it, the schema.
fn documents() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("advise", "turbolane advise --json", of::<crate::advise::Advice>()),
        ("bench", "./x bench GROUP --json FILE", of::<crate::bench::BenchReport>()),
        ("bench-locks", "turbolane bench locks --json", of::<crate::locks::LockBench>()),
        ("ctl-settings", "turbolane ctl get --json", of::<Document<crate::settings::Settings>>()),
        ("ctl-status", "turbolane ctl status --json", of::<Document<crate::lane::LaneStatus>>()),
        ("doctor", "turbolane doctor --json", of::<crate::doctor::Doctor>()),
        ("fleet", "turbolane fleet --json", of::<crate::fleet::Fleet>()),
        ("probe", "turbolane probe --json", of::<crate::probe::ProbeReport>()),
        ("profile", "turbolane profile --json", of::<crate::profile::ProfileReport>()),
        ("sample", "turbolane sample --format json", of::<crate::sample::SampleReport>()),
        ("scan", "turbolane scan --json", of::<crate::scan::Scan>()),
        ("scan-lines", "a line of turbolane scan --json-lines", of::<crate::scan::Line>()),
        ("sim", "a line of turbolane sim --json", of::<crate::sim::SimReport>()),
        ("sim-break-even", "turbolane sim --break-even --json", of::<crate::dvfs::BreakEven>()),
        ("sim-list", "turbolane sim --json without a scenario", of::<crate::sim::BuiltIn>()),
        ("sim-replay", "turbolane sim --replay --json", of::<crate::dvfs::Replay>()),
        ("stats", "turbolane stats --json", of::<Document<crate::lane::LaneStats>>()),
        ("status", "turbolane status --json", of::<Document<crate::service::ServiceStatus>>()),
        ("times", "turbolane run --times", of::<crate::times::Times>()),
        ("top", "turbolane top --json", of::<Document<crate::top::Top>>()),
        ("trace", "turbolane trace --json", of::<Document<crate::record::RecordSummary>>()),
        ("verify", "turbolane verify --json", of::<crate::verify::VerifyReport>()),
    ]
}

/// The schema of what is written, not of what is accepted: a key that may be `null` is required.
fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    SchemaGenerator::new(settings).into_root_schema_for::<T>().to_value()
}

/// Adds the title and the number of the format, and completes the descriptions.
fn finish(mut schema: Value, title: &str) -> Value {
    complete(&mut schema);
    schema["title"] = json!(title);
    schema["properties"]["schema"] = json!({
        "const": SCHEMA,
        "description": "Version of the format. It grows when a key changes its meaning or goes \
            away; a new key does not change it.",
    });
    schema
}

/// Leaves out what is Rust's alone: links in comments, the width of a number, what a missing key
/// would mean to our own reader.
fn complete(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::String(text)) = object.get_mut("description") {
                *text = text.replace("[`", "`").replace("`]", "`").replace('\n', " ");
            }
            // `format` and `default` among properties are keys of the document.
            let is_schema = |key: &str| object.get(key).is_some_and(|value| !value.is_object());
            if ["type", "$ref", "anyOf", "oneOf"].into_iter().any(is_schema) {
                object.remove("format");
                object.remove("default");
            }
            if let Some(Value::Object(properties)) = object.get_mut("properties") {
                properties.iter_mut().for_each(|(key, property)| add_unit(key, property));
            }
            object.values_mut().for_each(complete);
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(complete),
        _ => {}
    }
}

fn add_unit(key: &str, property: &mut Value) {
    let Some((_, unit)) = UNITS.iter().find(|(end, _)| key.ends_with(end)) else { return };
    let about = property["description"].as_str().unwrap_or_default();
    property["description"] = json!(format!("{about} Unit: {unit}.").trim_start());
}

/// Names of the files, and what they contain.
fn files() -> BTreeMap<String, String> {
    let text = |title, schema| {
        let schema = serde_json::to_string_pretty(&finish(schema, title));
        schema.expect("it has string keys") + "\n"
    };
    let named = |(name, title, schema)| (format!("{name}.json"), text(title, schema));
    documents().into_iter().map(named).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas")
}

/// The files in the tree are those of the types, and there are no others.
#[test]
fn files_are_current() {
    let (folder, files) = (folder(), files());
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in &files {
            fs::write(folder.join(name), text).unwrap();
        }
    }
    let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let checked_in: BTreeMap<String, String> = entries
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    assert!(
        checked_in.keys().eq(files.keys()),
        "docs/schemas has {:?}; these are documents: {:?}",
        checked_in.keys(),
        files.keys()
    );
    for (name, text) in &files {
        assert!(
            &checked_in[name] == text,
            "docs/schemas/{name} is stale. Run: UPDATE=1 cargo test -p report schemas"
        );
    }
}

/// The page about output links each file.
#[test]
fn each_file_is_linked() {
    let page = fs::read_to_string(folder().join("../commands.md")).unwrap();
    for name in files().keys() {
        assert!(page.contains(&format!("](schemas/{name})")), "docs/commands.md: {name}");
    }
}

/// All properties of a schema and of those inside it, with their keys.
fn properties(schema: &Value) -> Vec<(&str, &Value)> {
    let inner: Vec<&Value> = match schema {
        Value::Object(object) => object.values().collect(),
        Value::Array(schemas) => schemas.iter().collect(),
        _ => Vec::new(),
    };
    let own = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let own = own.map(|(key, property)| (key.as_str(), property));
    own.chain(inner.into_iter().flat_map(properties)).collect()
}

/// Each key of each document has a description, and a time its unit.
#[test]
fn each_key_is_described() {
    let mut seen = 0;
    for (name, text) in files() {
        let schema = serde_json::from_str(&text).unwrap();
        // The name of a variant has its description at the variant.
        let is_described = |(_, property): &(&str, &Value)| property.get("const").is_none();
        for (key, property) in properties(&schema).into_iter().filter(is_described) {
            let about = property["description"].as_str().unwrap_or_default();
            assert!(!about.is_empty(), "{name}: {key} has no description");
            assert!(!key.ends_with("_ns") || about.ends_with("Unit: ns."), "{name}: {key}");
            seen += 1;
        }
    }
    assert!(seen > 300, "only {seen} keys were found");
}
