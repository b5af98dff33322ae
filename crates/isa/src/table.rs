// SPDX-License-Identifier: MIT OR Apache-2.0
//! `data/isa/classes.toml`, parsed.

use serde::Deserialize;

use crate::pattern;

/// Whether instructions of a class need much power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// Logic, moves, shuffles, integer addition.
    Light,
    /// FP, integer multiplication, scatter.
    Heavy,
    /// AMX.
    Tile,
}

/// Instructions of one kind.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// One word.
    pub name: String,
    /// How much power they need.
    pub weight: Weight,
    /// What they do.
    pub what: String,
    /// Where the weight is documented.
    pub source: String,
    mnemonics: Vec<String>,
}

/// The level that a weight and a length ask for.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Of the instruction.
    pub weight: Weight,
    /// Of its vectors; 0 for tiles.
    #[serde(default)]
    pub width_bits: u16,
    /// What it asks for.
    pub license_level: u8,
    /// Where this is documented.
    pub source: String,
}

/// All classes and levels.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    #[serde(rename = "level")]
    levels: Vec<Level>,
    #[serde(rename = "class")]
    classes: Vec<Class>,
}

impl Table {
    /// The table is part of the build, and tests parse it.
    pub(crate) fn parse(text: &str) -> Self {
        toml::from_str(text).expect("data/isa/classes.toml is part of this build; a test parses it")
    }

    /// All classes.
    #[must_use]
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// The level that vectors of this weight and length ask for; 0 is none.
    #[must_use]
    pub fn level(&self, weight: Weight, width_bits: u16) -> u8 {
        let fits = |level: &&Level| level.weight == weight && level.width_bits == width_bits;
        self.levels.iter().find(fits).map_or(0, |level| level.license_level)
    }

    /// The class of a mnemonic in lower case.
    #[must_use]
    pub fn class_of(&self, mnemonic: &str) -> Option<&Class> {
        self.classes.iter().find(|class| class.has(mnemonic))
    }
}

impl Class {
    /// Whether a mnemonic in lower case belongs to it.
    #[must_use]
    pub fn has(&self, mnemonic: &str) -> bool {
        self.fitting(mnemonic).next().is_some()
    }

    /// The patterns that a mnemonic in lower case fits.
    pub fn fitting(&self, mnemonic: &str) -> impl Iterator<Item = &str> {
        self.patterns()
            .iter()
            .map(String::as_str)
            .filter(move |pattern| pattern::fits(pattern, mnemonic))
    }

    /// The patterns as written.
    #[must_use]
    pub fn patterns(&self) -> &[String] {
        &self.mnemonics
    }
}
