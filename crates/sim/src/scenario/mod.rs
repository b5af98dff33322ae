// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenarios: a workload as a TOML file.
//!
//! ```toml
//! schema = 1
//! name = "web"
//! about = "a server that encrypts what it compresses"
//! machine = "xeon-gold-6130"                # default of --machine
//! duration_ns = 3_000_000_000
//! warmup_ns = 500_000_000
//! judges = ["sizing"]                       # questions that it decides, see crate::compare
//!
//! [code.cipher]                             # kinds of code; "scalar" is always there
//! class = "heavy-512"
//! per_cycle = 1.0                           # heavy instructions per cycle
//! [variant.none.code.cipher]                # the same work without wide instructions
//! class = "scalar"
//! scale = 1.96                              # takes so many times the cycles
//!
//! [[group]]
//! name = "workers"
//! tasks = 32
//! scalar = true                             # known to be scalar unless it proves wide
//! program = [                               # again and again, unless it ends with end = true
//!   { take = "inbox" },                     # waits for a request
//!   { work = "scalar", cycles = { mean = 7_000_000 } },
//!   { wide = "cipher", level = 2, cycles = [30_000, 50_000] },
//!   { syscall_cycles = 20_000 },
//!   { done = true },                        # answers it
//! ]
//!
//! [[source]]
//! name = "clients"
//! to = "workers"
//! clients = 200                             # closed loop; or gap_ns = { mean = 100_000 }, open
//! think_ns = 50_000
//! ```
//!
//! A group with `programs = [[...], [...]]` instead of `program` has one for each of its tasks.
//! With `sensitive_frac = 0.7` and `reference_khz = 2_800_000` that part of its work follows the
//! clock, and the rest takes as long as at that clock ([`crate::program::Memory`]).
//!
//! Other steps: `wide_begin = LEVEL` and `wide_end = true` around several, the latter (and `wide`)
//! with `scalar_for_ns = N` if the program says how long what follows stays scalar; `put = QUEUE`
//! (and `take = QUEUE`), `sleep_ns`, `lock` and `unlock`, `barrier`, `fork = GROUP`, `yield =
//! true`, `repeat = AMOUNT` with `steps = [...]`. An amount is a number, `[least, most]`, or `{
//! mean = N }` (exponential).

mod build;
mod file;
mod fit;
pub mod recorded;

pub use build::Scenario;
pub use file::Question;
pub use fit::Misfit;

use cpumodel::DataError;

/// Name and text of each built-in scenario.
pub const SCENARIO_FILES: [(&str, &str); 15] = [
    ("thesis-nginx", include_str!("../../../../data/scenarios/thesis-nginx.toml")),
    ("thesis-nginx-low", include_str!("../../../../data/scenarios/thesis-nginx-low.toml")),
    ("sfma-nginx", include_str!("../../../../data/scenarios/sfma-nginx.toml")),
    ("systor-nginx", include_str!("../../../../data/scenarios/systor-nginx.toml")),
    ("parsec-x265", include_str!("../../../../data/scenarios/parsec-x265.toml")),
    ("build-x265", include_str!("../../../../data/scenarios/build-x265.toml")),
    ("nginx-x265", include_str!("../../../../data/scenarios/nginx-x265.toml")),
    ("dim-nginx-x265", include_str!("../../../../data/scenarios/dim-nginx-x265.toml")),
    ("dim-x265-swaptions", include_str!("../../../../data/scenarios/dim-x265-swaptions.toml")),
    ("dim-x265-apache", include_str!("../../../../data/scenarios/dim-x265-apache.toml")),
    ("dim-instructions", include_str!("../../../../data/scenarios/dim-instructions.toml")),
    ("three-levels", include_str!("../../../../data/scenarios/three-levels.toml")),
    ("openssl-speed", include_str!("../../../../data/scenarios/openssl-speed.toml")),
    ("fault-migrate", include_str!("../../../../data/scenarios/fault-migrate.toml")),
    ("type-changes", include_str!("../../../../data/scenarios/type-changes.toml")),
];

impl Scenario {
    /// The built-in scenario of that name; `None` if there is none. The error is a broken built-in
    /// file, which a test excludes.
    pub fn built_in(name: &str) -> Option<Result<Scenario, DataError>> {
        let (_, text) = SCENARIO_FILES.iter().find(|(known, _)| *known == name)?;
        Some(Scenario::from_toml(text))
    }

    /// Names of the built-in scenarios that judge this.
    pub fn that_judge(question: Question) -> impl Iterator<Item = &'static str> {
        let judges = move |name: &str| {
            let scenario = Scenario::built_in(name).and_then(Result::ok);
            scenario.is_some_and(|scenario| scenario.judges.contains(&question))
        };
        SCENARIO_FILES.iter().map(|(name, _)| *name).filter(move |name| judges(name))
    }

    /// The scenario that a file's text describes.
    pub fn from_toml(text: &str) -> Result<Scenario, DataError> {
        build::read(text)
    }
}
