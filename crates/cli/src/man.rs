// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane man`: writes the manual pages, for packagers and for `docs/man`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use report::problem::Problem;

use crate::failure::Failure;

/// Write the manual pages to a folder
#[derive(Args)]
#[command(hide = true)]
pub(crate) struct ManArgs {
    /// The folder; made if it is missing
    dir: PathBuf,
}

/// Writes one page per subcommand.
pub(crate) fn main(args: &ManArgs) -> Result<ExitCode, Failure> {
    write_pages(&args.dir).map_err(|error| {
        let what = format!("cannot write the manual pages to {}", args.dir.display());
        Failure::failed(Problem::new(what, error.to_string(), "name another folder"))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Writes pages and removes nothing: the folder may hold pages of others.
fn write_pages(dir: &Path) -> io::Result<()> {
    let mut program = crate::Cli::command();
    program.build();
    fs::create_dir_all(dir)?;
    write_page_and_those_below(&program, dir)
}

fn write_page_and_those_below(command: &Command, dir: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_page_and_those_below(subcommand, dir)?;
    }
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render(&mut page)?;
    let page = keep_lines_of_notes(&String::from_utf8_lossy(&page));
    fs::write(dir.join(man.get_filename()), page)
}

/// clap's "extra" section holds examples and lists: their lines must not be filled.
fn keep_lines_of_notes(page: &str) -> String {
    let Some((before, notes)) = page.split_once(".SH EXTRA\n") else { return page.to_string() };
    let end = notes.find("\n.SH ").map_or(notes.len(), |at| at + 1);
    let (notes, after) = notes.split_at(end);
    format!("{before}.SH NOTES\n.nf\n{}\n.fi\n{after}", notes.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What else lies in the folder stays there.
    #[test]
    fn pages_of_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("other.3");
        fs::write(&other, "mine").unwrap();
        write_pages(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
        assert!(dir.path().join("turbolane-run.1").exists());
    }

    /// The notes keep their lines, what is around them is unchanged.
    #[test]
    fn notes_are_not_filled() {
        let page = ".SH NAME\nx\n.SH EXTRA\na\n  b\n.SH VERSION\nv1\n";
        let expected = ".SH NAME\nx\n.SH NOTES\n.nf\na\n  b\n.fi\n.SH VERSION\nv1\n";
        assert_eq!(keep_lines_of_notes(page), expected);
        assert_eq!(keep_lines_of_notes(".SH NAME\nx\n"), ".SH NAME\nx\n");
    }
}
