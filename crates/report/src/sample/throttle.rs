// SPDX-License-Identifier: MIT OR Apache-2.0
//! What limited the clock while samples were taken, where the CPU keeps throttle reasons instead of
//! counting cycles at licence levels (Granite Rapids and later).

use serde::{Deserialize, Serialize};

use crate::text::{Align, Table, wrap};

/// What limits a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The class of the code (FREQUENCY_CDYN1 and up): a licence.
    License,
    /// A limit that holds for scalar code, too, such as turbo limits.
    Turbo,
    /// Power, or current.
    Power,
    /// Temperature.
    Heat,
    /// Anything else.
    Other,
}

/// CPUs that were limited by one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Limited {
    /// The cause.
    pub cause: Cause,
    /// CPUs on which a reason is new since sampling began, as a list: they were limited meanwhile.
    pub cpus: String,
    /// The new reasons, as the driver names them.
    pub reasons: Vec<String>,
    /// Samples of these CPUs while they did not idle.
    pub busy: u64,
    /// Of these: in wide code.
    pub wide: u64,
    /// CPUs with a reason that was set before and is not new, as a list: whether they were limited
    /// meanwhile is not known, because a reason stays set until it is cleared.
    pub set_before: String,
}

/// Throttle reasons, read before and after sampling.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ThrottleReasons {
    /// CPUs that have them.
    pub cpus: u32,
    /// They were cleared before sampling, as asked for.
    pub cleared: bool,
    /// By cause, causes of no CPU left out.
    pub limited: Vec<Limited>,
    /// Files that could not be read, each with the reason.
    pub unread: Vec<String>,
}

/// What the answer rests on.
const BASIS: &str = "read as the driver's source documents them, not tried on hardware";
const NOT_KNOWN: &str = "A reason stays set until it is cleared. CPUs in the column SET BEFORE may have been limited while sampled, or not: \
    --clear-throttle-reasons clears the reasons first, for all programs that read them.";

impl Cause {
    /// The cause, after "limited by".
    pub fn word(self) -> &'static str {
        match self {
            Cause::License => "licence",
            Cause::Turbo => "turbo limits",
            Cause::Power => "power",
            Cause::Heat => "heat",
            Cause::Other => "other reasons",
        }
    }
}

impl ThrottleReasons {
    /// A paragraph with a table, of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let cleared = if self.cleared { "cleared before sampling; " } else { "" };
        let head = format!("Throttle reasons of {} CPUs ({cleared}{BASIS}):", self.cpus);
        let mut text = wrap("", &head, width);
        if self.limited.is_empty() {
            text += &wrap("  ", "no CPU was limited by anything", width);
        } else {
            text += &self.table().text(width);
        }
        if self.is_unclear() && !self.cleared {
            text += &wrap("", NOT_KNOWN, width);
        }
        for unread in &self.unread {
            text += &wrap("not looked at: ", unread, width);
        }
        text
    }

    fn is_unclear(&self) -> bool {
        self.limited.iter().any(|limited| !limited.set_before.is_empty())
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&[
            ("LIMITED BY", Align::Left),
            ("CPUS", Align::Left),
            ("SAMPLES", Align::Right),
            ("WIDE", Align::Right),
            ("SET BEFORE", Align::Left),
            ("REASONS", Align::Left),
        ]);
        let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        for limited in &self.limited {
            table.row(vec![
                limited.cause.word().into(),
                or_dash(&limited.cpus),
                limited.busy.to_string(),
                limited.wide.to_string(),
                or_dash(&limited.set_before),
                or_dash(&limited.reasons.join(" ")),
            ]);
        }
        table
    }

    /// One sentence, for a line of `turbolane advise`.
    pub fn sentence(&self) -> String {
        let limited = |found: &Limited| {
            format!(
                "CPUs {} by {} ({} of their {} busy samples in wide code)",
                found.cpus,
                found.cause.word(),
                found.wide,
                found.busy
            )
        };
        let new = self.limited.iter().filter(|limited| !limited.cpus.is_empty());
        let new: Vec<String> = new.map(limited).collect();
        let mut says = match (new.is_empty(), self.is_unclear()) {
            (false, _) => format!("limited while sampled: {}", new.join("; ")),
            (true, false) => "no CPU was limited while sampled".into(),
            (true, true) => "no CPU has a new throttle reason".into(),
        };
        let before = self.limited.iter().filter(|limited| !limited.set_before.is_empty());
        let before: Vec<&str> = before.map(|limited| limited.cause.word()).collect();
        if !before.is_empty() {
            let hint =
                if self.cleared { "" } else { "; --clear-throttle-reasons clears them first" };
            says +=
                &format!("; reasons of before ({}) hide what came later{hint}", before.join(", "));
        }
        format!("{says} [measured: throttle reasons, {BASIS}]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(set_before: &str) -> ThrottleReasons {
        let limited = Limited {
            cause: Cause::License,
            cpus: "0-3".into(),
            reasons: vec!["FREQUENCY_CDYN2".into()],
            busy: 400,
            wide: 30,
            set_before: set_before.into(),
        };
        ThrottleReasons { cpus: 16, limited: vec![limited], ..ThrottleReasons::default() }
    }

    /// What is new is attributed, and what was set before is said to be unknown, with a remedy.
    #[test]
    fn old_reasons_are_not_blamed() {
        let text = found("").text(100);
        assert!(
            text.contains("licence     0-3       400    30  -           FREQUENCY_CDYN2"),
            "{text}"
        );
        assert!(!text.contains("--clear"), "{text}");
        assert!(found("7").text(100).contains("--clear-throttle-reasons"));
        let cleared = ThrottleReasons { cleared: true, ..found("7") };
        assert!(!cleared.text(100).contains("--clear"));
        assert!(!cleared.sentence().contains("--clear"));
    }

    /// The three sentences: limited, not limited, not known.
    #[test]
    fn sentences_say_what_is_known() {
        let says = found("").sentence();
        assert!(says.starts_with("limited while sampled: CPUs 0-3 by licence (30 of"), "{says}");
        let none = ThrottleReasons { cpus: 16, ..ThrottleReasons::default() };
        assert!(none.sentence().starts_with("no CPU was limited"));
        let mut before = found("7");
        before.limited[0].cpus.clear();
        let says = before.sentence();
        assert!(says.starts_with("no CPU has a new"), "{says}");
        assert!(says.contains("(licence) hide"), "{says}");
    }
}
