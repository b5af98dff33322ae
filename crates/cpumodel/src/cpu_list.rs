// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's CPU list format, as in `/sys/devices/system/cpu/online`, `taskset -c` and the kernel's
//! command line.
//!
//! ```text
//! list  := item { "," item }          an empty list is the empty set
//! item  := CPU | CPU "-" CPU [ step ]
//! step  := "/" N                      every Nth CPU of the range
//!        | ":" N                      the same, as taskset writes it
//!        | ":" USED "/" GROUP         the first USED of every GROUP, as the kernel writes it
//! ```
//!
//! Printing merges neighbours into ranges and never prints a step, so that two equal sets print
//! equal text.

use std::fmt;
use std::str::FromStr;

use crate::{CpuSet, MAX_CPUS};

/// Why a text is no CPU list; each names the part that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    /// Two commas in a row, or one at the start or end.
    #[error("an item of the CPU list \"{list}\" is empty")]
    EmptyItem {
        /// The whole list.
        list: String,
    },
    /// Something that is not a decimal number is where a CPU is expected.
    #[error("\"{part}\" in \"{item}\" is not a CPU number")]
    NotANumber {
        /// The wrong text.
        part: String,
        /// The item of the list that holds it.
        item: String,
    },
    /// A CPU that no set can hold.
    #[error("CPU {part} in \"{item}\" is too large: the last CPU is {}", MAX_CPUS - 1)]
    TooLarge {
        /// The number, as written.
        part: String,
        /// The item of the list that holds it.
        item: String,
    },
    /// A range that runs downwards.
    #[error("the range \"{item}\" runs backwards")]
    Backwards {
        /// The range.
        item: String,
    },
    /// A step that is zero, larger than its group, or not attached to a range.
    #[error("the step of \"{item}\" makes no sense: write FIRST-LAST/STEP with STEP >= 1")]
    BadStep {
        /// The item of the list that holds it.
        item: String,
    },
}

impl FromStr for CpuSet {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let list = text.trim();
        let mut set = CpuSet::new();
        if list.is_empty() {
            return Ok(set);
        }
        for item in list.split(',').map(str::trim) {
            if item.is_empty() {
                return Err(CpuListError::EmptyItem { list: list.into() });
            }
            insert_item(&mut set, item)?;
        }
        Ok(set)
    }
}

/// Adds what one item between two commas names.
fn insert_item(set: &mut CpuSet, item: &str) -> Result<(), CpuListError> {
    let (range, step) = match item.find(['/', ':']) {
        Some(at) => (&item[..at], Some(&item[at..])),
        None => (item, None),
    };
    let Some((first, last)) = range.split_once('-') else {
        if step.is_some() {
            return Err(CpuListError::BadStep { item: item.into() });
        }
        set.insert(cpu_number(range, item)?);
        return Ok(());
    };
    let (first, last) = (cpu_number(first, item)?, cpu_number(last, item)?);
    if last < first {
        return Err(CpuListError::Backwards { item: item.into() });
    }
    let (used, group) = step.map_or(Ok((1, 1)), |step| parse_step(step, item))?;
    set.extend((first..=last).filter(|cpu| (cpu - first) % group < used));
    Ok(())
}

/// (used, group) of a step with its leading sign: the first `used` CPUs of every `group`.
fn parse_step(step: &str, item: &str) -> Result<(usize, usize), CpuListError> {
    let bad = || CpuListError::BadStep { item: item.into() };
    let number = |text: &str| text.parse::<usize>().map_err(|_| bad());
    let (used, group) = match (step.strip_prefix('/'), step.strip_prefix(':')) {
        (Some(group), _) => (1, number(group)?),
        (_, Some(rest)) => match rest.split_once('/') {
            Some((used, group)) => (number(used)?, number(group)?),
            None => (1, number(rest)?),
        },
        _ => return Err(bad()),
    };
    if used == 0 || group == 0 || used > group {
        return Err(bad());
    }
    Ok((used, group))
}

fn cpu_number(part: &str, item: &str) -> Result<usize, CpuListError> {
    let part = part.trim();
    if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CpuListError::NotANumber { part: part.into(), item: item.into() });
    }
    match part.parse::<usize>() {
        Ok(cpu) if cpu < MAX_CPUS => Ok(cpu),
        _ => Err(CpuListError::TooLarge { part: part.into(), item: item.into() }),
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items: Vec<String> = self
            .ranges()
            .iter()
            .map(
                |&(first, last)| {
                    if first == last { first.to_string() } else { format!("{first}-{last}") }
                },
            )
            .collect();
        f.pad(&items.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn members(list: &str) -> Vec<usize> {
        list.parse::<CpuSet>().unwrap().iter().collect()
    }

    fn refusal(list: &str) -> String {
        list.parse::<CpuSet>().unwrap_err().to_string()
    }

    /// Every form of the grammar means what the head of this file says.
    #[test]
    fn reads_every_form() {
        assert_eq!(members(""), []);
        assert_eq!(members("\n"), []);
        assert_eq!(members("7\n"), [7]);
        assert_eq!(members("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(members(" 0 - 1 , 4 "), [0, 1, 4]);
        assert_eq!(members("10-11/2"), [10]);
        assert_eq!(members("0-7/3"), [0, 3, 6]);
        assert_eq!(members("0-7:3"), [0, 3, 6]);
        assert_eq!(members("0-9:2/4"), [0, 1, 4, 5, 8, 9]);
        assert_eq!(members("3,1,2,2-3"), [1, 2, 3]);
        assert_eq!(members("1023"), [1023]);
    }

    /// Printing merges neighbours, whatever the order they were given in.
    #[test]
    fn prints_merged_ranges() {
        for (given, printed) in
            [("3,1,2", "1-3"), ("0,2,4", "0,2,4"), ("63,64,65", "63-65"), ("", ""), ("5-5", "5")]
        {
            assert_eq!(given.parse::<CpuSet>().unwrap().to_string(), printed);
        }
    }

    /// A refusal names the part that is wrong.
    #[test]
    fn refusals_name_the_bad_part() {
        assert_eq!(refusal("0,,2"), "an item of the CPU list \"0,,2\" is empty");
        assert_eq!(refusal("0,2-x"), "\"x\" in \"2-x\" is not a CPU number");
        assert_eq!(refusal("-1"), "\"\" in \"-1\" is not a CPU number");
        assert_eq!(refusal("+1"), "\"+1\" in \"+1\" is not a CPU number");
        assert_eq!(refusal("0-1024"), "CPU 1024 in \"0-1024\" is too large: the last CPU is 1023");
        assert!(refusal("99999999999999999999").contains("too large"));
        assert_eq!(refusal("1,5-3"), "the range \"5-3\" runs backwards");
        for step in ["0-3/0", "0-3:2/1", "4/2", "0-3/", "0-3:1/2/3", "0-3/x"] {
            assert!(refusal(step).starts_with(&format!("the step of \"{step}\"")), "{step}");
        }
    }

    proptest! {
        /// What is printed reads back as the same set.
        #[test]
        fn round_trip(cpus in proptest::collection::btree_set(0..MAX_CPUS, 0..200)) {
            let set: CpuSet = cpus.into_iter().collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
        }

        /// No text makes the parser panic, and what it takes prints as a text it takes too.
        #[test]
        fn any_text_is_safe(text in "[0-9,:/ x-]{0,30}") {
            if let Ok(set) = text.parse::<CpuSet>() {
                prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
            }
        }
    }
}
