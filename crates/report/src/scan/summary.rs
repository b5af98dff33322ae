// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many files at a glance: those that matter first, by their functions of the highest levels.
//!
//! Level 2 costs the most clock, so a file's functions of level 2 and above decide; among equals
//! all functions found do.

use std::cmp::Reverse;

use super::{Confidence, File, Scan, User};
use crate::text::{Align, Table, wrap};

/// Users of a file that are named before the rest is only counted.
const USERS_SHOWN: usize = 3;

/// Functions of this level decide the order.
const MATTERS: u8 = 2;

impl File {
    /// Listed functions that can reach the level, guesses left out.
    pub(super) fn listed_of(&self, level: u8) -> usize {
        let is_it = |function: &&super::Function| {
            function.license_level >= level && function.confidence != Confidence::Low
        };
        self.listed.iter().filter(is_it).count()
    }

    fn users(&self) -> Option<String> {
        let users = self.mapped_by.as_deref().filter(|users| !users.is_empty())?;
        let shown: Vec<String> = users.iter().take(USERS_SHOWN).map(User::shown).collect();
        let more = users.len().saturating_sub(USERS_SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Some(format!(" [mapped by {}{more}]", shown.join(", ")))
    }
}

impl User {
    /// The name, with the number of processes if there are several.
    pub(super) fn shown(&self) -> String {
        match self.processes {
            1 => self.name.clone(),
            processes => format!("{} ({processes})", self.name),
        }
    }
}

impl Scan {
    /// The files with findings, `top` of them, as text of at most `width` columns. All functions
    /// have to be listed.
    pub fn summary_text(&self, top: Option<usize>, width: usize) -> String {
        let (files, level) = self.in_order();
        let shown = top.unwrap_or(files.len()).min(files.len());
        let mut text = String::new();
        if shown > 0 {
            text += &self.files_table(&files[..shown], level).text(width);
            if shown < files.len() {
                text += &format!("{} more; --top 0 lists all\n", files.len() - shown);
            }
            text += "\n";
        }
        text += &wrap("", &self.count_text(), width);
        if let Some(refused) = self.refused_text() {
            text += &wrap("", &refused, width);
        }
        if shown > 0 {
            text += &wrap("", "--details lists the functions of each file.", width);
        }
        text
    }

    /// Files with findings, those that matter first, and the level that decides the order.
    pub(super) fn in_order(&self) -> (Vec<&File>, u8) {
        let mut files: Vec<&File> = self.files.iter().filter(|file| file.found > 0).collect();
        let level = self.least_level.max(MATTERS);
        files.sort_by_key(|file| Reverse((file.listed_of(level), file.found)));
        (files, level)
    }

    /// Processes whose mappings are not known.
    pub(super) fn refused_text(&self) -> Option<String> {
        let refused = self.processes.map(|seen| seen.refused).filter(|count| *count > 0)?;
        let (processes, they) =
            if refused == 1 { ("process", "it maps") } else { ("processes", "they map") };
        Some(format!(
            "{refused} {processes} could not be looked at: which files {they} is not known."
        ))
    }

    fn files_table(&self, files: &[&File], level: u8) -> Table {
        let (few, all) = (format!("LEVEL {level}+"), format!("LEVEL {}+", self.least_level));
        let mut head =
            vec![("REACHES", Align::Right), ("LASTING", Align::Right), (&few, Align::Right)];
        let is_both = level > self.least_level;
        if is_both {
            head.push((&all, Align::Right));
        }
        head.push(("FILE", Align::Left));
        let mut table = Table::new(&head);
        for file in files {
            let mut row = vec![
                file.license_level.to_string(),
                file.sustained_level.to_string(),
                file.listed_of(level).to_string(),
            ];
            if is_both {
                row.push(file.found.to_string());
            }
            row.push(file.path.clone() + &file.users().unwrap_or_default());
            table.row(row);
        }
        table
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::scan::{Counts, Function, Processes, Source, Widest};

    pub(in crate::scan) fn function(license_level: u8, confidence: Confidence) -> Function {
        Function {
            name: None,
            symbol: None,
            address: 0,
            file_offset: None,
            section: None,
            size_bytes: 1,
            source: Source::Symtab,
            confidence,
            license_level,
            sustained_level: license_level,
            widest: Widest::Zmm,
            instructions: 1,
            counts: Counts::default(),
            heavy_frac: None,
            in_loop: None,
            loops: None,
            dirty_returns: 0,
            dirty_sse: 0,
            line: None,
            near: None,
        }
    }

    pub(in crate::scan) fn file(path: &str, levels: &[u8]) -> File {
        let listed: Vec<Function> =
            levels.iter().map(|level| function(*level, Confidence::High)).collect();
        let license_level = levels.iter().copied().max().unwrap_or(0);
        let found = listed.len() as u64;
        File { license_level, sustained_level: 1, found, listed, ..File::new(path, "", 1) }
    }

    pub(in crate::scan) fn scan(files: Vec<File>) -> Scan {
        Scan { files, ..Scan::new(1) }
    }

    /// Most functions of level 2 go first, then most of all; guesses count as nothing, files
    /// without findings are only counted.
    #[test]
    fn files_that_matter_come_first() {
        let mut guessed = file("guessed", &[1]);
        guessed.listed.push(function(2, Confidence::Low));
        let two = file("two", &[2, 2]);
        let files = vec![guessed, file("many", &[1; 9]), file("none", &[]), two];
        let text = scan(files).summary_text(Some(2), 80);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "REACHES  LASTING  LEVEL 2+  LEVEL 1+  FILE",
                "      2        1         2         2  two",
                "      1        1         0         9  many",
                "1 more; --top 0 lists all",
                "",
                "4 files, 3 with 12 functions of level 1 and above",
                "--details lists the functions of each file.",
            ]
        );
    }

    /// Users are named, most processes first as they come; what was not seen is said.
    #[test]
    fn users_are_named() {
        let user = |name: &str, processes| User { name: name.into(), processes };
        let mut mapped = file("lib", &[2]);
        mapped.mapped_by = Some(["a", "b", "c", "d"].map(|name| user(name, 1)).to_vec());
        mapped.mapped_by.as_mut().unwrap()[0].processes = 4;
        let mut scan = scan(vec![mapped, file("plain", &[])]);
        scan.processes = Some(Processes { looked_at: 7, refused: 5 });
        let text = scan.summary_text(None, 100);
        assert!(text.contains("lib [mapped by a (4), b, c and 1 more]"), "{text}");
        assert!(
            text.contains("5 processes could not be looked at: which files they map"),
            "{text}"
        );
    }

    /// Nothing found: no table, and no hint at details that are not there.
    #[test]
    fn nothing_is_a_line() {
        let text = scan(vec![file("a", &[]), file("b", &[])]).summary_text(None, 80);
        assert_eq!(text, "2 files, 0 with 0 functions of level 1 and above\n");
    }

    /// With --json-lines each file is a document of its own.
    #[test]
    fn lines_are_documents() {
        let scan = scan(vec![file("a", &[2]), file("b", &[])]);
        let lines: Vec<String> = scan.json_lines().lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 2);
        for (line, file) in lines.iter().zip(&scan.files) {
            assert!(line.starts_with("{\"schema\":1,\"least_level\":1,\"path\":"), "{line}");
            assert_eq!(&serde_json::from_str::<File>(line).unwrap(), file);
        }
    }
}
