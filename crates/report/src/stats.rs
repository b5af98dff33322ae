// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics that describe themselves.
//!
//! Each statistic is defined once, by [`statistics!`]: its kind, its name (which ends in the
//! unit), its column title in the one-line form, and what it means. The JSON keys, the table,
//! the periodic line and `--help-stats` all come from that definition, so they cannot disagree.
//!
//! Every value is an `Option<u64>`: what a mode of working cannot know is `None`, printed as
//! `-` and written as `null`.

use crate::text::{Align, Table, duration, pad};

/// What the numbers of a statistic are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; a report over an interval shows the difference.
    Counter,
    /// A state; a report shows the latest value.
    Gauge,
}

/// Description of one statistic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistic {
    /// JSON key; ends in the unit unless it counts things.
    pub key: &'static str,
    /// Title of its column in the periodic line; empty: not shown there.
    pub column: &'static str,
    /// What it means.
    pub about: &'static str,
    /// Counter or gauge.
    pub kind: Kind,
}

impl Statistic {
    /// A value for people.
    pub fn show(&self, value: Option<u64>) -> String {
        match value {
            None => "-".to_string(),
            Some(ns) if self.key.ends_with("_ns") => duration(ns),
            Some(count) => count.to_string(),
        }
    }
}

/// A set of statistics; made by [`statistics!`].
pub trait Statistics: Sized {
    /// All descriptions, in the order of the fields.
    const ABOUT: &'static [Statistic];

    /// All values, in the same order.
    fn values(&self) -> Vec<Option<u64>>;

    /// What happened since `earlier`: counters are subtracted, gauges kept.
    fn since(&self, earlier: &Self) -> Self;

    /// One statistic per line, with its meaning.
    fn table(&self) -> Table {
        let mut table = Table::new(&[
            ("STATISTIC", Align::Left),
            ("VALUE", Align::Right),
            ("MEANING", Align::Left),
        ]);
        for (about, value) in Self::ABOUT.iter().zip(self.values()) {
            table.row(vec![about.key.into(), about.show(value), about.about.into()]);
        }
        table
    }

    /// Titles over [`Statistics::line`].
    fn line_head() -> String {
        columns::<Self>()
            .map(|about| pad(about.column, column_width(about), Align::Right))
            .collect()
    }

    /// The statistics that have a column, in one line.
    fn line(&self) -> String {
        let values = Self::ABOUT.iter().zip(self.values());
        values
            .filter(|(about, _)| !about.column.is_empty())
            .map(|(about, value)| pad(&about.show(value), column_width(about), Align::Right))
            .collect()
    }

    /// What `--help-stats` prints.
    fn help(width: usize) -> String {
        let mut table = Table::new(&[
            ("STATISTIC", Align::Left),
            ("COLUMN", Align::Left),
            ("KIND", Align::Left),
            ("MEANING", Align::Left),
        ]);
        for about in Self::ABOUT {
            let kind = match about.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            let row = [about.key, about.column, kind, about.about];
            table.row(row.map(str::to_string).to_vec());
        }
        table.text(width)
    }
}

fn columns<S: Statistics>() -> impl Iterator<Item = &'static Statistic> {
    S::ABOUT.iter().filter(|about| !about.column.is_empty())
}

/// Room for the title and for any duration, and two blanks before it.
fn column_width(about: &Statistic) -> usize {
    2 + about.column.chars().count().max(7)
}

/// Defines a struct of statistics:
///
/// ```
/// report::statistics! {
///     /// What a kettle does.
///     pub struct Kettle {
///         counter heating_ns "heat" "time the heater was on",
///         gauge litres "" "water in it",
///     }
/// }
/// ```
#[macro_export]
macro_rules! statistics {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $($kind:ident $field:ident $column:literal $about:literal),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[derive($crate::stats::Serialize, $crate::stats::Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        pub struct $name {
            $(#[doc = $about] pub $field: Option<u64>,)+
        }

        impl $crate::stats::Statistics for $name {
            const ABOUT: &'static [$crate::stats::Statistic] = &[
                $($crate::stats::Statistic {
                    key: stringify!($field),
                    column: $column,
                    about: $about,
                    kind: $crate::statistics!(@kind $kind),
                },)+
            ];

            fn values(&self) -> Vec<Option<u64>> {
                vec![$(self.$field),+]
            }

            fn since(&self, earlier: &Self) -> Self {
                $name { $($field: $crate::statistics!(@since $kind self earlier $field),)+ }
            }
        }
    };
    (@kind counter) => { $crate::stats::Kind::Counter };
    (@kind gauge) => { $crate::stats::Kind::Gauge };
    (@since counter $self:ident $earlier:ident $field:ident) => {
        $self.$field.map(|now| now.saturating_sub($earlier.$field.unwrap_or(0)))
    };
    (@since gauge $self:ident $earlier:ident $field:ident) => { $self.$field };
}

#[doc(hidden)] // for the macro, whose users need not depend on serde
pub use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests {
    use super::*;

    statistics! {
        /// A sample.
        pub struct Sample {
            counter heating_ns "heat" "time the heater was on",
            counter boils "" "times it boiled",
            gauge litres "litres" "water in it",
        }
    }

    /// The name, the column, the kind and the meaning come from one line.
    #[test]
    fn describes_itself() {
        let help = Sample::help(80);
        assert_eq!(
            help,
            "STATISTIC   COLUMN  KIND     MEANING\n\
             heating_ns  heat    counter  time the heater was on\n\
             boils               counter  times it boiled\n\
             litres      litres  gauge    water in it\n"
        );
        assert_eq!(Sample::line_head(), "     heat   litres");
    }

    /// Counters are subtracted, gauges kept, unknown stays unknown.
    #[test]
    fn differences_over_an_interval() {
        let early = Sample { heating_ns: Some(1_000), boils: None, litres: Some(2) };
        let late = Sample { heating_ns: Some(5_000_000), boils: None, litres: Some(1) };
        let interval = late.since(&early);
        assert_eq!(interval.values(), [Some(4_999_000), None, Some(1)]);
        assert_eq!(interval.line(), "   5.00ms        1");
        assert!(interval.table().text(80).contains("boils            -  times it boiled"));
    }

    /// JSON has every key, and null where nothing is known.
    #[test]
    fn json_keeps_unknown_as_null() {
        let line = crate::json_line(&Sample::default());
        assert_eq!(line, r#"{"heating_ns":null,"boils":null,"litres":null}"#);
        assert_eq!(serde_json::from_str::<Sample>(&line).unwrap(), Sample::default());
    }
}
