// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trace of one CPU for replays under DVFS policies: what it executed, period by period.
//!
//! JSON lines, so that a recorder can write while it records and a reader of a cut-off file knows
//! where it ends. The first line says what the trace is, each further line is a period:
//!
//! ```text
//!   {"schema":1,"timeline":"web","about":"...","machine":"core-i9-7940x","active_cores":14,"work":"request","recorded":true}
//!   {"level":2,"cycles":62500,"marks":["request"]}
//!   {"cycles":9800000,"sensitive_frac":0.96,"marks":["force"]}
//!   {"idle_ns":50000}
//! ```
//!
//! | key of a period | meaning | left out |
//! |---|---|---|
//! | `cycles` | work, as cycles at the clock of level 0 of the machine | idle period |
//! | `level` | licence level that the code asks for | 0 |
//! | `sensitive_frac` | part of the work that follows the clock, 0 to 1 | 1 |
//! | `idle_ns` | nothing to do for so long; instead of `cycles` | busy period |
//! | `marks` | said at its begin: `"request"` (a unit of work begins), `"force"` (raise the clock now), `{"delay_ns":N}` (from now on raise it so long after wide code), `{"switch":LEVEL}` (context switch; what the next task is expected to ask for) | none |
//!
//! In the first line `demand` says where the levels of a recorded timeline come from, if licence
//! levels were recorded ([`Demand`]).
//!
//! A period has millions of fellows, so what it leaves out has the value of the last column: the
//! one exception from the rule that unknown is `null`. Keys that are not in the table are ignored.

use cpumodel::DataError;
use serde::{Deserialize, Serialize};

use crate::text::duration;
use crate::{SCHEMA, json_line};

/// Most work of a period, cycles, and longest idle time, ns: about ten minutes. Longer ones are
/// several.
pub const AMOUNT_MAX: u64 = 1 << 41;

/// What a trace is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Header {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// Its name.
    pub timeline: String,
    /// What was recorded, in a sentence.
    pub about: String,
    /// Id of the CPU model whose levels and cycles these are.
    pub machine: String,
    /// Cores of the package that were active; `null` if unknown.
    pub active_cores: Option<usize>,
    /// What a unit of work is.
    pub work: String,
    /// Whether a recorder wrote it; false: it is modelled.
    pub recorded: bool,
    /// Where its levels come from, if licence levels were recorded; `null`: they were not.
    #[serde(default)]
    pub demand: Option<Demand>,
}

/// Where the levels of a recorded timeline come from, and how they agree with the levels that the
/// machine had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum Demand {
    /// From marked functions; recorded levels are a check.
    Marks {
        /// How long the recorded hardware held a level.
        hold_ns: u64,
        /// Time inside of marked functions.
        wide_ns: u64,
        /// Time at a level above 0.
        raised_ns: u64,
        /// Of that, as high as the marks and the hold explain.
        explained_ns: u64,
        /// Time below the level that the marks and the hold lead to.
        unmet_ns: u64,
    },
    /// From the levels: as long as they were raised, without the hold after each.
    Levels {
        /// How long the recorded hardware held a level.
        hold_ns: u64,
        /// Time at a level above 0.
        raised_ns: u64,
        /// Least time in which these levels were asked for.
        least_ns: u64,
        /// Most.
        most_ns: u64,
        /// Whether the timeline has the most; else the least.
        most: bool,
    },
}

impl Demand {
    /// In a sentence.
    pub fn text(&self) -> String {
        let share = |part_ns: u64, of_ns: u64| 100.0 * part_ns as f64 / (of_ns as f64).max(1.0);
        match *self {
            Demand::Marks { hold_ns, wide_ns, raised_ns, explained_ns, unmet_ns } => format!(
                "by the marks, {}; of {} at a raised level they explain {:.1} % with a hold of {}; for {} they lead \
                 to a higher level than there was",
                duration(wide_ns),
                duration(raised_ns),
                share(explained_ns, raised_ns),
                duration(hold_ns),
                duration(unmet_ns),
            ),
            Demand::Levels { hold_ns, raised_ns, least_ns, most_ns, most } => format!(
                "by the levels, between {} and {} of {} at a raised level, excluding the hold time of {} after each demand; \
                 the {} is replayed. Demand within a hold time cannot be seen: gaps shorter than it count as demand",
                duration(least_ns),
                duration(most_ns),
                duration(raised_ns),
                duration(hold_ns),
                if most { "most" } else { "least" },
            ),
        }
    }
}

/// What a program or the kernel says at the begin of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// A unit of work begins.
    Request,
    /// Raise the clock now.
    Force,
    /// From now on raise it so long after the last wide code.
    DelayNs(u64),
    /// A context switch to a task that is expected to ask for this level.
    Switch(u8),
}

/// One period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Period {
    /// Licence level that its code asks for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub level: u8,
    /// Work; `None`: it is idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<u64>,
    /// Part of the work that follows the clock; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitive_frac: Option<f32>,
    /// Idle time; `None`: it is busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ns: Option<u64>,
    /// What is said at its begin.
    #[serde(default, rename = "marks", skip_serializing_if = "Vec::is_empty")]
    pub moments: Vec<Moment>,
}

fn is_zero(level: &u8) -> bool {
    *level == 0
}

/// A trace as text.
pub fn write(header: &Header, periods: impl Iterator<Item = Period>) -> String {
    let mut text = json_line(header) + "\n";
    for period in periods {
        text += &json_line(&period);
        text.push('\n');
    }
    text
}

/// The trace that a text holds. The error names the line.
pub fn read(text: &str) -> Result<(Header, Vec<Period>), DataError> {
    let mut lines = text.lines().enumerate();
    let header: Header = match lines.next() {
        Some((number, line)) => parse(number, line, "begin with a line as turbolane writes it")?,
        None => return Err(refuse(0, "the file is empty", "name a trace of turbolane")),
    };
    if header.schema != SCHEMA {
        let what = format!("schema {} is not {SCHEMA}", header.schema);
        return Err(refuse(0, what, "use the version that wrote the file"));
    }
    let mut periods = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let period = parse(number, line, "if the file was cut off, remove its last line")?;
        periods.push(sensible(number, period)?);
    }
    Ok((header, periods))
}

fn parse<T: for<'a> Deserialize<'a>>(
    number: usize,
    line: &str,
    next: &str,
) -> Result<T, DataError> {
    serde_json::from_str(line).map_err(|error| {
        // the reader counts lines within the line
        let text = error.to_string();
        let what = text.split(" at line ").next().unwrap_or_default();
        refuse(number, format!("{what}, column {}", error.column()), next)
    })
}

fn sensible(number: usize, period: Period) -> Result<Period, DataError> {
    let amount = match (period.cycles, period.idle_ns) {
        (Some(cycles), None) => cycles,
        (None, Some(idle_ns)) if period.level == 0 && period.sensitive_frac.is_none() => idle_ns,
        _ => {
            let what = "a period has either cycles, or idle_ns without level and sensitive_frac";
            return Err(refuse(number, what, "write one of them"));
        }
    };
    if amount > AMOUNT_MAX {
        let what = format!("{amount} is too much for one period");
        return Err(refuse(number, what, format!("write several of at most {AMOUNT_MAX}")));
    }
    if period.sensitive_frac.is_some_and(|frac| !(0.0..=1.0).contains(&frac)) {
        return Err(refuse(
            number,
            "sensitive_frac is not a fraction",
            "write a number from 0 to 1",
        ));
    }
    Ok(period)
}

fn refuse(number: usize, what: impl Into<String>, next: impl Into<String>) -> DataError {
    DataError { line: number + 1, what: what.into(), next: next.into() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> Header {
        Header {
            schema: SCHEMA,
            timeline: "t".into(),
            about: "a test".into(),
            machine: "core-i9-7940x".into(),
            active_cores: None,
            work: "request".into(),
            recorded: true,
            demand: None,
        }
    }

    /// The module's example is a trace, and short periods stay short lines.
    #[test]
    fn the_documented_form_is_read() {
        let text = concat!(
            r#"{"schema":1,"timeline":"web","about":"","machine":"m","active_cores":14,"work":"request","recorded":true}"#,
            "\n{\"level\":2,\"cycles\":62500,\"marks\":[\"request\"]}\n",
            "{\"cycles\":9800000,\"sensitive_frac\":0.96,\"marks\":[\"force\",{\"delay_ns\":7},{\"switch\":1}]}\n",
            "{\"idle_ns\":50000}\n"
        );
        let (header, periods) = read(text).unwrap();
        assert_eq!((header.active_cores, periods.len()), (Some(14), 3));
        assert_eq!(periods[1].moments, [Moment::Force, Moment::DelayNs(7), Moment::Switch(1)]);
        // what older ones do not say is unknown
        let text = text.replacen("true}", "true,\"demand\":null}", 1);
        assert_eq!(write(&header, periods.into_iter()), text);
    }

    /// Where levels come from is read back, and reported in numbers that add up.
    #[test]
    fn the_demand_is_told() {
        let (hold_ns, raised_ns) = (670_000, 10_000_000);
        let (explained_ns, wide_ns, unmet_ns) = (9_000_000, 8_000_000, 5_000);
        let marks = Demand::Marks { hold_ns, wide_ns, raised_ns, explained_ns, unmet_ns };
        assert!(marks.text().contains("explain 90.0 % with a hold of 670us"), "{}", marks.text());
        let (least_ns, most_ns) = (6_000_000, 7_000_000);
        let levels = Demand::Levels { hold_ns, raised_ns, least_ns, most_ns, most: false };
        let wanted = "between 6.00ms and 7.00ms of 10.0ms at a raised level";
        assert!(levels.text().contains(wanted), "{}", levels.text());
        assert!(levels.text().contains("the least is replayed"), "{}", levels.text());
        for demand in [marks, levels] {
            let header = Header { demand: Some(demand), ..header() };
            assert_eq!(read(&write(&header, std::iter::empty())).unwrap().0, header);
        }
    }

    /// An error has its line.
    #[test]
    fn mistakes_are_named_with_their_line() {
        let first = json_line(&header()) + "\n";
        let other = first.replace("\"schema\":1", "\"schema\":9");
        for (text, line, what) in [
            (String::new(), 1, "empty"),
            ("{}\n".into(), 1, "missing field"),
            (other, 1, "schema 9"),
            (first.clone() + "{\"cycles\":1}\n{\"cyc", 3, "EOF"),
            (first.clone() + "{\"cycles\":1,\"idle_ns\":2}\n", 2, "either cycles"),
            (first.clone() + "{}\n", 2, "either cycles"),
            (first.clone() + "{\"idle_ns\":2,\"level\":1}\n", 2, "without level"),
            (first.clone() + "{\"cycles\":-1}\n", 2, "invalid value"),
            (first.clone() + "{\"cycles\":99999999999999}\n", 2, "too much"),
            (first.clone() + "{\"cycles\":1,\"sensitive_frac\":1.5}\n", 2, "not a fraction"),
            (first + "{\"cycles\":1,\"marks\":[\"x\"]}\n", 2, "unknown variant"),
        ] {
            let error = read(&text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.what.contains(what) && !error.next.is_empty(), "{text}: {error}");
        }
    }

    fn periods() -> impl Strategy<Value = Vec<Period>> {
        let moment = prop_oneof![
            Just(Moment::Request),
            Just(Moment::Force),
            any::<u64>().prop_map(Moment::DelayNs),
            any::<u8>().prop_map(Moment::Switch),
        ];
        let moments = prop::collection::vec(moment, 0..3);
        let code = (any::<u8>(), 0..=AMOUNT_MAX, prop::option::of(0.0f32..=1.0)).prop_map(
            |(level, cycles, sensitive_frac)| Period {
                level,
                cycles: Some(cycles),
                sensitive_frac,
                ..Period::default()
            },
        );
        let idle = (0..=AMOUNT_MAX)
            .prop_map(|idle_ns| Period { idle_ns: Some(idle_ns), ..Period::default() });
        let period = (prop_oneof![code, idle], moments)
            .prop_map(|(period, moments)| Period { moments, ..period });
        prop::collection::vec(period, 0..20)
    }

    proptest! {
        /// What is written is read back.
        #[test]
        fn a_trace_comes_back(periods in periods()) {
            let text = write(&header(), periods.iter().cloned());
            prop_assert_eq!(read(&text).unwrap(), (header(), periods));
        }

        /// No text makes the reader panic: a trace with something replaced, and rubbish.
        #[test]
        fn nothing_panics(
            periods in periods(),
            at: prop::sample::Index,
            junk in "\\PC{0,30}",
            cut in 0usize..30,
        ) {
            let text = write(&header(), periods.into_iter());
            let at = at.index(text.len());
            let end = (at + cut).min(text.len());
            let _ = read(&format!("{}{junk}{}", &text[..at], &text[end..]));
            let _ = read(&junk);
        }
    }
}
