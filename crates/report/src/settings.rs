// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of a run, as `turbolane ctl get` shows them.

use serde::{Deserialize, Serialize};

use crate::text::{Align, Table};

/// One setting with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Setting {
    /// Its name: the flag of `turbolane run` without the dashes.
    pub key: String,
    /// Its value in the syntax that the flag takes, unit included.
    pub value: String,
    /// What it means.
    pub meaning: String,
    /// It can be changed while the scheduler runs.
    pub live: bool,
}

/// Some or all settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Settings {
    /// The settings.
    pub settings: Vec<Setting>,
}

/// Settings as text of at most `width` columns.
pub fn settings_text(settings: &[Setting], width: usize) -> String {
    let mut table =
        Table::new(&[("SETTING", Align::Left), ("VALUE", Align::Left), ("MEANING", Align::Left)]);
    for Setting { key, value, meaning, live } in settings {
        let fixed = if *live { "" } else { " (fixed while it runs)" };
        table.row(vec![key.clone(), value.clone(), format!("{meaning}{fixed}")]);
    }
    table.text(width)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A setting that cannot be changed says so.
    #[test]
    fn text_marks_fixed_settings() {
        let setting = |key: &str, live| Setting {
            key: key.into(),
            value: "5ms".into(),
            meaning: "a time".into(),
            live,
        };
        let text = settings_text(&[setting("slice", true), setting("mode", false)], 80);
        assert_eq!(
            text,
            "SETTING  VALUE  MEANING\n\
             slice    5ms    a time\n\
             mode     5ms    a time (fixed while it runs)\n"
        );
    }
}
