// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands in README and docs/ are ones that this program takes: their subcommands, options
//! and values exist. (Commands with output are run too: `tests/cli/main.rs`.)

use std::path::{Path, PathBuf};

use clap::CommandFactory;

use crate::Cli;

/// All pages, README first.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    for folder in ["docs", "docs/experiments"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap();
        pages.extend(entries.map(|entry| entry.unwrap().path()));
    }
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages
}

/// What a reader types: lines of code blocks that begin with a prompt, with those that continue
/// them.
fn typed(text: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let (mut in_block, mut continues) = (false, false);
    for line in text.lines() {
        if line.starts_with("```") {
            (in_block, continues) = (!in_block, false);
        } else if continues {
            let command = commands.last_mut().expect("it continues one");
            command.push_str(line.trim_end_matches('\\'));
            continues = line.ends_with('\\');
        } else if in_block && let Some(typed) = line.strip_prefix("$ ").or(line.strip_prefix("# "))
        {
            commands.push(typed.trim_end_matches('\\').to_owned());
            continues = line.ends_with('\\');
        }
    }
    commands
}

/// The arguments if it is a command of this program, with a number for each placeholder or
/// substitution.
fn arguments(command: &str) -> Option<Vec<String>> {
    let mut text = command.to_owned();
    while let Some(start) = text.find("$(") {
        let end = text[start..].find(')').map_or(text.len(), |length| start + length + 1);
        text.replace_range(start..end, "1");
    }
    let words = shlex::split(&text).unwrap_or_else(|| panic!("quotes of: {command}"));
    let is_prefix = |word: &str| {
        word == "sudo" || word.split_once('=').is_some_and(|(name, _)| !name.contains(['/', '-']))
    };
    let mut words = words.into_iter().skip_while(|word| is_prefix(word)).peekable();
    if words.peek()? != "turbolane" {
        return None;
    }
    // Redirections and what follows in the line are the shell's.
    let own = words.take_while(|word| !["|", ">", "&&", "&", ";"].contains(&word.as_str()));
    Some(own.map(|word| if word == "PID" { "1".into() } else { word }).collect())
}

#[test]
fn every_command_in_the_documents_is_accepted() {
    let mut seen = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for command in typed(&text) {
            let Some(arguments) = arguments(&command) else { continue };
            let parsed = Cli::command().try_get_matches_from(&arguments);
            assert!(parsed.is_ok(), "{}: {command}\n{}", page.display(), parsed.unwrap_err());
            seen += 1;
        }
    }
    assert!(seen > 60, "only {seen} commands were found");
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    let page = "```\n$ sudo A=1 turbolane run \\\n    --wide-cpu 2 # more\n```\n$ turbolane no\n";
    let commands = typed(page);
    assert_eq!(commands.len(), 1);
    let arguments = arguments(&commands[0]).unwrap();
    assert_eq!(arguments, ["turbolane", "run", "--wide-cpu", "2"]);
    assert!(Cli::command().try_get_matches_from(&arguments).is_err());
}
