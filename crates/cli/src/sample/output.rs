// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that a sampling is written to, besides what is printed.
//!
//! They are tried before sampling begins: a minute of samples is not lost to a typing error.

use std::path::PathBuf;

use clap::Args;
use report::sample::{CallChains, SampleReport};

use crate::failure::Failure;
use crate::output_file::{check_before, write};

/// Options for files.
#[derive(Args)]
pub(super) struct Files {
    /// Also write a page with a flame graph by licence level, and the tables
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write the call chains in the format of pprof, compressed
    #[arg(long, value_name = "FILE")]
    pprof: Option<PathBuf>,
}

impl Files {
    /// Fails if a file could not be written. Changes none.
    pub(super) fn check(&self) -> Result<(), Failure> {
        [&self.html, &self.pprof].into_iter().flatten().try_for_each(|path| check_before(path))
    }

    pub(super) fn write(&self, report: &SampleReport, chains: &CallChains) -> Result<(), Failure> {
        if let Some(path) = &self.html {
            write(path, report.html(chains))?;
        }
        match &self.pprof {
            Some(path) => write(path, report.pprof(chains)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Trying a file neither leaves a new one nor changes an old one.
    #[test]
    fn a_check_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::write(&old, "kept").unwrap();
        let files = Files { html: Some(old.clone()), pprof: Some(new.clone()) };
        files.check().unwrap();
        assert_eq!((fs::read_to_string(&old).unwrap().as_str(), new.exists()), ("kept", false));
    }

    /// What cannot be written is an error with its path.
    #[test]
    fn unwritable_files_fail() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("none").join("a.pb.gz");
        for files in [
            Files { html: Some(file.clone()), pprof: None },
            Files { html: None, pprof: Some(file) },
            Files { html: Some(folder.path().into()), pprof: None },
        ] {
            assert!(files.check().is_err());
            let written = files.write(&SampleReport::default(), &CallChains::default());
            assert!(!written.unwrap_err().why().is_empty());
        }
    }
}
