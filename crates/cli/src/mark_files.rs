// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of marks, as `turbolane scan --marks` writes them and `run` and `record` take them.

use std::fs;
use std::path::PathBuf;

use report::problem::Problem;
use sched::config::Mark;
use sched::marks::parse_list;

use crate::failure::Failure;

/// The marks of all files, in their order.
pub(crate) fn read(files: &[PathBuf]) -> Result<Vec<Mark>, Failure> {
    let mut marks = Vec::new();
    for path in files {
        let cannot = |why: String, next: String| {
            let what = format!("cannot read the marks in {}", path.display());
            Failure::failed(Problem::new(what, why, next))
        };
        let text = fs::read_to_string(path)
            .map_err(|error| cannot(error.to_string(), "check the path".into()))?;
        marks.extend(parse_list(&text).map_err(|error| cannot(error.why, error.next))?);
    }
    Ok(marks)
}
