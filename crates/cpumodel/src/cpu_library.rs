// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPU models of `data/cpus/`, built in.
//!
//! They are text in the binary, read by the same reader as a user's own file, so that a machine
//! without the source tree knows them too. A test reads each.

use crate::{CpuModel, DataError};

/// Id and text of each built-in file, the papers' machines first.
pub const CPU_FILES: [(&str, &str); 8] = [
    ("xeon-gold-6130", include_str!("../data/cpus/xeon-gold-6130.toml")),
    ("core-i9-7940x", include_str!("../data/cpus/core-i9-7940x.toml")),
    ("xeon-silver-4116", include_str!("../data/cpus/xeon-silver-4116.toml")),
    ("xeon-w-2104", include_str!("../data/cpus/xeon-w-2104.toml")),
    ("xeon-gold-6140", include_str!("../data/cpus/xeon-gold-6140.toml")),
    ("xeon-gold-6154", include_str!("../data/cpus/xeon-gold-6154.toml")),
    ("xeon-platinum-8360y", include_str!("../data/cpus/xeon-platinum-8360y.toml")),
    ("xeon-6980p", include_str!("../data/cpus/xeon-6980p.toml")),
];

/// Those of `data/cpus/contributed/`: read out or probed by whoever has one. No constant is chosen
/// by them, and they judge none.
pub const CONTRIBUTED_CPUS: [(&str, &str); 9] = [
    ("core-i5-1035g4", include_str!("../data/cpus/contributed/core-i5-1035g4.toml")),
    ("core-i9-11900k", include_str!("../data/cpus/contributed/core-i9-11900k.toml")),
    ("granite-rapids-64c", include_str!("../data/cpus/contributed/granite-rapids-64c.toml")),
    ("xeon-6962p", include_str!("../data/cpus/contributed/xeon-6962p.toml")),
    ("xeon-silver-4210", include_str!("../data/cpus/contributed/xeon-silver-4210.toml")),
    ("xeon-platinum-8260l", include_str!("../data/cpus/contributed/xeon-platinum-8260l.toml")),
    ("xeon-platinum-8460h", include_str!("../data/cpus/contributed/xeon-platinum-8460h.toml")),
    (
        "xeon-platinum-8568yplus",
        include_str!("../data/cpus/contributed/xeon-platinum-8568yplus.toml"),
    ),
    (
        "xeon-platinum-8592plus",
        include_str!("../data/cpus/contributed/xeon-platinum-8592plus.toml"),
    ),
];

/// Id and text of every file that is built in, contributed ones last.
pub fn built_in_cpus() -> impl Iterator<Item = (&'static str, &'static str)> {
    CPU_FILES.into_iter().chain(CONTRIBUTED_CPUS)
}

/// Those that no constant of the policy may be chosen on: a third, which judges such choices
/// (`sim::best`).
pub const HELD_OUT_CPUS: [&str; 3] = ["xeon-platinum-8360y", "xeon-silver-4116", "xeon-gold-6154"];

impl CpuModel {
    /// The built-in model of that id; `None` if there is none. The error is a broken built-in
    /// file, which a test excludes.
    pub fn built_in(id: &str) -> Option<Result<CpuModel, DataError>> {
        let (_, text) = built_in_cpus().find(|(known, _)| *known == id)?;
        Some(CpuModel::from_toml(text))
    }

    /// The built-in model of the CPU that calls itself so, as by CPUID; `None` if there is none
    /// that says what its levels cost: decisions about this machine are not made by assumed
    /// clocks.
    pub fn of_brand(brand: &str) -> Option<CpuModel> {
        let plain = brand.replace("(R)", "").replace("(TM)", "").replace(" CPU", "");
        let models = built_in_cpus().filter_map(|(_, text)| CpuModel::from_toml(text).ok());
        let names = |name: &str| {
            let rest = plain.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        models.into_iter().find(|model| names(&model.name) && model.knows_what_levels_cost())
    }
}
