// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mistakes on the command line. Those in a value are reported like all other problems (what, why,
//! what next); clap words the rest.

use std::error::Error;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use report::problem::Problem;
use sched::parse::ParseError;

use crate::failure::Failure;

/// Prints what clap has to say (help and version included) and returns the exit code.
pub(crate) fn report(error: &clap::Error) -> ExitCode {
    if let Some(problem) = bad_value(error) {
        return Failure::failed(problem).report();
    }
    // Nothing is left to do if the output is closed.
    _ = error.print();
    ExitCode::from(error.exit_code() as u8)
}

/// A value that one of our own parsers refused.
fn bad_value(error: &clap::Error) -> Option<Problem> {
    if error.kind() != ErrorKind::ValueValidation {
        return None;
    }
    let ParseError { why, next } = error.source()?.downcast_ref::<ParseError>()?;
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let value = context(ContextKind::InvalidValue)?;
    // clap names the argument with its placeholder: `--slice <DURATION>`.
    let argument = context(ContextKind::InvalidArg)?.split(" <").next()?;
    let shown = if value.is_empty() { "\"\"" } else { value };
    let what = if argument.starts_with('-') {
        format!("cannot use {argument} {shown}")
    } else {
        format!("cannot use \"{value}\"")
    };
    Some(Problem::new(what, why, next))
}
