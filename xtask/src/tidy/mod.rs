// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x tidy`: the tree's own rules, those that a program can check. Each rule
//! is a function from the tree to complaints, with a test that shows what it
//! complains about.

mod circles;
mod code;
mod documents;
mod kernels;
mod layers;
mod length;
mod license;
mod links;
mod modules;
mod names;
mod orphans;
mod prose;
mod text;
mod tree;
mod units;
mod width;
mod words;

use std::process::ExitCode;

use anyhow::Result;

pub(crate) use links::linked_paths;
pub(crate) use tree::{File, Tree};

type Rule = fn(&Tree) -> Vec<String>;

const RULES: [Rule; 22] = [
    license::every_source_names_its_license,
    kernels::only_compat_asks_what_a_kernel_has,
    layers::crates_use_what_the_table_says,
    layers::the_architecture_draws_the_table,
    circles::modules_form_no_circles,
    layers::only_report_serialises,
    documents::only_types_of_report_are_serialised,
    documents::no_type_repeats_one_of_report,
    layers::only_hw_touches_the_machine,
    orphans::every_rust_file_is_compiled,
    orphans::every_header_is_included,
    names::replaced_names_do_not_come_back,
    units::names_end_in_canonical_units,
    text::no_host_names_or_machine_paths,
    length::no_file_is_too_long,
    text::no_trailing_whitespace,
    width::no_line_is_too_wide,
    text::no_unfinished_work,
    text::no_citations_of_what_is_elsewhere,
    words::texts_are_in_plain_english,
    links::every_page_is_in_the_summary,
    links::links_have_targets,
];

/// All complaints about the tree, each one line: `file:line: what`.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    RULES.iter().flat_map(|rule| rule(tree)).collect()
}

pub(crate) fn main() -> Result<ExitCode> {
    let complaints = check(&Tree::load()?);
    for complaint in &complaints {
        println!("{complaint}");
    }
    if complaints.is_empty() {
        println!("tidy");
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("{} complaints", complaints.len());
    Ok(ExitCode::FAILURE)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tree_is_tidy() {
        let complaints = super::check(&super::Tree::load().unwrap());
        assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    }
}
