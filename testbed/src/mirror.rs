// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which Debian mirror this machine uses, read from its own apt configuration:
//! no host name is written down anywhere in this project.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The URI of the Debian archive that this machine is configured for.
pub(crate) fn find() -> Result<String> {
    let codename = os_codename()?;
    for path in source_files() {
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let deb822 = path.extension().is_some_and(|ext| ext == "sources");
        let found =
            if deb822 { in_deb822(&text, &codename) } else { in_one_line(&text, &codename) };
        if let Some(uri) = found {
            return Ok(uri);
        }
    }
    bail!(
        "no Debian archive for {codename} in /etc/apt/sources.list or sources.list.d; \
         the testbed takes its mirror from there: add one"
    )
}

fn source_files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "sources" || ext == "list"))
        .collect();
    files.sort();
    let main = Path::new("/etc/apt/sources.list");
    if main.exists() {
        files.insert(0, main.to_owned());
    }
    files
}

fn os_codename() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    text.lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .map(|name| name.trim_matches('"').to_owned())
        .context("/etc/os-release has no VERSION_CODENAME; the testbed needs Debian")
}

/// Looks in the stanza format. The archive proper is told from the security
/// archive and from third parties by its suite: exactly the code name.
fn in_deb822(text: &str, codename: &str) -> Option<String> {
    text.split("\n\n").find_map(|stanza| {
        let field = |name: &str| {
            stanza.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim())
            })
        };
        let has = |name: &str, word: &str| {
            field(name).is_some_and(|value| value.split_whitespace().any(|item| item == word))
        };
        let usable = has("Types", "deb")
            && has("Suites", codename)
            && has("Components", "main")
            && field("Enabled") != Some("no");
        let uri = field("URIs")?.split_whitespace().next()?;
        usable.then(|| uri.to_owned())
    })
}

/// Looks in the one-line format: `deb [options] URI SUITE COMPONENT...`.
fn in_one_line(text: &str, codename: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let rest = line.trim().strip_prefix("deb ")?.trim_start();
        let rest = match rest.strip_prefix('[') {
            Some(options) => options.split_once(']')?.1,
            None => rest,
        };
        let mut words = rest.split_whitespace();
        let (uri, suite) = (words.next()?, words.next()?);
        let usable = suite == codename && words.any(|component| component == "main");
        usable.then(|| uri.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stanzas_with_comments_security_and_third_parties() {
        let text = "Types: deb\nURIs: http://m.example/debian-security\n\
                    Suites: bookworm-security\nComponents: main\n\n\
                    Types: deb\n# a note: with a colon\nURIs: http://m.example/debian\n\
                    Suites: bookworm bookworm-updates\nComponents: main\n";
        assert_eq!(in_deb822(text, "bookworm").as_deref(), Some("http://m.example/debian"));
        assert_eq!(in_deb822(text, "trixie"), None);
    }

    #[test]
    fn disabled_stanza_is_passed_over() {
        let text = "Types: deb\nEnabled: no\nURIs: http://m.example/d\nSuites: trixie\n\
                    Components: main\n";
        assert_eq!(in_deb822(text, "trixie"), None);
    }

    #[test]
    fn lines_with_and_without_options() {
        let text = "# deb http://old.example/debian bookworm main\n\
                    deb https://x.example/apt cloud-bookworm main\n\
                    deb [arch=amd64 signed-by=/k.gpg] http://m.example/debian bookworm main contrib\n";
        assert_eq!(in_one_line(text, "bookworm").as_deref(), Some("http://m.example/debian"));
        assert_eq!(in_one_line("deb http://m.example/d bookworm contrib", "bookworm"), None);
    }
}
