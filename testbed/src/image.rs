// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guests' disk: a Debian root as one read-only squashfs file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::{self, Cache};
use crate::kernel::Kernel;
use crate::versions::Guest;
use crate::{debian, process};

/// Raised when the way the image is made changes, so that old ones are rebuilt.
const RECIPE: &str = "2";

/// Which files of its packages a root has.
#[derive(Clone, Copy)]
pub(crate) enum Files {
    /// Those that programs read.
    Read,
    /// All, as on a user's machine: where pages are left out, dpkg changes its lists of other
    /// packages when one is installed.
    All,
}

/// Returns the disk image, building it when it is missing.
pub(crate) fn prepare(
    cache: &Cache,
    pins: &Guest,
    kernel: &Kernel,
    files: Files,
) -> Result<PathBuf> {
    let packages = pins.packages.join(",");
    let left_out: &[&str] = match files {
        Files::Read => &debian::LEFT_OUT,
        Files::All => &[],
    };
    let inputs = [RECIPE, &pins.suite, &packages, &kernel.release, &left_out.concat()];
    let what = format!("guest image (Debian {}, about a minute)", pins.suite);
    cache.get("image", &inputs, &what, |image| {
        let root = image.with_extension("root");
        cache::remove(&root)?;
        let log = cache.log("image");
        let built = debian::install_without(left_out, &[&pins.suite], &packages, &root, &log)
            .and_then(|()| add_modules(cache, kernel, &root))
            .and_then(|()| pack(cache, &root, image));
        // Never left behind: a failed build must not cost half a gigabyte.
        built.and(cache::remove(&root))
    })
}

/// Adds the kernel's modules, for tests that load some, and its configuration
/// where programs look for it: BPF objects with `__kconfig` variables do not
/// load without.
fn add_modules(cache: &Cache, kernel: &Kernel, root: &Path) -> Result<()> {
    let modules = root.join("usr/lib/modules");
    fs::create_dir_all(&modules).with_context(|| format!("cannot make {}", modules.display()))?;
    process::run_logged(
        Command::new("cp").arg("-r").arg(kernel.modules()).arg(&modules),
        &cache.log("modules"),
    )?;
    let boot = root.join("boot");
    fs::create_dir_all(&boot).with_context(|| format!("cannot make {}", boot.display()))?;
    let config = boot.join(format!("config-{}", kernel.release));
    fs::copy(kernel.config(), &config)
        .with_context(|| format!("cannot write {}", config.display()))?;
    process::run_logged(
        Command::new("chroot").arg(root).args(["/usr/sbin/depmod", &kernel.release]),
        &cache.log("depmod"),
    )
}

fn pack(cache: &Cache, root: &Path, image: &Path) -> Result<()> {
    process::run_logged(
        Command::new("mksquashfs")
            .args([root, image])
            // lz4: a third larger than zstd, and far cheaper to read under TCG.
            .args(["-comp", "lz4", "-noappend", "-no-progress"])
            .args(["-all-time", "0", "-mkfs-time", "0"]),
        &cache.log("squashfs"),
    )
}
