// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of a stripped file's functions, from the debug file that is installed for it.
//!
//! Looked for as debuggers do: below `/usr/lib/debug/.build-id` by build id, and by the name that
//! the file gives, next to it, in `.debug` next to it, and below `/usr/lib/debug` in the same
//! folder. The scanner checks that it is the same build's. Source: GDB manual, "Debugging
//! Information in Separate Files".
//!
//! Limits: nothing is downloaded, unless the user asks for it ([`super::debuginfod`]). Symbols that
//! `dwz` moved elsewhere do not exist: it moves only what is no symbol.

use std::fs::{self, File as Opened};
use std::path::{Path, PathBuf};

use report::scan::File;
use scan::{DebugLink, Limits, Options, ScanError, debug_link, scan_file_with_debug};

use super::debuginfod::Debuginfod;
use super::mapping::map;

const FOLDER: &str = "/usr/lib/debug";

/// Scans a file, with the names of its debug file where one is installed.
pub(crate) fn scan_file(path: &Path, bytes: &[u8], options: &Options) -> Result<File, ScanError> {
    scan_with(path, bytes, options, None)
}

/// The same; servers are asked for a debug file that is not installed.
pub(super) fn scan_with(
    path: &Path,
    bytes: &[u8],
    options: &Options,
    servers: Option<&Debuginfod>,
) -> Result<File, ScanError> {
    let name = path.display().to_string();
    let found = debug_link(bytes).and_then(|link| {
        let installed = open(path, &link, Path::new(FOLDER));
        installed.or_else(|| Opened::open(servers?.find(link.build_id.as_deref()?)?).ok())
    });
    match found.and_then(|file| map(&file).ok()) {
        Some(debug) => scan_file_with_debug(&name, bytes, &debug, options, &Limits::default()),
        None => scan::scan_file(&name, bytes, options),
    }
}

/// The first of the files that exist.
fn open(path: &Path, link: &DebugLink, folder: &Path) -> Option<Opened> {
    let own = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    candidates(&own, link, folder)
        .iter()
        .filter(|candidate| **candidate != own && candidate.is_file())
        .find_map(|candidate| Opened::open(candidate).ok())
}

/// Where the debug file of a file may be, by an absolute path of the file.
fn candidates(own: &Path, link: &DebugLink, folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Some((first, rest)) = link.build_id.as_deref().and_then(|id| id.split_at_checked(2)) {
        found.push(folder.join(".build-id").join(first).join(format!("{rest}.debug")));
    }
    if let (Some(name), Some(beside)) = (&link.name, own.parent()) {
        found.push(beside.join(name));
        found.push(beside.join(".debug").join(name));
        found.push(folder.join(beside.strip_prefix("/").unwrap_or(beside)).join(name));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places, in the order of debuggers; a short build id and no name give none.
    #[test]
    fn places_are_those_of_debuggers() {
        let link = |id: &str, name: &str| DebugLink {
            build_id: Some(id.into()).filter(|id: &String| !id.is_empty()),
            name: Some(name.into()).filter(|name: &String| !name.is_empty()),
        };
        let places = |link: DebugLink| -> Vec<String> {
            let all = candidates(Path::new("/usr/lib/liba.so"), &link, Path::new(FOLDER));
            all.iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(
            places(link("12ab34", "liba.debug")),
            [
                "/usr/lib/debug/.build-id/12/ab34.debug",
                "/usr/lib/liba.debug",
                "/usr/lib/.debug/liba.debug",
                "/usr/lib/debug/usr/lib/liba.debug",
            ]
        );
        assert_eq!(places(link("1", "")), Vec::<String>::new());
        assert_eq!(places(link("", "")), Vec::<String>::new());
    }
}
