// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x fmt`, and the check that it has nothing to do.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::repo;

const CLANG_FORMAT: &str = "clang-format-19";

/// Formats all Rust and C sources in place.
pub(crate) fn main() -> Result<ExitCode> {
    let rust = testbed::run_child(repo::cargo().args(["fmt", "--all"]))?;
    let c = testbed::run_child(clang_format()?.arg("-i"))?;
    Ok(ExitCode::from(u8::from(!(rust.success() && c.success()))))
}

/// The files that are not formatted.
pub(crate) fn misformatted() -> Result<Vec<String>> {
    let mut check = repo::cargo();
    check.args(["fmt", "--all", "--check", "--", "--files-with-diff"]);
    let rust = repo::logged(&mut check, "fmt")?;
    let c = repo::logged(clang_format()?.args(["--dry-run", "--Werror"]), "clang-format")?;
    let mut files = BTreeSet::new();
    if !rust.success {
        files.extend(rust.text.lines().map(relative));
    }
    if !c.success {
        // FILE:LINE:COLUMN: error: ...
        let errors = c.text.lines().filter(|line| line.contains(": error: "));
        files.extend(errors.filter_map(|line| line.split(':').next()).map(relative));
    }
    Ok(files.into_iter().collect())
}

/// clang-format with the C sources that people write.
fn clang_format() -> Result<Command> {
    let listed =
        repo::output("git", &["ls-files", "-co", "--exclude-standard", "*.c", "*.cc", "*.h"])?;
    let mut command = Command::new(CLANG_FORMAT);
    command.arg("--style=file").current_dir(repo::root());
    // A file that was deleted but not yet committed is still listed; those in
    // include folders of the root and of crates are generated.
    let generated =
        |file: &str| file.starts_with("include/") || file.starts_with("crates/silicon/include/");
    let written = |file: &&str| !generated(file) && repo::root().join(file).exists();
    command.args(listed.lines().filter(written));
    Ok(command)
}

fn relative(path: &str) -> String {
    let path = Path::new(path);
    path.strip_prefix(repo::root()).unwrap_or(path).display().to_string()
}
