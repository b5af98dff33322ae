// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a run as a file, such as `/etc/turbolane.toml`.
//!
//! **Problem.** A service has no command line that its operator types. A file is edited with
//! mistakes, and a setting that is silently ignored is noticed weeks later, in a benchmark.
//!
//! **Idea.** The file is TOML without sections. Its keys are the names of [`SETTINGS`], its values
//! have the syntax of the flags, and [`Setting::set`](crate::settings::Setting::set) reads both:
//! there is no second list of settings, defaults or syntaxes. Numbers and switches may be written
//! without quotation marks, and selectors of tasks as lists of texts. Four keys are flags of `run`
//! that are not in the table: `mark` and `marks`, a text or a list of texts, `ignore-cgroup-limits`
//! and `metrics`.
//!
//! Everything that is not understood is refused, with its line and column and what is allowed
//! there.
//!
//! **Limits.** The first mistake is reported, not all of them. Paths are relative to the working
//! folder of the run, as those of the flags are; a service has `/`.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use report::text::wrap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::{Config, Mark};
use crate::parse::ParseError;
use crate::scope::{self, is_list};
use crate::settings::{SETTINGS, boolean, setting, unknown};

/// Marks, one by one.
const MARK: &str = "mark";
/// Files of marks.
const MARK_FILES: &str = "marks";
/// The switch of `run` that is no setting of the scheduler.
pub const IGNORE_GROUP_LIMITS: &str = "ignore-cgroup-limits";

/// The file for metrics.
pub const METRICS: &str = "metrics";
/// Where Debian's node_exporter looks for such files.
const METRICS_EXAMPLE: &str = "/var/lib/prometheus/node-exporter/turbolane.prom";

/// Width of the comments in a file that is written.
const WIDTH: usize = 100;

/// What a file says; a default for what it does not mention.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The settings of the scheduler, with the marks that are named one by one.
    pub config: Config,
    /// Files that list more marks.
    pub mark_files: Vec<PathBuf>,
    /// Run even if no scheduler can honour, on this kernel, the limits of control groups.
    pub ignore_group_limits: bool,
    /// Where metrics are written.
    pub metrics: Option<PathBuf>,
}

/// Why a text is no settings file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong there, and what to write instead.
    pub error: ParseError,
}

/// Reads the text of a settings file.
pub fn parse(text: &str) -> Result<Settings, FileError> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if let Some(error) = errors.first() {
        let refusal = set_twice(text, document.get_ref(), error).unwrap_or_else(|| ParseError {
            why: error.message().trim().into(),
            next: "write KEY = \"VALUE\", one per line; a # begins a comment".into(),
        });
        return Err(located(text, error.span(), refusal));
    }
    // In the order of the lines, so that the first mistake is the one that is reported.
    let mut entries: Vec<_> = document.get_ref().iter().collect();
    entries.sort_unstable_by_key(|(key, _)| key.span().start);
    let mut settings = Settings::default();
    for (key, value) in entries {
        set(&mut settings, key.get_ref(), value).map_err(|(span, error)| {
            located(text, Some(span.unwrap_or_else(|| key.span())), error)
        })?;
    }
    Ok(settings)
}

/// A refusal, and where it is; `None`: at the key.
type Refusal = (Option<Range<usize>>, ParseError);

fn set(settings: &mut Settings, key: &str, value: &Spanned<DeValue>) -> Result<(), Refusal> {
    if matches!(value.get_ref(), DeValue::Table(_)) {
        return Err((None, no_section(key)));
    }
    let at_value = |error| (Some(value.span()), error);
    if is_list(key) {
        return set_selectors(settings, key, value);
    }
    if let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) {
        let value = scalar(key, value)?;
        return setting.set(&mut settings.config, &value).map_err(at_value);
    }
    match key {
        MARK => {
            for (span, mark) in texts(key, value)? {
                let mark = mark.parse::<Mark>().map_err(|error| (Some(span), error))?;
                settings.config.marks.push(mark);
            }
        }
        MARK_FILES => settings
            .mark_files
            .extend(texts(key, value)?.into_iter().map(|(_, file)| PathBuf::from(file))),
        IGNORE_GROUP_LIMITS => {
            settings.ignore_group_limits = boolean(&scalar(key, value)?).map_err(at_value)?;
        }
        METRICS => settings.metrics = Some(scalar(key, value)?.into()),
        _ => return Err((None, unknown(key, keys()))),
    }
    Ok(())
}

/// Sets a list of selectors, one by one: so a mistake has the place of its selector.
fn set_selectors(
    settings: &mut Settings,
    key: &str,
    value: &Spanned<DeValue>,
) -> Result<(), Refusal> {
    let (mut list, setting) = (Vec::new(), setting(key).map_err(|error| (None, error))?);
    for (span, text) in texts(key, value)? {
        let at_text = |error| (Some(span.clone()), error);
        // What is not one is refused as such.
        setting.set(&mut Config::default(), &text).map_err(at_text)?;
        list.push(text);
        setting.set(&mut settings.config, &list.join(",")).map_err(at_text)?;
        scope::check(&settings.config.scope).map_err(at_text)?;
    }
    Ok(())
}

/// All keys that a file may have.
fn keys() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|setting| setting.key).chain([
        MARK,
        MARK_FILES,
        IGNORE_GROUP_LIMITS,
        METRICS,
    ])
}

/// A value as the flag of the same name would have it.
fn scalar(key: &str, value: &Spanned<DeValue>) -> Result<String, Refusal> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Boolean(switch) => Ok(switch.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_string()),
        _ => Err((Some(value.span()), quoted(key))),
    }
}

/// A text, or a list of texts, each with its place.
fn texts(key: &str, value: &Spanned<DeValue>) -> Result<Vec<(Range<usize>, String)>, Refusal> {
    let single = std::slice::from_ref(value);
    let items = value.get_ref().as_array().map_or(single, |items| items.as_ref());
    let text = |item: &Spanned<DeValue>| match item.get_ref() {
        DeValue::String(text) => Ok((item.span(), text.to_string())),
        _ => Err((Some(item.span()), listed(key))),
    };
    items.iter().map(text).collect()
}

fn no_section(key: &str) -> ParseError {
    ParseError {
        why: format!("\"{key}\" is used as a section, but settings are not in sections"),
        next: "remove the line with the brackets, or the dot in the name".into(),
    }
}

fn quoted(key: &str) -> ParseError {
    ParseError {
        why: format!("the value of {key} is neither a text, an integer nor true or false"),
        next: format!("write it as the flag --{key} takes it, in quotation marks"),
    }
}

fn listed(key: &str) -> ParseError {
    ParseError {
        why: format!("the value of {key} is neither a text nor a list of texts"),
        next: format!("write {key} = [\"FIRST\", \"SECOND\"]"),
    }
}

/// The refusal of a key that is there already, if that is the reader's error, which names neither
/// the key nor the first of its lines.
fn set_twice(text: &str, document: &DeTable<'_>, error: &toml::de::Error) -> Option<ParseError> {
    let second = error.span().filter(|_| error.message().trim() == "duplicate key")?;
    let written = text.get(second.clone())?.trim_matches(['"', '\'']);
    let (first, _) = document.get_key_value(written)?;
    let [first, second] = [first.span().start, second.start].map(|at| line_of(text, at));
    Some(ParseError {
        why: format!("{written} is set in line {first} and again in line {second}"),
        next: "remove one of the two lines".into(),
    })
}

/// The line that holds the byte at `offset`, from 1.
fn line_of(text: &str, offset: usize) -> usize {
    text.get(..offset).unwrap_or(text).matches('\n').count() + 1
}

/// The error at the start of `span`.
fn located(text: &str, span: Option<Range<usize>>, error: ParseError) -> FileError {
    let start = span.map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or(text);
    let line = line_of(text, start);
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    FileError { line, column, error }
}

/// A file with these settings, in which the comments explain each setting, and what has its default
/// is a comment.
pub fn text(settings: &Settings) -> String {
    let mut text = String::new();
    for setting in SETTINGS {
        text += &wrap("# ", setting.meaning, WIDTH).replace("\n  ", "\n# ");
        let value = setting.get(&settings.config);
        let comment = if value == setting.get(&Config::default()) { "# " } else { "" };
        let value = if is_list(setting.key) { toml_list(&value) } else { toml_value(&value) };
        _ = writeln!(text, "{comment}{} = {value}\n", setting.key);
    }
    let marks = settings.config.marks.iter().map(ToString::to_string);
    text += "# functions that are wide code, as --mark takes them\n";
    text += &list(MARK, marks.collect(), "FILE:FUNCTION@2");
    text += "\n# files that list marks, as --marks takes them\n";
    let files = settings.mark_files.iter().map(|file| Path::display(file).to_string());
    text += &list(MARK_FILES, files.collect(), "FILE");
    text +=
        "\n# run even if control groups use settings that no scheduler can honour on this kernel\n";
    let comment = if settings.ignore_group_limits { "" } else { "# " };
    _ = writeln!(text, "{comment}{IGNORE_GROUP_LIMITS} = {}", settings.ignore_group_limits);
    text += "\n# file of metrics for node_exporter's textfile collector, written every 10 s\n";
    let (comment, path) = match &settings.metrics {
        Some(path) => ("", path.display().to_string()),
        None => ("# ", METRICS_EXAMPLE.to_string()),
    };
    text + &format!("{comment}{METRICS} = {}\n", toml_text(&path))
}

fn list(key: &str, values: Vec<String>, example: &str) -> String {
    if values.is_empty() {
        return format!("# {key} = [{}]\n", toml_text(example));
    }
    let lines: String = values.iter().map(|value| format!("    {},\n", toml_text(value))).collect();
    format!("{key} = [\n{lines}]\n")
}

/// Selectors, one by one.
fn toml_list(value: &str) -> String {
    let items = value.split(',').filter(|item| *item != "none").map(toml_text);
    format!("[{}]", items.collect::<Vec<String>>().join(", "))
}

/// Switches and numbers as such, all else as text.
fn toml_value(value: &str) -> String {
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    if is_number || value.parse::<bool>().is_ok() { value.to_string() } else { toml_text(value) }
}

fn toml_text(value: &str) -> String {
    toml::Value::String(value.to_string()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refusal(text: &str) -> String {
        let FileError { line, column, error } = parse(text).unwrap_err();
        format!("{line}:{column}: {error}")
    }

    /// An empty file, and the one that only explains, are the defaults.
    #[test]
    fn nothing_said_is_the_default() {
        let explained = text(&Settings::default());
        assert!(explained.lines().all(|line| line.is_empty() || line.starts_with('#')));
        for text in ["", "# a comment\n", &explained] {
            let settings = parse(text).unwrap();
            for setting in SETTINGS {
                assert_eq!(setting.get(&settings.config), setting.get(&Config::default()));
            }
            assert!(settings.config.marks.is_empty() && settings.mark_files.is_empty());
            assert!(!settings.ignore_group_limits && settings.metrics.is_none());
        }
    }

    /// The example that packages install is what this version would write. After a change of a
    /// setting, copy the left side of the message.
    #[test]
    fn the_installed_example_is_current() {
        let example = include_str!("../../../dist/turbolane.toml");
        let (head, rest) = example.split_once("\n\n").unwrap();
        assert!(head.contains("/etc/turbolane.toml"));
        assert_eq!(text(&Settings::default()), rest);
    }

    /// The explanation becomes a file that sets everything to its default when the comment signs
    /// before its keys go: so what it shows as an example of each setting is accepted.
    #[test]
    fn every_example_is_accepted() {
        let is_example =
            |line: &&str| line.strip_prefix("# ").is_some_and(|rest| rest.contains(" = "));
        let explained = text(&Settings::default());
        let examples: Vec<&str> =
            explained.lines().filter(is_example).map(|line| &line[2..]).collect();
        assert_eq!(examples.len(), keys().count());
        let settings = parse(&examples.join("\n")).unwrap();
        assert_eq!(settings.config.marks.len(), 1);
        assert_eq!(settings.mark_files, [Path::new("FILE")]);
        assert!(settings.metrics.is_some());
    }

    /// Numbers and switches need no quotation marks; single marks no brackets.
    #[test]
    fn values_are_written_as_they_are_meant() {
        let settings = parse(
            "wide-cpus = 2\ntiers = true\nslice = '3ms'\ntrap-level = \"1\"\nignore-cgroup-limits = true\n\
             mark = \"a.so:f@2\"\nmarks = ['one', \"two\"]\n",
        )
        .unwrap();
        assert_eq!(settings.config.wide_cpus.to_string(), "2");
        assert!(settings.config.tiers && settings.ignore_group_limits);
        assert_eq!((settings.config.slice_ns, settings.config.trap_level), (3_000_000, 1));
        assert_eq!(settings.config.marks[0].to_string(), "a.so:f@2");
        assert_eq!(settings.mark_files, [Path::new("one"), Path::new("two")]);
    }

    /// Each mistake is found at its place, with what is allowed there.
    #[test]
    fn mistakes_fail_with_their_place() {
        let typo = refusal("tiers = true\n  slcie = \"5ms\"\n");
        assert!(typo.starts_with("2:3: there is no setting \"slcie\"; did you mean \"slice\"?"));
        assert!(typo.ends_with("mode mark marks ignore-cgroup-limits metrics"), "{typo}");
        for (text, expected) in [
            (
                "wide_cpus = 2",
                "1:1: there is no setting \"wide_cpus\"; did you mean \"wide-cpus\"?",
            ),
            ("# é\nslice = 5", "2:9: \"5\" has no unit; write it as 5us, 5ms or 5s"),
            ("mode = \"scxx\"", "1:8: \"scxx\" is not one of its values; did you mean \"scx\"?"),
            ("tiers = 1", "1:9: \"1\" is neither true nor false"),
            ("slice = 1.5", "1:9: the value of slice is neither a text"),
            ("mark = [\"a:f\", \"b\"]", "1:16: \"b\" names no function"),
            ("mark = 3", "1:8: the value of mark is neither a text nor a list"),
            ("[slice]\nx = 1", "1:2: \"slice\" is used as a section"),
            ("[lane]\nslice = '5ms'", "1:2: \"lane\" is used as a section"),
            ("mark = [{ file = 'a' }]", "1:9: the value of mark is neither a text nor a list"),
            (
                "slice = '5ms'\n# é\nslice = '6ms'",
                "3:1: slice is set in line 1 and again in line 3; remove one of the two lines",
            ),
            (
                "tiers = true\n\"slice\" = '5ms'\n'slice' = '6ms'",
                "3:1: slice is set in line 2 and again in line 3",
            ),
            (
                "wide-tasks = ['unit:a', 'nginx']",
                "1:25: \"nginx\" names neither a unit, a control group nor a task",
            ),
            (
                "wide-tasks = ['unit:a', 'comm:b']\nscalar-tasks = ['cgroup:/c',\n  'unit:a.service']",
                "3:3: unit:a.service is named twice, in wide-tasks and in scalar-tasks",
            ),
            ("leave-alone = ['comm:b']", "1:16: \"comm:b\" would let any user"),
            ("wide-tasks = 3", "1:14: the value of wide-tasks is neither a text nor a list"),
            ("slice = '5ms", "1:13: "),
            ("slice: 5ms", "1:8: key with no value"),
        ] {
            let found = refusal(text);
            assert!(found.starts_with(expected), "{text}: {found}");
        }
    }

    proptest! {
        /// What is written is read again, whatever the settings are.
        #[test]
        fn files_round_trip(
            cores in 0usize..64, slice_us in 100u64..1000, tiers: bool, ignore_group_limits: bool,
            level in 1u32..=3, names in proptest::collection::vec("[a-z \"'\\\\é#]{1,9}", 0..4),
        ) {
            let mut config = Config {
                slice_ns: slice_us * 1000,
                tiers,
                trap_level: level,
                ..Config::default()
            };
            config.wide_cpus = crate::config::WideCpus::Cores(cores);
            config.scope.scalar = (0..cores % 4)
                .map(|n| format!("unit:a{n},cgroup:/b {n}"))
                .collect::<Vec<String>>()
                .join(",")
                .parse()
                .unwrap();
            let mark = |name| format!("/{name}:f@{level}").parse().unwrap();
            config.marks = names.iter().map(mark).collect();
            let mark_files = names.iter().map(PathBuf::from).collect();
            let metrics = names.first().map(PathBuf::from);
            let written = Settings { config, mark_files, ignore_group_limits, metrics };
            let read = parse(&text(&written)).unwrap();
            for setting in SETTINGS {
                prop_assert_eq!(setting.get(&read.config), setting.get(&written.config));
            }
            prop_assert_eq!(read.config.marks, written.config.marks);
            prop_assert_eq!(read.mark_files, written.mark_files);
            prop_assert_eq!(read.ignore_group_limits, written.ignore_group_limits);
            prop_assert_eq!(read.metrics, written.metrics);
        }

        /// No text makes the reader panic, and every refusal is at a place in the text.
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z\\-=\"\\[\\]\n .0-9#é]{0,60}") {
            if let Err(FileError { line, column, .. }) = parse(&text) {
                prop_assert!(line >= 1 && line <= text.matches('\n').count() + 1);
                prop_assert!(column >= 1);
            }
        }
    }
}
