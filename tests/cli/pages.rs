// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--html` of `scan`, `verify` and `profile`: the page is written besides what is printed, and a
//! page that cannot be written is reported before anything is executed. What the pages show in a
//! browser is tested in crates/report.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::turbolane;

/// The report inside of a page.
fn drawn(page: &Path) -> Value {
    let text = std::fs::read_to_string(page).unwrap();
    let (_, rest) = text.split_once("id=\"report\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

fn with_page(arguments: &[&str], page: &Path) -> Output {
    turbolane().args(arguments).arg("--html").arg(page).output().unwrap()
}

/// The page of a comparison and of a profile has the document that `--json` prints.
#[test]
fn pages_have_the_document() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let verify = ["verify", "--scenario", "thesis-nginx", "--runs", "4", "--json"];
    let profile = ["profile", "--scenario", "thesis-nginx", "--samples", "20", "--json"];
    for command in [&verify[..], &profile[..]] {
        let output = with_page(command, &page);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(drawn(&page), document, "{command:?}");
    }
}

/// The page of a scan has what can be marked, and who maps the file: here this test. What is
/// printed is the same without it, apart from the line about marks.
#[test]
fn a_scan_writes_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let libc = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = libc.split_whitespace().find(|word| word.ends_with("/libc.so.6"));
    let libc = libc.expect("a test program has a C library");
    let scan = ["scan", "--level", "0", "--top", "3", libc];
    let (plain, output) = (turbolane().args(scan).output().unwrap(), with_page(&scan, &page));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let is_kept = |line: &&str| !line.trim_start().starts_with("marks:");
    let lines = |output: &Output| -> Vec<String> {
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        text.lines().filter(is_kept).map(str::to_owned).collect()
    };
    assert_eq!(lines(&plain), lines(&output));
    let shown = drawn(&page);
    let file = &shown["files"][0];
    assert_eq!(file["path"], libc);
    assert_eq!(file["functions"].as_array().unwrap().len(), 3, "--top");
    let found = file["found"].as_u64().unwrap();
    assert!(file["left_out"].as_u64().unwrap() + 3 >= found, "{file}");
    assert!(!file["users"].as_array().unwrap().is_empty(), "this process maps it: {file}");
}

/// A page has 200 functions of a file unless `--top` asks for more, and counts the others; JSON has
/// all of them.
#[test]
fn a_page_has_200_functions() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let functions = (0..250).map(|number| {
        format!(
            ".globl f{number}\n.type f{number}, @function\nf{number}: vmulps %zmm1, %zmm2, %zmm3\n\
             ret\n.size f{number}, . - f{number}\n"
        )
    });
    let end = ".section .note.GNU-stack, \"\", @progbits\n";
    let text = format!(".text\n{}{end}", functions.collect::<String>());
    let library = crate::scan::build(folder.path(), &text).display().to_string();
    for (top, due) in [(None, 200), (Some("0"), 250), (Some("2"), 2)] {
        let mut scan = vec!["scan", "--json", &library];
        scan.extend(top.into_iter().flat_map(|top| ["--top", top]));
        let output = with_page(&scan, &page);
        let file = drawn(&page)["files"][0].take();
        assert_eq!(file["functions"].as_array().unwrap().len(), due, "{top:?}");
        assert_eq!((&file["left_out"], &file["found"]), (&(250 - due).into(), &250.into()));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let listed = document["files"][0]["listed"].as_array().unwrap().len();
        assert_eq!(listed, if top == Some("2") { 2 } else { 250 }, "{top:?}");
    }
}

/// No run is made for a page that cannot be written, and no empty page remains of a comparison that
/// failed.
#[test]
fn pages_that_cannot_be_written_fail() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("made");
    let touch = made.display().to_string();
    let output =
        with_page(&["verify", "--b", "true", "--a", &format!("touch {touch}")], folder.path());
    assert_eq!((output.status.code(), made.exists()), (Some(2), false), "{output:?}");
    let page = folder.path().join("page.html");
    let output = with_page(&["verify", "--a", "false", "--b", "false"], &page);
    assert_eq!((output.status.code(), page.exists()), (Some(2), false), "{output:?}");
}
