// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bochs is built from Debian's source: the packaged builds lack SMP, or
//! panic the guest. Firmware comes from Debian's packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::patches::{PATCHES, Patch};
use crate::apt::{self, Apt};
use crate::cache::{self, Cache};
use crate::versions::{self, Versions};
use crate::{mirror, process};

/// Raised when the way an entry is made changes, so that old ones are rebuilt.
const RECIPE: &str = "2";

/// | option | why |
/// |---|---|
/// | `cpu-level=6 x86-64 avx evex protection-keys memtype long-phy-address` | a Skylake-SP |
/// | `amx` | with these, a Sapphire Rapids |
/// | `smp` | several CPUs; excludes the fast handler chains |
/// | `pci cdrom` | the disks |
/// | `nogui disable-plugins disable-docbook` | no libraries but the C++ one |
/// | the rest | speed |
const CONFIGURE: [&str; 23] = [
    "--with-nogui",
    "--enable-x86-64",
    "--enable-cpu-level=6",
    "--enable-smp",
    "--enable-avx",
    "--enable-evex",
    "--enable-amx",
    "--enable-fpu",
    "--enable-pci",
    "--enable-cdrom",
    "--enable-all-optimizations",
    "--enable-long-phy-address",
    "--enable-memtype",
    "--enable-protection-keys",
    "--disable-a20-pin",
    "--disable-docbook",
    "--disable-debugger",
    "--disable-debugger-gui",
    "--disable-assert-checks",
    "--disable-stats",
    "--disable-large-ramfile",
    "--disable-plugins",
    "CXXFLAGS=-O2",
];

/// What the emulator needs besides itself, each with its package.
const FIRMWARE: [(&str, &str); 2] = [
    ("bochsbios", "usr/share/bochs/BIOS-bochs-latest"),
    ("vgabios", "usr/share/vgabios/vgabios.bin"),
];

/// The emulator and what it boots with, in the cache.
pub(crate) struct Bochs {
    dir: PathBuf,
}

impl Bochs {
    /// The one in this folder.
    pub(super) fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.dir.join("bochs")
    }

    /// One of the files of `FIRMWARE`, by its name alone.
    pub(crate) fn firmware(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// Returns the emulator, building it when it is missing, which takes two
/// minutes of two CPUs.
pub(crate) fn prepare(cache: &Cache) -> Result<Bochs> {
    let versions = Versions::pinned();
    let pins = &versions.bochs;
    let (options, patches) = (options(), stock_patches());
    let inputs = [RECIPE, &pins.sha256, &pins.suite, &options, &patches];
    let dir = cache.get("bochs", &inputs, "Bochs (about two minutes)", |dir| {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        firmware(cache, &pins.suite, dir)?;
        compile(cache, pins, dir, |_| Ok(()), "bochs")
    })?;
    Ok(Bochs::at(dir))
}

/// How it is configured, as a cache's input.
pub(super) fn options() -> String {
    CONFIGURE.join(" ")
}

/// What is put right in it, as a cache's input.
pub(super) fn stock_patches() -> String {
    PATCHES.iter().flat_map(|p| [p.file, p.text, p.replacement]).collect()
}

/// Copies what the emulator boots with into another folder, which is made.
pub(super) fn copy_firmware(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for (_, file) in FIRMWARE {
        let name = Path::new(file).file_name().expect("a constant with a name");
        fs::copy(from.join(name), to.join(name))
            .with_context(|| format!("cannot copy {}", from.join(name).display()))?;
    }
    Ok(())
}

pub(super) fn firmware(cache: &Cache, suite: &str, dir: &Path) -> Result<()> {
    let apt = Apt::update(cache, suite)?;
    let scratch = dir.join("packages");
    fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    for (package, file) in FIRMWARE {
        let deb = apt.download(package, &scratch)?;
        apt::unpack(&deb, &scratch, &cache.log("bochs"))?;
        let name = Path::new(file).file_name().expect("a constant with a name");
        fs::copy(scratch.join(file), dir.join(name))
            .with_context(|| format!("package {package} has no {file}"))?;
    }
    cache::remove(&scratch)
}

/// Builds a target of Bochs' makefile in `dir`, whose source `change` may have changed beyond what
/// is put right in every build.
pub(super) fn compile(
    cache: &Cache,
    pins: &versions::Bochs,
    dir: &Path,
    change: impl Fn(&Path) -> Result<()>,
    target: &str,
) -> Result<()> {
    let log = cache.log("bochs");
    let source = dir.join("source");
    fs::create_dir_all(&source).with_context(|| format!("cannot make {}", source.display()))?;
    let archive = source.join("bochs.tar.xz");
    let uri = format!("{}/{}", mirror::find()?, pins.source);
    apt::fetch(&uri, &archive, &pins.sha256, &log)?;
    let mut unpack = Command::new("tar");
    unpack.args(["--extract", "--strip-components=1", "--no-same-owner", "--file"]).arg(&archive);
    process::run_logged(unpack.current_dir(&source), &log)?;
    patch(&source)?;
    change(&source)?;
    let mut configure = Command::new("./configure");
    process::run_logged(configure.args(CONFIGURE).current_dir(&source), &log)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut make = Command::new("make");
    process::run_logged(make.arg(format!("-j{jobs}")).arg(target).current_dir(&source), &log)?;
    fs::rename(source.join(target), dir.join(target))
        .with_context(|| format!("the build made no {target}"))?;
    cache::remove(&source)
}

fn patch(source: &Path) -> Result<()> {
    for Patch { file, text, replacement } in PATCHES {
        let path = source.join(file);
        let code =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(
            code.contains(text),
            "Bochs' {file} has no \"{text}\": look whether the patch is still needed"
        );
        fs::write(&path, code.replace(text, replacement))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
