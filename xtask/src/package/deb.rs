// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Debian package of a staged root, by dpkg's own tools.
//!
//! The command needs no library. What ours need comes from `dpkg-shlibdeps`, which reads the
//! symbols that they use. It names the packages of the machine that builds: a package that is built
//! on Debian 12 installs on 13 and later, where the libraries' new packages provide the old names;
//! one that is built on 13 does not install on 12.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{commit_time, stage};
use crate::repo;

/// The scripts and other files that dpkg keeps about the package.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Packs `root`; the file's path.
pub(super) fn pack(root: &Path, work: &Path, version: &str) -> Result<PathBuf> {
    // Beside the files, and not among them: the tarball takes the same root.
    let tree = work.join("deb");
    stage::remove(&tree)?;
    stage::run(Command::new("cp").arg("--archive").arg(root).arg(&tree))?;
    let from = repo::root().join("dist/deb");
    let deb = work.join(format!("turbolane_{version}_amd64.deb"));
    finish(&tree, &from, &SCRIPTS, version, &deb)
}

/// Packs what is below `tree`, with the control file and the scripts of the folder `from`, as
/// `deb`.
pub(super) fn finish(
    tree: &Path,
    from: &Path,
    scripts: &[&str],
    version: &str,
    deb: &Path,
) -> Result<PathBuf> {
    let files = files(tree)?;
    let work = deb.parent().context("a package is in a folder")?;
    let bytes: u64 =
        files.iter().map(|file| Ok(file.symlink_metadata()?.len())).sum::<Result<_>>()?;
    let filled = |file: &str| -> Result<String> {
        let path = from.join(file);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(text.replace("@version@", version))
    };
    let mut control = filled("control")?.replace("@size_kib@", &bytes.div_ceil(1024).to_string());
    if control.contains("@depends@") {
        control = control.replace("@depends@", &depends(&files, work)?);
    }
    let md5sums = md5sums(tree, &files)?;
    let about = tree.join("DEBIAN");
    fs::create_dir(&about).with_context(|| format!("cannot make {}", about.display()))?;
    fs::write(about.join("control"), control)?;
    fs::write(about.join("md5sums"), md5sums)?;
    for script in scripts {
        let place = about.join(script);
        fs::write(&place, filled(script)?)?;
        fs::set_permissions(&place, Permissions::from_mode(0o755))?;
    }
    if from.join("triggers").exists() {
        fs::write(about.join("triggers"), filled("triggers")?)?;
    }
    let mut build = Command::new("dpkg-deb");
    build.args(["--build", "--root-owner-group", "-Zxz"]).arg(tree).arg(deb);
    stage::run(build.env("SOURCE_DATE_EPOCH", commit_time()?))?;
    Ok(deb.to_owned())
}

/// All files and links below `root`, in the order of their names.
pub(super) fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let listed = repo::output(
        "find",
        &[&root.display().to_string(), "(", "-type", "f", "-o", "-type", "l", ")"],
    )?;
    let mut files: Vec<PathBuf> = listed.lines().map(PathBuf::from).collect();
    files.sort();
    Ok(files)
}

fn md5sums(root: &Path, files: &[PathBuf]) -> Result<String> {
    let relative = files
        .iter()
        .filter(|file| !file.is_symlink())
        .filter_map(|file| file.strip_prefix(root).ok());
    let summed = Command::new("md5sum").args(relative).current_dir(root).output()?;
    ensure!(summed.status.success(), "md5sum failed");
    Ok(String::from_utf8_lossy(&summed.stdout).into_owned())
}

/// The packages that the libraries need, as a line of `control`.
fn depends(files: &[PathBuf], work: &Path) -> Result<String> {
    // dpkg-shlibdeps wants to be in a source package.
    let source = work.join("shlibdeps");
    fs::create_dir_all(source.join("debian"))?;
    fs::write(
        source.join("debian/control"),
        "Source: turbolane\n\nPackage: turbolane\nArchitecture: amd64\n",
    )?;
    let mut command = Command::new("dpkg-shlibdeps");
    command.args(["-O", "--warnings=0"]).current_dir(&source);
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !file.is_symlink() && name.contains(".so") {
            command.arg(file);
        }
    }
    let printed = command.output().context("cannot start dpkg-shlibdeps; install dpkg-dev")?;
    let text = String::from_utf8_lossy(&printed.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    let line = line.with_context(|| {
        format!("dpkg-shlibdeps names no packages: {}", String::from_utf8_lossy(&printed.stderr))
    })?;
    ensure!(line.contains("libc6"), "dpkg-shlibdeps does not name the C library: {line}");
    Ok(line.to_owned())
}
