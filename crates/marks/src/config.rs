// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `TURBOLANE_MARKS` says: the marks of `turbolane run --mark` (crates/sched/src/parse.rs),
//! without offsets, for there is no call to be found for an offset.
//!
//! ```text
//!   libcrypto.so.3:EVP_CipherUpdate@2; libblas.so.3:dgemm_@2,min-arg3=64   # comment
//! ```

use preloaded::number;
use turbolane_hint::MAX_LEVEL;

/// Marks at most.
pub const MARKS_MAX: usize = 32;

/// Integer arguments in registers (System V ABI, AMD64).
const ARGUMENTS: u32 = 6;

/// What a call does, as `policy/mark.h` packs it: level, deciding argument, its least value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Licence level, 1..=3.
    pub level: u32,
    /// The integer argument that decides whether a call counts, 1..=6; 0: all do.
    pub argument: u32,
    /// Its least value; the lower 32 bits are compared, without a sign.
    pub least: u32,
}

/// One mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark<'a> {
    /// File name or path of the library.
    pub file: &'a [u8],
    /// The function's name in it.
    pub function: &'a [u8],
    /// What its calls do.
    pub rule: Rule,
}

/// All marks.
#[derive(Clone, Copy, Debug)]
pub struct Marks<'a> {
    /// The first ones of these.
    pub marks: [Option<Mark<'a>>; MARKS_MAX],
    /// Whether to say at exit what was found.
    pub report: bool,
}

/// What makes no sense: the words that do not, as they were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid<'a> {
    /// No function.
    Function(&'a [u8]),
    /// An offset.
    Offset(&'a [u8]),
    /// No licence level.
    Level(&'a [u8]),
    /// No option of a mark.
    Option(&'a [u8]),
    /// One more than [`MARKS_MAX`].
    TooMany(&'a [u8]),
    /// There is no mark.
    Nothing,
}

impl<'a> Invalid<'a> {
    /// What is wrong, and what would be right: to be written one after the other.
    pub fn message(self) -> [&'a [u8]; 3] {
        match self {
            Invalid::Function(word) => {
                [b"\"", word, b"\" names no function; write FILE:FUNCTION@LEVEL"]
            }
            Invalid::Offset(word) => {
                [b"\"", word, b"\" is an offset; here only functions with names can be marked"]
            }
            Invalid::Level(word) => [b"\"", word, b"\" is not a licence level; give 1, 2 or 3"],
            Invalid::Option(word) => [
                b"\"",
                word,
                b"\" is not an option of a mark; write ,min-arg3=64 to ignore calls whose third \
                  argument is below 64",
            ],
            Invalid::TooMany(word) => {
                [b"\"", word, b"\" is one too many; up to 32 functions can be marked"]
            }
            Invalid::Nothing => [b"", b"", b"there is no mark; write FILE:FUNCTION@LEVEL"],
        }
    }
}

/// Reads marks.
pub fn parse(text: &[u8]) -> Result<Marks<'_>, Invalid<'_>> {
    let mut marks = Marks { marks: [None; MARKS_MAX], report: false };
    let mut places = marks.marks.iter_mut();
    for line in text.split(|byte| *byte == b'\n') {
        for word in without_comment(line).split(|byte| *byte == b';').map(<[u8]>::trim_ascii) {
            match word {
                b"" => {}
                b"report" => marks.report = true,
                _ => *places.next().ok_or(Invalid::TooMany(word))? = Some(mark(word)?),
            }
        }
    }
    let first = marks.marks.first().copied().flatten();
    first.map(|_| marks).ok_or(Invalid::Nothing)
}

fn without_comment(line: &[u8]) -> &[u8] {
    let begins = |at: usize| match at.checked_sub(1) {
        None => true,
        Some(before) => line.get(before).is_some_and(u8::is_ascii_whitespace),
    };
    let found = line.iter().zip(0..).find(|&(byte, at)| *byte == b'#' && begins(at));
    found.and_then(|(_, at)| line.get(..at)).unwrap_or(line)
}

fn mark(word: &[u8]) -> Result<Mark<'_>, Invalid<'_>> {
    let (file, site) = last_single_colon(word).ok_or(Invalid::Function(word))?;
    let (site, option) = split(site, b',');
    let (function, level) = split(site, b'@');
    if file.is_empty() || function.is_empty() {
        return Err(Invalid::Function(word));
    }
    if function.starts_with(b"+0x") {
        return Err(Invalid::Offset(word));
    }
    let level = match level {
        None => 1,
        Some(level) => number(level)
            .filter(|level| (1..=MAX_LEVEL).contains(level))
            .ok_or(Invalid::Level(level))?,
    };
    let (argument, least) = match option {
        None => (0, 0),
        Some(option) => min_arg(option).ok_or(Invalid::Option(option))?,
    };
    Ok(Mark { file, function, rule: Rule { level, argument, least } })
}

/// `min-argN=VALUE`.
fn min_arg(option: &[u8]) -> Option<(u32, u32)> {
    let (argument, least) = split(option.strip_prefix(b"min-arg")?, b'=');
    let argument = number(argument).filter(|argument| (1..=ARGUMENTS).contains(argument))?;
    Some((argument, number(least?).filter(|least| *least > 0)?))
}

/// What comes before the first `at`, and what after it.
fn split(text: &[u8], at: u8) -> (&[u8], Option<&[u8]>) {
    let mut parts = text.splitn(2, |byte| *byte == at);
    (parts.next().unwrap_or_default(), parts.next())
}

/// A name such as `ns::function` stays whole.
fn last_single_colon(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_colon = |at: usize| text.get(at) == Some(&b':');
    let alone = |at: &usize| {
        is_colon(*at) && !is_colon(at.wrapping_add(1)) && !at.checked_sub(1).is_some_and(is_colon)
    };
    let at = (0..text.len()).rev().find(alone)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn read(text: &str) -> Vec<Mark<'_>> {
        parse(text.as_bytes()).unwrap().marks.into_iter().flatten().collect()
    }

    fn simple<'a>(file: &'a str, function: &'a str, level: u32) -> Mark<'a> {
        let rule = Rule { level, argument: 0, least: 0 };
        Mark { file: file.as_bytes(), function: function.as_bytes(), rule }
    }

    #[test]
    fn marks_are_read() {
        assert_eq!(
            read("libcrypto.so.3:EVP_CipherUpdate@2"),
            [simple("libcrypto.so.3", "EVP_CipherUpdate", 2)]
        );
        assert_eq!(
            read(" /lib/a:f ;\tb:ns::g@3;"),
            [simple("/lib/a", "f", 1), simple("b", "ns::g", 3)]
        );
        let text = "# marks\n\n/lib/b#c.so:g  # why: because\nx:h@2\n";
        assert_eq!(read(text), [simple("/lib/b#c.so", "g", 1), simple("x", "h", 2)]);
        let rule = Rule { level: 2, argument: 5, least: 1024 };
        assert_eq!(read("a:f@2,min-arg5=1024"), [Mark { rule, ..simple("a", "f", 2) }]);
        assert!(parse(b"a:f;report").unwrap().report);
        assert!(!parse(b"a:f").unwrap().report);
    }

    #[test]
    fn nonsense_is_named_fails() {
        let named = |text: &'static str| parse(text.as_bytes()).unwrap_err();
        assert_eq!(named("f"), Invalid::Function(b"f"));
        assert_eq!(named("a:f; :g"), Invalid::Function(b":g"));
        assert_eq!(named("a:"), Invalid::Function(b"a:"));
        assert_eq!(named("a:+0x10@2"), Invalid::Offset(b"a:+0x10@2"));
        for level in ["0", "4", "+2", "", "2@1"] {
            let text = std::format!("a:f@{level}");
            assert_eq!(parse(text.as_bytes()).unwrap_err(), Invalid::Level(level.as_bytes()));
        }
        for option in ["min-arg0=1", "min-arg7=1", "min-arg1", "min-arg1=0", "max-arg1=2", ""] {
            let text = std::format!("a:f@1,{option}");
            assert_eq!(parse(text.as_bytes()).unwrap_err(), Invalid::Option(option.as_bytes()));
        }
        assert_eq!(named(" ; # nothing"), Invalid::Nothing);
        assert_eq!(named("report"), Invalid::Nothing);
        let text: std::string::String = (0..=MARKS_MAX).map(|i| std::format!("a:f{i};")).collect();
        assert_eq!(parse(text.as_bytes()).unwrap_err(), Invalid::TooMany(b"a:f32"));
    }
}
