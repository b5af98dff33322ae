// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--format`: tables for other programs than a terminal.

use clap::ValueEnum;

/// A format of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// Comma-separated values, not rounded, with units in the names of the columns
    Csv,
    /// Tables of Markdown, rounded
    Markdown,
}
