// SPDX-License-Identifier: MIT OR Apache-2.0
//! CSV (RFC 4180) for spreadsheets and data frames, from the types that JSON is written from.
//!
//! A row is a value, its columns are its keys: they end in the unit as in JSON, and numbers are not
//! rounded. The keys of a nested value follow its own, `latency` and `p50_ns` as `latency_p50_ns`.
//! `null` is an empty cell. Lists have no place in a row and are left out; JSON has them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, de};

/// What a key holds. `serde_json::Value` would sort the keys.
enum Node {
    Null,
    Text(String),
    Map(Vec<(String, Node)>),
    List,
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        while list.next_element::<de::IgnoredAny>()?.is_some() {}
        Ok(Node::List)
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Node, D::Error> {
        from.deserialize_any(NodeVisitor)
    }
}

/// The columns of a row with their cells.
fn flatten(name: &str, node: Node, row: &mut Vec<(String, String)>) {
    match node {
        Node::Null => row.push((name.to_owned(), String::new())),
        Node::Text(text) => row.push((name.to_owned(), cell(&text))),
        Node::List => {}
        Node::Map(entries) => {
            for (key, node) in entries {
                let key = if name.is_empty() { key } else { format!("{name}_{key}") };
                flatten(&key, node, row);
            }
        }
    }
}

/// The rows below a line of names. Nothing for no rows, whose columns are not known.
pub fn table<T: Serialize>(rows: &[T]) -> String {
    let mut names: Vec<String> = Vec::new();
    let mut lines: Vec<Vec<(String, String)>> = Vec::new();
    for row in rows {
        let node = serde_json::from_str(&crate::json_line(row)).expect("it is JSON");
        let mut line = Vec::new();
        flatten("", node, &mut line);
        for (at, (name, _)) in line.iter().enumerate() {
            if !names.contains(name) {
                // After the column that it follows here.
                let before = at.checked_sub(1).map(|before| &line[before].0);
                let place = before.and_then(|before| names.iter().position(|name| name == before));
                names.insert(place.map_or(0, |place| place + 1), name.clone());
            }
        }
        lines.push(line);
    }
    // A nested value that is `null` in some rows has its keys in others.
    let nested: Vec<String> = names
        .iter()
        .filter(|name| {
            let inner = format!("{name}_");
            let is_empty = |line: &Vec<(String, String)>| {
                line.iter().all(|(key, cell)| key != *name || cell.is_empty())
            };
            names.iter().any(|other| other.starts_with(&inner)) && lines.iter().all(is_empty)
        })
        .cloned()
        .collect();
    names.retain(|name| !nested.contains(name));
    let cells = |line: &Vec<(String, String)>| -> String {
        let found = |name| line.iter().find(|(key, _)| key == name);
        let cells = names.iter().map(|name| found(name).map_or("", |(_, cell)| cell.as_str()));
        cells.collect::<Vec<_>>().join(",") + "\r\n"
    };
    let head = if rows.is_empty() { String::new() } else { names.join(",") + "\r\n" };
    head + &lines.iter().map(cells).collect::<String>()
}

/// A cell in quotation marks where it needs them. A spreadsheet takes text that begins like a
/// formula for one, so that gets an apostrophe, which spreadsheets do not show.
pub(crate) fn cell(text: &str) -> String {
    let is_number = text.parse::<f64>().is_ok();
    let is_formula = !is_number && text.starts_with(['=', '+', '-', '@']);
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    match text.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Inner {
        p50_ns: u64,
        max_ns: u64,
    }

    #[derive(Serialize)]
    struct Row {
        name: &'static str,
        rate_per_s: f64,
        latency: Option<Inner>,
        levels: Vec<u8>,
        wide: Option<bool>,
    }

    /// Names in the order of the fields, nested keys in place of what is `null` in another row.
    #[test]
    fn rows_have_the_columns_of_all() {
        let first =
            Row { name: "a", rate_per_s: 0.1, latency: None, levels: vec![1], wide: Some(true) };
        let latency = Some(Inner { p50_ns: 7, max_ns: 9 });
        let second = Row { name: "b", rate_per_s: 1e9, latency, levels: vec![], wide: None };
        let expected = "name,rate_per_s,latency_p50_ns,latency_max_ns,wide\r\n\
                        a,0.1,,,true\r\nb,1000000000,7,9,\r\n";
        assert_eq!(table(&[first, second]), expected);
        assert_eq!(table::<Row>(&[]), "");
    }

    /// Text that a reader of CSV would take for more than one cell or line, or for a formula.
    #[test]
    fn cells_are_quoted() {
        assert_eq!(cell("a \"b\""), "\"a \"\"b\"\"\"");
        assert_eq!(cell("a,b\r\nc"), "\"a,b\r\nc\"");
        assert_eq!(cell("=1+1"), "'=1+1");
        assert_eq!(cell("-1.5"), "-1.5");
        assert_eq!(cell("plain"), "plain");
    }
}
