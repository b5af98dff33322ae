// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text of a `data/papers/*.toml` file, read into a [`Paper`].
//!
//! A file begins with the document, then names its workloads and policies in a sentence each, and
//! then holds `[[row]]`, `[[series]]` and `[[order]]`. Whatever a row names must be there; a row
//! that compares must say with what; a mitigated row may not calibrate.
//!
//! ```text
//!   [[row]]
//!   id = "sfma-nginx-avx512-loss"
//!   section = "4.1"
//!   part = "text; Figure 2a"
//!   quantity = "throughput-loss"
//!   title = "..."
//!   value = 11.2
//!   unit = "%"
//!   config = { machine = "...", workload = "...", variant = "avx512", policy = "unmodified" }
//!   against = { variant = "none" }         what differs from config
//!   mitigated = false
//!   use = "calibrates"
//!   sets = "..."                           the number of the model, of a row that calibrates
//!   follows = "..."                        from what, of a row or ranking that follows
//! ```

use std::collections::{BTreeMap, BTreeSet};

use cpumodel::{CPU_FILES, DataError, PSTATE_FILES};
use serde::Deserialize;
use toml::Spanned;

use super::row::{Config, Order, Paper, Place, Quantity, Row, Series, Silicon, Use};

/// Version of the files' format; grows when a key changes its meaning.
const SCHEMA: u32 = 1;

/// Where a reader of an error finds how it is done right.
const EXAMPLE: &str = "compare with data/papers/sfma.toml";

/// Widest instructions an offender can use.
const VARIANTS: [&str; 3] = ["none", "avx2", "avx512"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PaperFile {
    schema: Spanned<u32>,
    document: String,
    title: String,
    authors: String,
    workload: BTreeMap<String, String>,
    policy: BTreeMap<String, String>,
    #[serde(default)]
    row: Vec<Spanned<RowTable>>,
    #[serde(default)]
    series: Vec<Spanned<SeriesTable>>,
    #[serde(default)]
    order: Vec<Spanned<OrderTable>>,
}

/// One of the three kinds of entries: what all of them have, and what it has of its own. (With a
/// type for what they share, and serde's `flatten`, neither an error's line nor an unknown key
/// would be found.)
macro_rules! entry {
    (struct $name:ident { $($own:tt)* }) => {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            id: Spanned<String>,
            section: String,
            part: String,
            section_page: Option<u32>,
            quantity: Quantity,
            title: String,
            #[serde(default)]
            note: String,
            $($own)*
        }
    };
}

entry! {
    struct RowTable {
        value: Spanned<f64>,
        value_to: Option<Spanned<f64>>,
        unit: Spanned<String>,
        stddev: Option<Spanned<f64>>,
        #[serde(default)]
        approximate: bool,
        config: Spanned<Config>,
        against: Option<Spanned<Other>>,
        mitigated: Spanned<bool>,
        #[serde(rename = "use")]
        purpose: Spanned<Use>,
        #[serde(default)]
        sets: String,
        #[serde(default)]
        follows: String,
        silicon: Option<Silicon>,
    }
}

/// A configuration as its difference from another one.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Other {
    machine: Option<String>,
    workload: Option<String>,
    variant: Option<String>,
    policy: Option<String>,
}

impl Other {
    fn applied_to(self, config: &Config) -> Config {
        Config {
            machine: self.machine.unwrap_or_else(|| config.machine.clone()),
            workload: self.workload.unwrap_or_else(|| config.workload.clone()),
            variant: self.variant.unwrap_or_else(|| config.variant.clone()),
            policy: self.policy.unwrap_or_else(|| config.policy.clone()),
        }
    }
}

entry! {
    struct SeriesTable {
        labels: Spanned<Vec<String>>,
        values: Spanned<Vec<f64>>,
        unit: Spanned<String>,
        config: Spanned<Config>,
        mitigated: bool,
    }
}

entry! {
    struct OrderTable {
        config: Spanned<Config>,
        best_first: Spanned<Vec<Spanned<Other>>>,
        #[serde(default)]
        or_equal: bool,
        #[serde(rename = "use")]
        purpose: Spanned<Use>,
        #[serde(default)]
        follows: String,
    }
}

/// Reads a file's text.
pub(super) fn read(text: &str) -> Result<Paper, DataError> {
    let file: PaperFile =
        toml::from_str(text).map_err(|error| DataError::from_toml(text, &error, EXAMPLE))?;
    let reader = Reader { text, workloads: &file.workload, policies: &file.policy };
    if *file.schema.get_ref() != SCHEMA {
        let what = format!("schema {} is not known", file.schema.get_ref());
        return Err(reader.refuse(&file.schema, what, format!("this version reads {SCHEMA}")));
    }
    let mut ids = BTreeSet::new();
    let rows = file.row.into_iter().map(|row| reader.row(row.into_inner(), &mut ids));
    let rows = rows.collect::<Result<_, _>>()?;
    let series = file.series.into_iter().map(|one| reader.series(one.into_inner(), &mut ids));
    let series = series.collect::<Result<_, _>>()?;
    let orders = file.order.into_iter().map(|order| reader.order(order.into_inner(), &mut ids));
    let orders = orders.collect::<Result<_, _>>()?;
    Ok(Paper {
        document: file.document,
        title: file.title,
        authors: file.authors,
        rows,
        series,
        orders,
        workloads: file.workload,
        policies: file.policy,
    })
}

/// Turns the tables into rows; knows the text, for the lines of its errors.
struct Reader<'a> {
    text: &'a str,
    workloads: &'a BTreeMap<String, String>,
    policies: &'a BTreeMap<String, String>,
}

impl Reader<'_> {
    fn refuse<T>(
        &self,
        at: &Spanned<T>,
        what: impl Into<String>,
        next: impl Into<String>,
    ) -> DataError {
        DataError::new(self.text, at.span(), what, next)
    }

    fn id(&self, id: &Spanned<String>, ids: &mut BTreeSet<String>) -> Result<String, DataError> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if id.get_ref().is_empty() || !id.get_ref().chars().all(fits) {
            let what = format!("\"{}\" is not a valid id", id.get_ref());
            return Err(self.refuse(id, what, "use lower-case letters, digits and hyphens"));
        }
        if !ids.insert(id.get_ref().clone()) {
            let what = format!("the id {} appears twice", id.get_ref());
            return Err(self.refuse(id, what, "each row has its own"));
        }
        Ok(id.get_ref().clone())
    }

    /// The configuration, if all that it names is there.
    fn config<T>(&self, at: &Spanned<T>, config: Config) -> Result<Config, DataError> {
        let unknown = |kind: &str, name: &str| {
            let next = format!("describe it in [{kind}], or correct the name");
            self.refuse(at, format!("{kind} \"{name}\" is not known"), next)
        };
        if !CPU_FILES.iter().chain(&PSTATE_FILES).any(|(id, _)| *id == config.machine) {
            let what = format!("machine \"{}\" is not known", config.machine);
            return Err(self.refuse(
                at,
                what,
                "add it to crates/cpumodel/data, or correct the name",
            ));
        }
        if !self.workloads.contains_key(&config.workload) {
            return Err(unknown("workload", &config.workload));
        }
        if !self.policies.contains_key(&config.policy) {
            return Err(unknown("policy", &config.policy));
        }
        if !VARIANTS.contains(&config.variant.as_str()) {
            let what = format!("variant \"{}\" is not known", config.variant);
            return Err(self.refuse(at, what, format!("known: {}", VARIANTS.join(", "))));
        }
        Ok(config)
    }

    fn number(&self, at: &Spanned<f64>) -> Result<f64, DataError> {
        if at.get_ref().is_finite() {
            return Ok(*at.get_ref());
        }
        Err(self.refuse(at, "the value is not finite", EXAMPLE))
    }

    /// The unit, if the quantity is measured in it.
    fn unit(&self, unit: &Spanned<String>, quantity: Quantity) -> Result<String, DataError> {
        let known = units(quantity);
        if known.contains(&unit.get_ref().as_str()) {
            return Ok(unit.get_ref().clone());
        }
        let what = format!("the unit is \"{}\"", unit.get_ref());
        Err(self.refuse(unit, what, format!("use one of: {}", known.join(", "))))
    }

    /// Each use has its reason, and no other's.
    fn reasons(
        &self,
        purpose: &Spanned<Use>,
        sets: &str,
        follows: &str,
        note: &str,
    ) -> Result<(), DataError> {
        let refuse = |what: &str, next: &str| Err(self.refuse(purpose, what, next));
        match (purpose.get_ref(), sets.is_empty(), note.is_empty()) {
            (Use::Calibrates, true, _) => {
                refuse("a row calibrates nothing", "name the number in sets, or let it predict")
            }
            (use_, false, _) if *use_ != Use::Calibrates => {
                refuse("a number is set by a row that does not calibrate", "remove sets")
            }
            (Use::Context, _, true) => refuse("no reason", "say in note why it is context"),
            (Use::Repeats, _, true) => refuse("no means", "say in note by what it is repeated"),
            _ => self.follows(purpose, follows),
        }
    }

    fn follows(&self, purpose: &Spanned<Use>, from: &str) -> Result<(), DataError> {
        match (*purpose.get_ref() == Use::Follows, from.is_empty()) {
            (true, true) => {
                Err(self.refuse(purpose, "it follows from nothing", "say in follows from what"))
            }
            (false, false) => {
                Err(self.refuse(purpose, "it does not follow", "remove follows, or use it so"))
            }
            _ => Ok(()),
        }
    }

    fn row(&self, row: RowTable, ids: &mut BTreeSet<String>) -> Result<Row, DataError> {
        let config = self.config(&row.config, row.config.get_ref().clone())?;
        let against = match row.against {
            None => None,
            Some(other) => {
                let (at, other) = (Spanned::new(other.span(), ()), other.into_inner());
                Some(self.config(&at, other.applied_to(&config))?)
            }
        };
        let relative = row.quantity.is_relative();
        if relative != against.is_some() {
            let what = if relative { "nothing to compare with" } else { "a comparison" };
            let next = "a loss, gain or increase has against = { .. }, nothing else has";
            return Err(self.refuse(&row.config, what, next));
        }
        if *row.mitigated.get_ref() && *row.purpose.get_ref() == Use::Calibrates {
            let next = "only unmitigated rows calibrate; a mitigated one predicts or is context";
            return Err(self.refuse(&row.purpose, "a mitigated row calibrates", next));
        }
        self.reasons(&row.purpose, &row.sets, &row.follows, &row.note)?;
        if row.stddev.as_ref().is_some_and(|stddev| *stddev.get_ref() < 0.0) {
            return Err(self.refuse(&row.value, "a negative spread", EXAMPLE));
        }
        Ok(Row {
            id: self.id(&row.id, ids)?,
            place: place(row.section, row.part, row.section_page),
            quantity: row.quantity,
            title: row.title,
            value: self.number(&row.value)?,
            unit: self.unit(&row.unit, row.quantity)?,
            value_to: row.value_to.map(|value| self.number(&value)).transpose()?,
            stddev: row.stddev.map(|value| self.number(&value)).transpose()?,
            approximate: row.approximate,
            config,
            against,
            mitigated: row.mitigated.into_inner(),
            purpose: row.purpose.into_inner(),
            sets: row.sets,
            follows: row.follows,
            silicon: row.silicon,
            note: row.note,
        })
    }

    fn series(&self, one: SeriesTable, ids: &mut BTreeSet<String>) -> Result<Series, DataError> {
        let (labels, values) = (one.labels.get_ref(), one.values.get_ref());
        if labels.is_empty() || labels.len() != values.len() {
            let what = format!("{} labels and {} values", labels.len(), values.len());
            return Err(self.refuse(&one.values, what, "give one label for each value"));
        }
        if !values.iter().all(|value| value.is_finite()) {
            return Err(self.refuse(&one.values, "a value is not finite", EXAMPLE));
        }
        Ok(Series {
            id: self.id(&one.id, ids)?,
            place: place(one.section, one.part, one.section_page),
            quantity: one.quantity,
            title: one.title,
            config: self.config(&one.config, one.config.get_ref().clone())?,
            unit: self.unit(&one.unit, one.quantity)?,
            labels: one.labels.into_inner(),
            values: one.values.into_inner(),
            mitigated: one.mitigated,
            note: one.note,
        })
    }

    fn order(&self, order: OrderTable, ids: &mut BTreeSet<String>) -> Result<Order, DataError> {
        let config = self.config(&order.config, order.config.get_ref().clone())?;
        let at = Spanned::new(order.best_first.span(), ());
        let mut best_first = Vec::new();
        for other in order.best_first.into_inner() {
            let (here, other) = (Spanned::new(other.span(), ()), other.into_inner());
            best_first.push(self.config(&here, other.applied_to(&config))?);
        }
        let different: BTreeSet<_> = best_first.iter().collect();
        if best_first.len() < 2 || different.len() != best_first.len() {
            let next = "an order ranks at least two different configurations";
            return Err(self.refuse(&at, "nothing is ranked", next));
        }
        if matches!(order.purpose.get_ref(), Use::Calibrates | Use::Repeats) {
            let next = "a ranking predicts or is context";
            return Err(self.refuse(
                &order.purpose,
                "a ranking calibrates and repeats nothing",
                next,
            ));
        }
        self.follows(&order.purpose, &order.follows)?;
        Ok(Order {
            id: self.id(&order.id, ids)?,
            place: place(order.section, order.part, order.section_page),
            quantity: order.quantity,
            title: order.title,
            best_first,
            or_equal: order.or_equal,
            purpose: order.purpose.into_inner(),
            follows: order.follows,
            note: order.note,
        })
    }
}

fn place(section: String, part: String, section_page: Option<u32>) -> Place {
    Place { section, part, section_page }
}

/// Units in which a quantity may be given.
fn units(quantity: Quantity) -> &'static [&'static str] {
    match quantity {
        Quantity::Throughput => &["MB/s", "GiB/s", "GB/s", "1/s"],
        quantity if quantity.is_relative() => &["%"],
        Quantity::Clock => &["GHz"],
        Quantity::Cost => &["ns", "us", "ms", "instructions"],
        Quantity::Latency | Quantity::LatencyMean => &["ms", "s"],
        Quantity::Count => &["1", "1/s", "1/request", "cycles"],
        Quantity::Ratio => &["1"],
        // All that is left is a percentage.
        _ => &["%"],
    }
}
