// SPDX-License-Identifier: MIT OR Apache-2.0
//! What commands print with `--json` follows the files in docs/schemas. Here a file accepts no key
//! that it does not list: a key that is printed and not described is an error of this tree.

use std::fs;

use serde_json::{Value, json};

use crate::{root, turbolane};

/// The schema of a document as it is in the tree.
fn schema(name: &str) -> Value {
    let text = fs::read_to_string(root().join(format!("docs/schemas/{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Makes every object with properties refuse other keys.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.values_mut().for_each(close);
            if object.get("type") == Some(&json!("object")) && object.contains_key("properties") {
                object.insert("additionalProperties".into(), json!(false));
            }
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(close),
        _ => {}
    }
}

/// What is wrong with a document by a schema that was not closed yet.
fn complaints(mut schema: Value, document: &Value) -> Vec<String> {
    close(&mut schema);
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let errors = validator.iter_errors(document);
    errors.map(|error| format!("{}: {error}", error.instance_path)).collect()
}

/// Each line of an output is a document of that schema, and there is one.
#[track_caller]
pub fn follows(name: &str, output: &[u8]) {
    let text = std::str::from_utf8(output).unwrap();
    assert!(!text.is_empty(), "{name}: nothing was printed");
    for line in text.lines() {
        let document = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let found = complaints(schema(name), &document);
        assert!(found.is_empty(), "{name}: {found:#?}\n{line}");
    }
}

fn printed(arguments: &[&str]) -> Vec<u8> {
    let output = turbolane().args(arguments).output().unwrap();
    assert!(!output.stdout.is_empty(), "{arguments:?}: {output:?}");
    output.stdout
}

/// The documents of commands that need neither a scheduler nor a privilege. The tests of those that
/// do call [`follows`] themselves.
#[test]
fn documents_follow_their_schemas() {
    let data = |path: &str| format!("../../tests/data/{path}");
    let machine = data("machines/skylake-sp");
    let (samples, timeline) = (data("samples/tls-server.json"), data("timelines/small.jsonl"));
    let (answers, trace) = (data("fleet/web-1.json"), data("traces/lane.trace"));
    let levels = data("traces/nginx-gzip1.trace");
    let advise = ["advise", "--json", "--samples", &samples, "--machine", &machine];
    let cases: [(&str, &[&str]); 18] = [
        ("advise", &advise),
        ("advise", &["advise", "--json", "--machine", &data("machines/epyc-genoa")]),
        ("bench-locks", &["bench", "locks", "--json", "--model", "fx-8120"]),
        ("doctor", &["doctor", "--json", "--machine", &machine]),
        ("doctor", &["doctor", "--json"]),
        ("fleet", &["fleet", "--json", &answers]),
        ("probe", &["probe", "--json", "--simulate", "xeon-w-2104", "--quick"]),
        ("profile", &["profile", "--json", "--scenario", "thesis-nginx", "--samples", "20"]),
        ("scan", &["scan", "--json", "--level", "0", "/bin/true"]),
        ("scan-lines", &["scan", "--json-lines", "/bin/true", "/bin/false"]),
        ("sim", &["sim", "--json", "openssl-speed"]),
        ("sim-break-even", &["sim", "--json", "--break-even", "core-i9-7940x"]),
        ("sim-list", &["sim", "--json"]),
        ("sim-replay", &["sim", "--json", "--replay", &timeline, "--dvfs", "hardware"]),
        ("trace", &["trace", "--json", &trace]),
        ("trace", &["trace", "--json", &levels]),
        (
            "verify",
            &["verify", "--json", "--runs", "4", "--warmup", "0", "--a", "true", "--b", "true"],
        ),
        ("verify", &["verify", "--json", "--scenario", "openssl-speed", "--runs", "4"]),
    ];
    for (name, arguments) in cases {
        follows(name, &printed(arguments));
    }
    for recorded in ["tls-server", "all-wide", "burner"] {
        let text = fs::read(data(&format!("samples/{recorded}.json"))).unwrap();
        let mut document: Value = serde_json::from_slice(&text).unwrap();
        // A key that these recordings are older than.
        document["partial"] = Value::Null;
        follows("sample", document.to_string().as_bytes());
    }
}

/// A key that the schema lacks is found, at the top and inside, and so are one that is not printed
/// and a value of another type.
#[test]
fn a_key_without_a_schema_fails() {
    let output =
        printed(&["doctor", "--json", "--machine", "../../tests/data/machines/epyc-genoa"]);
    let document: Value = serde_json::from_slice(&output).unwrap();
    let whole = schema("doctor");
    assert_eq!(complaints(whole.clone(), &document), [""; 0]);
    let mut without = whole.clone();
    without["properties"].as_object_mut().unwrap().remove("machine").unwrap();
    assert!(!complaints(without, &document).is_empty());
    let mut without = whole.clone();
    without["$defs"]["Check"]["properties"].as_object_mut().unwrap().remove("status").unwrap();
    assert!(!complaints(without, &document).is_empty());
    let mut incomplete = document.clone();
    incomplete.as_object_mut().unwrap().remove("sections").unwrap();
    assert_eq!(complaints(whole.clone(), &incomplete).len(), 1);
    let mut mistaken = document;
    mistaken["schema"] = json!("1");
    assert_eq!(complaints(whole, &mistaken).len(), 1);
}
