// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text for people: wrapping with a hanging indent, tables, numbers with units.

/// Narrowest width that text is laid out for; a narrower window gets long lines.
const MIN_WIDTH: usize = 40;

/// `text` after `label`, wrapped at blanks to `width` columns; further lines are indented by
/// the length of the label. A word that is too long gets a line of its own.
pub fn wrap(label: &str, text: &str, width: usize) -> String {
    let indent = columns(label);
    let room = width.max(MIN_WIDTH).saturating_sub(indent).max(MIN_WIDTH / 2);
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if columns(line) + 1 + columns(word) <= room {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_string());
        }
    }
    let mut wrapped = String::new();
    for (number, line) in lines.iter().enumerate() {
        let before = if number == 0 { label.to_string() } else { " ".repeat(indent) };
        wrapped.push_str(format!("{before}{line}").trim_end());
        wrapped.push('\n');
    }
    wrapped
}

fn columns(text: &str) -> usize {
    text.chars().count()
}

/// How a column of a table is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table whose last column takes what width is left and wraps in it.
#[derive(Clone, Debug)]
pub struct Table {
    head: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column titles.
    pub fn new(head: &[(&str, Align)]) -> Self {
        let head = head.iter().map(|&(title, align)| (title.to_string(), align)).collect();
        Table { head, rows: Vec::new() }
    }

    /// Adds a row. Panics if it has more or fewer cells than there are columns.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.head.len(), "a row with a wrong number of cells");
        self.rows.push(cells);
    }

    /// The table as text of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let last = self.head.len() - 1;
        let widths: Vec<usize> = (0..last)
            .map(|column| {
                let cells = self.rows.iter().map(|row| columns(&row[column]));
                cells.chain([columns(&self.head[column].0)]).max().unwrap_or(0)
            })
            .collect();
        let titles: Vec<String> = self.head.iter().map(|(title, _)| title.clone()).collect();
        let mut text = String::new();
        for row in std::iter::once(&titles).chain(&self.rows) {
            let label: String = (0..last)
                .map(|column| pad(&row[column], widths[column], self.head[column].1) + "  ")
                .collect();
            text += &wrap(&label, &row[last], width);
        }
        text
    }
}

impl Table {
    /// The table as Markdown, for a page or an issue; without columns that only take width.
    pub fn markdown(&self) -> String {
        let is_used = |column: &usize| {
            !self.head[*column].0.is_empty() || self.rows.iter().any(|row| !row[*column].is_empty())
        };
        let used: Vec<usize> = (0..self.head.len()).filter(is_used).collect();
        let line = |cell: &dyn Fn(usize) -> String| {
            let cells: Vec<String> = used.iter().map(|column| cell(*column)).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let cell = |text: &str| text.trim().replace('\\', "\\\\").replace('|', "\\|");
        let rule = |column: usize| match self.head[column].1 {
            Align::Left => "---".to_string(),
            Align::Right => "---:".to_string(),
        };
        let titles = line(&|column| cell(&self.head[column].0));
        let rows = self.rows.iter().map(|row| line(&|column| cell(&row[column])));
        titles + &line(&rule) + &rows.collect::<String>()
    }
}

/// `text` filled with blanks to `width` columns.
pub fn pad(text: &str, width: usize, align: Align) -> String {
    let blanks = " ".repeat(width.saturating_sub(columns(text)));
    match align {
        Align::Left => format!("{text}{blanks}"),
        Align::Right => format!("{blanks}{text}"),
    }
}

/// A duration for people: three or four digits and the unit that needs no more.
pub fn duration(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns}ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines break at blanks and stay to the right of the label.
    #[test]
    fn wraps_behind_the_label() {
        let text = wrap("why:  ", "one two three four five six seven eight", 40);
        assert_eq!(text, "why:  one two three four five six seven\n      eight\n");
        assert_eq!(wrap("x: ", "", 80), "x:\n");
    }

    /// A word longer than the line is not cut.
    #[test]
    fn keeps_long_words_whole() {
        let path = "/a/very/long/path/that/does/not/fit/into/the/line/at/all";
        assert_eq!(wrap("at ", &format!("see {path}"), 40), format!("at see\n   {path}\n"));
    }

    /// Columns are as wide as their widest cell; the last one wraps.
    #[test]
    fn tables_align() {
        let mut table =
            Table::new(&[("NAME", Align::Left), ("N", Align::Right), ("TEXT", Align::Left)]);
        table.row(vec!["a".into(), "100".into(), "short".into()]);
        table.row(vec!["longer".into(), "7".into(), "words that go on to a second line".into()]);
        assert_eq!(
            table.text(40),
            "NAME      N  TEXT\n\
             a       100  short\n\
             longer    7  words that go on to a\n\
             \x20            second line\n"
        );
    }

    /// Numbers are to the right; a cell cannot end its column.
    #[test]
    fn tables_are_markdown() {
        let mut table =
            Table::new(&[("  NAME", Align::Left), ("N", Align::Right), ("", Align::Left)]);
        table.row(vec!["  a|b".into(), "100".into(), String::new()]);
        assert_eq!(table.markdown(), "| NAME | N |\n| --- | ---: |\n| a\\|b | 100 |\n");
    }

    /// Durations keep about three digits.
    #[test]
    fn durations_are_short() {
        for (ns, text) in [
            (0, "0ns"),
            (999, "999ns"),
            (1_500, "1.50us"),
            (12_345, "12.3us"),
            (670_000, "670us"),
            (9_999_000, "10.0ms"),
            (1_234_000_000, "1.23s"),
            (300_000_000_000, "300s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }
}
