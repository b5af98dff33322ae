// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel modules for the guests' kernel.
//!
//! Debian's build tools for a kernel want the C library of the kernel's own
//! release, and the kernel wants its own compiler, so modules are built in a
//! root of that release. The root is an entry of the cache and never changes:
//! the sources are copied to a folder of the caller, which is mounted into the
//! root for the time of the build, in a mount namespace that ends with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cache::{self, Cache};
use crate::kernel::Kernel;
use crate::versions::Versions;
use crate::{debian, process};

/// Raised when the way the root is made changes, so that old ones are rebuilt.
const RECIPE: &str = "1";

/// Where the sources appear in the root; an empty folder otherwise.
const SOURCES: &str = "mnt";

/// Runs inside the namespace: `$1` root, `$2` folder, then a command for the root.
const ENTER: &str = "set -e
mount -t proc proc \"$1/proc\"
mount --bind \"$2\" \"$1/mnt\"
root=$1
shift 2
exec chroot \"$root\" \"$@\"";

/// The same in a copy of the root that ends with the namespace: a layer of memory over it.
const ENTER_COPY: &str = "set -e
mount -t tmpfs tmpfs \"$2/layer\"
mkdir \"$2/layer/upper\" \"$2/layer/work\" \"$2/layer/root\"
mount -t overlay overlay -o \"lowerdir=$1,upperdir=$2/layer/upper,workdir=$2/layer/work\" \"$2/layer/root\"
root=$2/layer/root
mount -t proc proc \"$root/proc\"
mount --bind \"$2\" \"$root/mnt\"
shift 2
exec chroot \"$root\" \"$@\"";

/// In that copy: `$1` package, `$2` module, `$3` version, `$4` kernel.
const DKMS_SESSION: &str = "dpkg --install \"/mnt/$1\"
dkms status -m \"$2\" -v \"$3\" | grep .
dkms build -m \"$2\" -v \"$3\" -k \"$4\"
find /var/lib/dkms -name '*.ko' -exec cp {} /mnt/built ';'
dpkg --purge turbolane-dkms
left=$(find /usr/src /var/lib/dkms /lib/modules -name \"*$2*\")
test -z \"$left\" || { echo \"left: $left\"; exit 1; }";

/// Where that session puts modules.
const DKMS_BUILT: &str = "built";

/// Builds the modules in the folder `sources` for `kernel`, and returns the
/// `.ko` files. Needs root.
///
/// # Errors
/// When the build root cannot be made, or the build fails; the error then has
/// the compiler's last lines.
pub fn build_modules(cache: &Cache, kernel: &Kernel, sources: &Path) -> Result<Vec<PathBuf>> {
    let build = format!("/lib/modules/{}/build", kernel.release);
    enter(
        cache,
        kernel,
        sources,
        &["make", "-s", "-C", &build, "M=/mnt", "TLT_TESTS=1", "modules"],
    )?;
    let mut modules = Vec::new();
    collect(sources, &mut modules)?;
    ensure!(!modules.is_empty(), "the build made no module in {}", sources.display());
    modules.sort();
    Ok(modules)
}

/// Installs a Debian package of sources for DKMS in a copy of the build root, has DKMS build the
/// module of this name and version for `kernel`, and purges the package. Returns the `.ko` files,
/// which are beside the package. Needs root.
///
/// # Errors
/// As [`build_modules`]; and when the purge leaves something.
pub fn build_by_dkms(
    cache: &Cache,
    kernel: &Kernel,
    deb: &Path,
    (name, version): (&str, &str),
) -> Result<Vec<PathBuf>> {
    let folder = deb.parent().context("a package is in a folder")?;
    let built = folder.join(DKMS_BUILT);
    cache::remove(&built)?;
    let layer = folder.join("layer");
    for path in [&built, &layer] {
        fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    let package = deb.file_name().unwrap_or_default().to_string_lossy();
    let session = ["sh", "-ec", DKMS_SESSION, "sh", &package, name, version, &kernel.release];
    enter_by(ENTER_COPY, cache, kernel, folder, &session)?;
    let mut modules = Vec::new();
    collect(&built, &mut modules)?;
    ensure!(!modules.is_empty(), "DKMS made no module in {}", built.display());
    Ok(modules)
}

/// Runs a command in the build root of a kernel, with `folder` at /mnt.
fn enter(cache: &Cache, kernel: &Kernel, folder: &Path, what: &[&str]) -> Result<()> {
    enter_by(ENTER, cache, kernel, folder, what)
}

fn enter_by(how: &str, cache: &Cache, kernel: &Kernel, folder: &Path, what: &[&str]) -> Result<()> {
    let root = prepare(cache, kernel)?;
    let folder = folder
        .canonicalize()
        .with_context(|| format!("cannot find the sources {}", folder.display()))?;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", how, "sh"])
        .arg(&root)
        .arg(&folder)
        .args(what)
        .env("LC_ALL", "C");
    process::run_logged(&mut command, &cache.log("module")).with_context(|| {
        format!("cannot build the modules in {} for {}", folder.display(), kernel.release)
    })
}

fn collect(folder: &Path, modules: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let path = entry.context("cannot list the build")?.path();
        if path.is_dir() {
            collect(&path, modules)?;
        } else if path.extension().is_some_and(|extension| extension == "ko") {
            modules.push(path);
        }
    }
    Ok(())
}

/// Returns the build root, making it when it is missing.
fn prepare(cache: &Cache, kernel: &Kernel) -> Result<PathBuf> {
    let pins = Versions::pinned();
    let mut packages = pins.module.packages.clone();
    packages.push(format!("linux-headers-{}", kernel.release));
    let packages = packages.join(",");
    let mut suites = vec![pins.guest.suite.as_str(), kernel.suite.as_str()];
    suites.dedup();
    let sources = suites.join(",");
    let inputs = [RECIPE, &sources, &packages];
    let what = format!("build root for modules of {} (about a minute)", kernel.release);
    cache.get("module-root", &inputs, &what, |root| {
        debian::install(&suites, &packages, root, &cache.log("module-root"))?;
        fs::create_dir_all(root.join(SOURCES)).context("cannot make the folder for sources")?;
        fs::create_dir_all(root.join("proc")).context("cannot make the folder for /proc")
    })
}
