// SPDX-License-Identifier: MIT OR Apache-2.0
//! How large the libraries are that are carried along by programs of any kind.
//!
//! The hint is a few stores and a socket. What makes such a library large is what it does not need:
//! one path that panics brings in the standard library's panic machinery (formatting, backtraces,
//! the reader of debug information), some 300 KB. So a size far below that is also a check that no
//! such path is left.

use anyhow::{Context, Result, ensure};

use crate::repo;

/// Package, library, and the most bytes that `size` may count as text: code, constants and unwind
/// tables.
const LIMITS: [(&str, &str, u64); 3] = [
    ("turbolane-hint", "libturbolane_hint.so", 60_000),
    ("marks", "libturbolane_marks.so", 60_000),
    ("openssl-hints", "libturbolane_openssl.so", 60_000),
];

/// Builds the libraries as they are shipped. A line for each, and whether all are small enough.
pub(crate) fn check() -> Result<(bool, String)> {
    let mut build = repo::cargo();
    build.args(["build", "--release", "--lib"]);
    build.args(LIMITS.iter().flat_map(|(package, _, _)| ["-p", package]));
    let done = repo::logged(&mut build, "size")?;
    ensure!(done.success, "the release build failed:\n{}", done.text);
    let mut lines = Vec::new();
    let mut fits = true;
    for (_, library, limit) in LIMITS {
        let text_bytes = measure(library)?;
        fits &= text_bytes <= limit;
        lines.push(format!("{library} {text_bytes} of {limit} bytes of text"));
    }
    Ok((fits, lines.join(", ")))
}

fn measure(library: &str) -> Result<u64> {
    let file = repo::target().join("release").join(library);
    let printed = repo::output("size", &[&file.display().to_string()])?;
    text_bytes(&printed).with_context(|| format!("size printed something else: {printed}"))
}

/// The first number of the second line:
/// ```text
///    text    data     bss     dec     hex filename
///   10240     640       8   10888    2a88 libturbolane_hint.so
/// ```
fn text_bytes(printed: &str) -> Option<u64> {
    printed.lines().nth(1)?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_column_is_read() {
        let printed = "   text\t   data\t    bss\t    dec\t    hex\tfilename\n  10240\t    640\t      8\t  10888\t   2a88\tx.so\n";
        assert_eq!(text_bytes(printed), Some(10240));
        assert_eq!(text_bytes("size: x.so: no such file\n"), None);
    }
}
