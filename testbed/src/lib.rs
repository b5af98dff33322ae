// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the project's test machines are fetched, built, cached and booted.
//!
//! [`prepare`] gives a Debian kernel with sched_ext and a Debian root, both
//! from the mirror that this machine already uses; [`Guest`] boots them in
//! QEMU without hardware support, runs one command, and brings its output, its
//! exit code, the kernel's log and the files in `/out` back.
//!
//! ```text
//!   versions.toml --> kernel ----+--> initramfs --+
//!                     (dpkg -x)  |    (cached)    +--> QEMU --> Outcome
//!                                +--> disk image  |
//!                     (mmdebstrap, squashfs)      |
//!   this boot's payload and command --------------+
//! ```
//!
//! Invariant: nothing remains. Guests end with this process, however it
//! ends; nothing is written outside the cache folder.

mod apt;
mod bochs;
mod boot;
mod cache;
mod cpio;
mod debian;
mod emulator;
mod files;
mod fresh;
mod guest;
mod hang;
mod image;
mod initramfs;
mod kernel;
pub mod logscan;
mod mirror;
mod module;
mod outcome;
mod peers;
mod process;
mod progress;
mod promtool;
mod python;
mod qemu;
mod versions;
mod vmlinux;

use std::path::PathBuf;

use anyhow::{Context, Result};

pub use cache::Cache;
pub use emulator::{Emulator, Silicon};
pub use fresh::{fresh_root, fresh_suites};
pub use guest::Guest;
pub use kernel::Kernel;
pub use module::{build_by_dkms, build_modules};
pub use outcome::{End, Outcome};
pub use peers::peer;
pub use process::{end_children_on_signals, last_lines, run_child};
pub use progress::Step;
pub use promtool::promtool;
pub use python::python;

/// What every guest boots from; all of it lies in the cache.
#[derive(Debug, Clone)]
pub struct Images {
    /// The kernel and its modules.
    pub kernel: Kernel,
    /// The read-only root disk, a squashfs.
    pub disk: PathBuf,
    /// The part of the initramfs that is the same for all boots.
    pub initramfs: PathBuf,
}

/// Makes sure that the cache has everything a guest boots from. The first call
/// downloads about 150 MB and takes one to two minutes; later ones take none.
///
/// # Errors
/// When the mirror cannot be reached or a tool is missing or fails.
pub fn prepare(cache: &Cache) -> Result<Images> {
    prepare_series(cache, "")
}

/// The same with the kernel of this series, as `versions.toml` names it; empty
/// is the first one.
///
/// # Errors
/// As [`prepare`], and when there is no such series.
pub fn prepare_series(cache: &Cache, series: &str) -> Result<Images> {
    let pin = &versions::Versions::pinned().guest;
    prepare_with(cache, series, pin, image::Files::Read)
}

/// The same as [`prepare`] for [`Guest::systemd`]: a root with services, on which our package has
/// never been.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_with_systemd(cache: &Cache) -> Result<Images> {
    let pin = &versions::Versions::pinned().systemd;
    prepare_with(cache, "", pin, image::Files::All)
}

fn prepare_with(
    cache: &Cache,
    series: &str,
    root: &versions::Guest,
    files: image::Files,
) -> Result<Images> {
    let pins = versions::Versions::pinned();
    let mut kernels = pins.kernels.iter();
    let kernel = kernels.find(|kernel| series.is_empty() || kernel.series == series);
    let kernel = kernel.with_context(|| {
        let known: Vec<&str> = pins.kernels.iter().map(|kernel| &*kernel.series).collect();
        format!("the testbed has no kernel {series}; there are {}", known.join(", "))
    })?;
    let kernel = kernel::prepare(cache, kernel)?;
    let disk = image::prepare(cache, root, &kernel, files)?;
    let initramfs = initramfs::prepare(cache, &kernel, &initramfs::QEMU)?;
    Ok(Images { kernel, disk, initramfs })
}
