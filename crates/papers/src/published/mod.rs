// SPDX-License-Identifier: MIT OR Apache-2.0
//! The published figures: `data/papers/*.toml`, built in.
//!
//! Problem: "reproduces the paper" means little while it is open which numbers, under which
//! conditions, and which of them the model was tuned on.
//!
//! Idea: every figure of the papers' evaluations is a row of data with the place where it is
//! printed, the conditions under which it was measured, and its **use**:
//!
//! - *calibrates*: a number of the model was set by it, and the row names the number. Only what was
//!   measured without mitigation may be used so; the reader refuses anything else;
//! - *predicts*: a simulation that saw only calibrating rows must come out here;
//! - *follows*: the figure comes out of what was put in, whatever is simulated, or it is another
//!   row's figure in other units. The row says from what. A hit is not counted; a miss is;
//! - *repeats*: the same figure as another row's, which is compared with something else of ours (a
//!   recording in the place of a model) and counts once;
//! - *context*: the model has no such quantity (instructions, cache misses), or the figure is
//!   another paper's. The row says why.
//!
//! What is compared is a **configuration**: machine, workload, variant (which instructions the
//! offender uses) and policy (who schedules, and how). A ranking in a paper is an [`Order`] of
//! configurations.
//!
//! Limits: the papers were read as text. A value that only a plot shows is not here, but the
//! order that the text reads out of the plot is.

mod file;
mod row;

pub use row::{Config, Order, Paper, Place, Quantity, Row, Series, Silicon, Tolerance, Use};

use cpumodel::DataError;

/// Short name and text of each built-in file.
pub const PAPER_FILES: [(&str, &str); 5] = [
    ("SFMA", include_str!("../../../../data/papers/sfma.toml")),
    ("SYSTOR", include_str!("../../../../data/papers/systor.toml")),
    ("THESIS", include_str!("../../../../data/papers/thesis.toml")),
    ("DIM", include_str!("../../../../data/papers/dim.toml")),
    ("TURBO", include_str!("../../../../data/papers/turbo.toml")),
];

impl Paper {
    /// The paper that a file's text describes.
    pub fn from_toml(text: &str) -> Result<Paper, DataError> {
        file::read(text)
    }

    /// The built-in paper of that short name, in any case; `None` if there is none. The error is
    /// a broken built-in file, which a test excludes.
    pub fn built_in(document: &str) -> Option<Result<Paper, DataError>> {
        let mut files = PAPER_FILES.iter();
        let (_, text) = files.find(|(name, _)| name.eq_ignore_ascii_case(document))?;
        Some(Paper::from_toml(text))
    }
}
