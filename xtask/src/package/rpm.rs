// SPDX-License-Identifier: MIT OR Apache-2.0
//! The package for Fedora, RHEL, SUSE and others, of the same staged root, by rpm's own tools.
//!
//! There libraries are in /usr/lib64, and completions for zsh in `site-functions`. What the
//! libraries need is found by rpmbuild; the command needs nothing. On a machine
//! without rpm, the other packages are built.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{commit_time, cycle, stage};
use crate::repo;

const SPEC: &str = "dist/rpm/turbolane.spec";

/// Folders that are elsewhere than in Debian.
const MOVED: [(&str, &str); 2] = [
    (stage::LIBRARIES, "usr/lib64"),
    ("usr/share/zsh/vendor-completions", "usr/share/zsh/site-functions"),
];

/// Whether this machine has what builds and checks such packages.
pub(super) fn is_possible() -> bool {
    Command::new("rpmbuild").arg("--version").output().is_ok_and(|done| done.status.success())
}

/// Packs `root`; the file's path.
pub(super) fn pack(root: &Path, work: &Path, version: &str) -> Result<PathBuf> {
    let top = work.join("rpm");
    stage::remove(&top)?;
    fs::create_dir_all(&top).with_context(|| format!("cannot make {}", top.display()))?;
    let tree = top.join("root");
    stage::run(Command::new("cp").arg("--archive").arg(root).arg(&tree))?;
    for (debian, other) in MOVED {
        fs::rename(tree.join(debian), tree.join(other))
            .with_context(|| format!("cannot move {debian}"))?;
    }
    let pc = tree.join("usr/lib64/pkgconfig/turbolane.pc");
    let text = fs::read_to_string(&pc).with_context(|| format!("cannot read {}", pc.display()))?;
    fs::write(&pc, text.replace(&format!("/{}", stage::LIBRARIES), "/usr/lib64"))?;
    let (list, spec) = (top.join("files"), top.join("turbolane.spec"));
    fs::write(&list, listed(&super::deb::files(&tree)?, &tree))?;
    let text = fs::read_to_string(repo::root().join(SPEC))?
        .replace("@version@", version)
        .replace("@root@", &tree.display().to_string())
        .replace("@files@", &list.display().to_string());
    fs::write(&spec, text)?;
    let mut build = Command::new("rpmbuild");
    build.args(["-bb", "--target", "x86_64", "--define"]);
    build.arg(format!("_topdir {}", top.display())).arg(&spec);
    stage::run(build.env("SOURCE_DATE_EPOCH", commit_time()?))?;
    let name = format!("turbolane-{version}-1.x86_64.rpm");
    let rpm = work.join(&name);
    fs::rename(top.join("RPMS/x86_64").join(&name), &rpm)
        .with_context(|| format!("rpmbuild made no {name}"))?;
    stage::remove(&top)?;
    Ok(rpm)
}

/// The list of files as a spec includes it, with the folders that are ours alone.
fn listed(files: &[PathBuf], root: &Path) -> String {
    let files: Vec<&Path> = files.iter().filter_map(|file| file.strip_prefix(root).ok()).collect();
    let above = files.iter().flat_map(|file| file.ancestors().skip(1));
    let ours = |folder: &&Path| folder.components().any(|part| part.as_os_str() == "turbolane");
    let folders: BTreeSet<&Path> = above.filter(ours).collect();
    let folders = folders.iter().map(|folder| format!("%dir \"/{}\"\n", folder.display()));
    let files = files.iter().map(|file| format!("\"/{}\"\n", file.display()));
    std::iter::once("%defattr(-,root,root,-)\n".to_owned()).chain(folders).chain(files).collect()
}

/// Installs, upgrades and removes it. What is left, and what does not work, one line each.
pub(super) fn check(rpm: &Path) -> Result<Vec<String>> {
    let needs = repo::output("rpm", &["-qp", "--requires", &rpm.display().to_string()])?;
    ensure!(!needs.contains("libelf"), "the command is not linked statically: {needs}");
    cycle::differences(rpm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_listed_by_their_places() {
        let files = ["/w/root/usr/bin/turbolane", "/w/root/usr/share/doc/turbolane/x/y"];
        let list = listed(&files.map(PathBuf::from), Path::new("/w/root"));
        let expected = "%defattr(-,root,root,-)\n\
            %dir \"/usr/share/doc/turbolane\"\n\
            %dir \"/usr/share/doc/turbolane/x\"\n\
            \"/usr/bin/turbolane\"\n\
            \"/usr/share/doc/turbolane/x/y\"\n";
        assert_eq!(list, expected);
    }
}
