// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control groups that rules are for.
//!
//! A group is named by its path, whoever owns it: who writes a rule for it knows it. A unit is
//! named by its last name alone, and is in slices that belong to root. What is below a service is
//! no unit of the system: systemd gives a user the group `user@UID.service`, where the user makes
//! groups of any name, and a container has services of its own.
//!
//! A unit that is not there now is found when it has come: the kernel reports new groups.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use hw::cgroups::{GroupId, folder_id, units_below};
use policy::Rule;

use crate::config::{Scope, Selector};

/// A control group with a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Which one it is: a group that is made anew under its name is another.
    pub id: GroupId,
    /// Its rule, and its number in [`Scope::rules`].
    pub rule: Rule,
    pub number: usize,
}

/// The groups below `root` that have a rule; slices belong to `user`, root. A path counts before a
/// unit.
///
/// # Errors
/// When it is not known which groups there are.
pub(crate) fn find(root: &Path, user: u32, scope: &Scope) -> io::Result<BTreeMap<PathBuf, Found>> {
    let mut found = BTreeMap::new();
    let rules: Vec<(usize, &Selector, Rule)> = scope
        .rules()
        .enumerate()
        .map(|(number, (selector, rule))| (number, selector, rule))
        .collect();
    let mut put = |path: PathBuf, number, rule| -> io::Result<()> {
        if let Some(id) = folder_id(&path)? {
            found.insert(path, Found { id, rule, number });
        }
        Ok(())
    };
    if rules.iter().any(|(_, selector, _)| matches!(selector, Selector::Unit(_))) {
        for path in units_below(root, user)? {
            let name = path.file_name().and_then(|name| name.to_str());
            let is_named = |selector: &Selector| match selector {
                Selector::Unit(unit) => Some(&**unit) == name,
                _ => false,
            };
            let rule = rules.iter().find(|(_, selector, _)| is_named(selector));
            if let Some((number, _, rule)) = rule {
                put(path, *number, *rule)?;
            }
        }
    }
    for (number, selector, rule) in rules {
        if let Selector::Group(path) = selector {
            put(root.join(path.trim_start_matches('/')), number, rule)?;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn folders(paths: &[&str]) -> (tempfile::TempDir, u32) {
        let dir = tempfile::tempdir().unwrap();
        paths.iter().for_each(|path| fs::create_dir_all(dir.path().join(path)).unwrap());
        let user = fs::metadata(dir.path()).unwrap().uid();
        (dir, user)
    }

    fn paths(dir: &Path, found: &BTreeMap<PathBuf, Found>) -> Vec<(String, Rule, usize)> {
        let short = |path: &Path| path.strip_prefix(dir).unwrap().display().to_string();
        found.iter().map(|(path, found)| (short(path), found.rule, found.number)).collect()
    }

    /// Units are found in slices of every depth, groups by their paths alone; what is not there is
    /// not found.
    #[test]
    fn groups_of_rules_are_found() {
        let (dir, user) =
            folders(&["system.slice/system-a.slice/a.service", "x/a.service", "my-a.service", "y"]);
        let scope = Scope {
            wide: "unit:a@1.service@1,unit:a.service@1,cgroup:/y,cgroup:/z,comm:y".parse().unwrap(),
            scalar: "cgroup:/x/a.service,unit:no".parse().unwrap(),
            alone: "unit:system.slice,cgroup:/".parse().unwrap(),
        };
        let expected = [
            ("", Rule::Alone, 8),
            ("system.slice", Rule::Alone, 7),
            ("system.slice/system-a.slice/a.service", Rule::Wide(1), 1),
            // by its path
            ("x/a.service", Rule::Scalar, 5),
            ("y", Rule::Wide(2), 2),
        ];
        let expected = expected.map(|(path, rule, number)| (path.to_owned(), rule, number));
        assert_eq!(paths(dir.path(), &find(dir.path(), user, &scope).unwrap()), expected);
    }

    /// In a service there are groups of those who run there, and in a slice of another user that
    /// user's: no unit of the system is in either.
    #[test]
    fn units_of_others_fail() {
        let (dir, user) = folders(&[
            "system.slice/user@7.service/app.slice/a.service",
            "machine.slice/machine-b.scope/system.slice/a.service",
            "system.slice/a.service/a.service",
        ]);
        let scope = Scope { wide: "unit:a".parse().unwrap(), ..Scope::default() };
        let only = [("system.slice/a.service".to_owned(), Rule::Wide(2), 0)];
        assert_eq!(paths(dir.path(), &find(dir.path(), user, &scope).unwrap()), only);
        let none = find(dir.path(), user + 1, &scope).unwrap();
        assert!(none.is_empty(), "slices of another user");
    }

    /// What cannot be read is an error: rules of groups that are there are not taken for void.
    #[test]
    fn unreadable_groups_fail() {
        let (dir, user) = folders(&["system.slice/a.service"]);
        let scope = Scope { wide: "unit:a".parse().unwrap(), ..Scope::default() };
        let file = dir.path().join("system.slice/file");
        fs::write(&file, "").unwrap();
        assert_eq!(find(dir.path(), user, &scope).unwrap().len(), 1);
        assert!(find(&file, user, &scope).is_err(), "it is no folder");
        assert!(find(&dir.path().join("gone"), user, &scope).unwrap().is_empty());
    }
}
