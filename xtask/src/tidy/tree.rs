// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files that the rules look at.

use std::path::Path;

use anyhow::Result;

use crate::repo;

/// A text file of the tree.
pub(crate) struct File {
    /// Relative to the root, with slashes.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// All text files that git tracks or would track.
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

impl Tree {
    pub(crate) fn load() -> Result<Self> {
        let listed = repo::output("git", &["ls-files", "-co", "--exclude-standard"])?;
        let files = listed.lines().filter_map(|path| {
            // Deleted but not yet committed, or not text: nothing to check.
            let text = std::fs::read_to_string(repo::root().join(path)).ok()?;
            Some(File { path: path.to_owned(), text })
        });
        Ok(Self { files: files.collect() })
    }

    /// Files below a folder.
    pub(crate) fn below(&self, folder: &str) -> impl Iterator<Item = &File> {
        self.files.iter().filter(move |file| Path::new(&file.path).starts_with(folder))
    }

    /// A tree for a test.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| File { path: path.into(), text: text.into() };
        Self { files: files.iter().map(file).collect() }
    }
}

impl File {
    /// The extension, or "" if there is none.
    pub(crate) fn extension(&self) -> &str {
        Path::new(&self.path).extension().and_then(|ext| ext.to_str()).unwrap_or("")
    }

    /// Whether a program wrote the file, as a recording or as a generated
    /// page: the rules are for what people write.
    pub(crate) fn is_recorded(&self) -> bool {
        let folders = ["fixtures", "snapshots", "machines", "man"];
        let parts: Vec<&str> = self.path.split('/').collect();
        let (name, above) = parts.split_last().expect("split gives at least one part");
        *name == "Cargo.lock"
            || name.ends_with(".trycmd")
            || above.iter().any(|part| folders.contains(part))
    }

    /// Lines with their numbers, from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// A complaint about a line of this file.
    pub(crate) fn at(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }
}
