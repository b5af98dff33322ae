// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the simulator has built in: `turbolane sim` without a scenario.

use serde::{Deserialize, Serialize};

use crate::SCHEMA;
use crate::text::wrap;

/// The document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BuiltIn {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// Scenarios, which `turbolane sim` takes as arguments.
    pub scenarios: Vec<Named>,
    /// Timelines, for `--replay`.
    pub timelines: Vec<Named>,
    /// CPU models, for `--machine`.
    pub machines: Vec<BuiltInMachine>,
}

/// A scenario or timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Named {
    /// Its name.
    pub name: String,
    /// What it shows, in a sentence.
    pub about: String,
    /// Names for `--variant`; empty if there is one kind of code only.
    pub variants: Vec<String>,
}

/// A CPU model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BuiltInMachine {
    /// Its id.
    pub id: String,
    /// Name for people.
    pub name: String,
}

impl BuiltIn {
    /// A document of this schema.
    pub fn new(
        scenarios: Vec<Named>,
        timelines: Vec<Named>,
        machines: Vec<BuiltInMachine>,
    ) -> Self {
        BuiltIn { schema: SCHEMA, scenarios, timelines, machines }
    }

    /// As text of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let mut text = String::from("Scenarios:\n");
        text += &lines(&self.scenarios, width);
        text += "\nTimelines, for --replay:\n";
        text += &lines(&self.timelines, width);
        text += "\nMachines:\n";
        for BuiltInMachine { id, name } in &self.machines {
            text += &format!("  {id:20} {name}\n");
        }
        text
    }
}

fn lines(all: &[Named], width: usize) -> String {
    let line = |Named { name, about, variants }: &Named| {
        let variants = match variants.is_empty() {
            true => String::new(),
            false => format!(" (variants: {})", variants.join(", ")),
        };
        wrap(&format!("  {name:15} "), &format!("{about}{variants}"), width)
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line each, with variants where there are any.
    #[test]
    fn each_is_a_line() {
        let named = |name: &str, variants: &[&str]| Named {
            name: name.into(),
            about: "What it is".into(),
            variants: variants.iter().map(ToString::to_string).collect(),
        };
        let machine = BuiltInMachine { id: "m".into(), name: "A CPU".into() };
        let list =
            BuiltIn::new(vec![named("a", &["x", "y"])], vec![named("b", &[])], vec![machine]);
        let expected = "Scenarios:\n  a               What it is (variants: x, y)\n\n\
                        Timelines, for --replay:\n  b               What it is\n\n\
                        Machines:\n  m                    A CPU\n";
        assert_eq!(list.text(80), expected);
    }
}
