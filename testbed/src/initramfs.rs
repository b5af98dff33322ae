// SPDX-License-Identifier: MIT OR Apache-2.0
//! The initial root file system: a part that is cached (busybox, the modules
//! needed to mount the disk, our init), and a part per boot (the payload).
//! The kernel unpacks archives that follow each other.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::cpio::Archive;
use crate::guest::Guest;
use crate::kernel::Kernel;
use crate::process;

const INIT: &str = include_str!("../guest/init");

/// What [`INIT`] reads.
const PARTS: [(&str, &str); 2] = [
    ("/session", include_str!("../guest/session")),
    ("/streams", include_str!("../guest/streams")),
];

/// Has [`INIT`] boot systemd.
const SYSTEMD: &str = ".turbolane-systemd";

const BUSYBOX: &str = "/bin/busybox";

/// What the disk needs that the kernel does not have built in.
pub(crate) struct Modules {
    /// In load order.
    names: &'static [&'static str],
    /// Whether they keep their signatures.
    are_signed: bool,
}

/// In QEMU, where guests boot whose kernel insists on signatures.
pub(crate) const QEMU: Modules =
    Modules { names: &["virtio_blk", "squashfs", "overlay"], are_signed: true };

/// In Bochs, where the disk is a CD on a PC's IDE controller, and checking nine signatures is 3 s
/// of a boot.
pub(crate) const BOCHS: Modules = Modules {
    names: &[
        "scsi_common",
        "scsi_mod",
        "cdrom",
        "libata",
        "ata_piix",
        "sr_mod",
        "sd_mod",
        "squashfs",
        "overlay",
    ],
    are_signed: false,
};

/// Returns the cached part with these modules, building it when it is missing.
pub(crate) fn prepare(cache: &Cache, kernel: &Kernel, modules: &Modules) -> Result<PathBuf> {
    let busybox = fs::read(BUSYBOX)
        .with_context(|| format!("cannot read {BUSYBOX}; install the package busybox-static"))?;
    let size = busybox.len().to_string();
    let order = modules.names.join(" ");
    let kind = if modules.are_signed { "signed" } else { "unsigned" };
    let [(_, session), (_, streams)] = PARTS;
    let inputs = [INIT, session, streams, &order, &kernel.release, &size, kind];
    cache.get("initramfs", &inputs, "guest initramfs", |path| {
        let mut archive = Archive::new(create(path)?);
        archive.bytes(Path::new("/init"), 0o755, INIT.as_bytes())?;
        for (path, text) in PARTS {
            archive.bytes(Path::new(path), 0o644, text.as_bytes())?;
        }
        archive.bytes(Path::new("/bin/busybox"), 0o755, &busybox)?;
        let applets = process::output(Command::new(BUSYBOX).arg("--list"))?;
        for name in applets.lines().filter(|&name| name != "busybox") {
            archive.link(&Path::new("/bin").join(name), Path::new("busybox"))?;
        }
        for folder in ["/dev", "/proc", "/sys", "/payload"] {
            archive.folder(Path::new(folder))?;
        }
        add_modules(&mut archive, kernel, modules)?;
        archive.finish()?;
        Ok(())
    })
}

/// Adds the modules uncompressed: unpacking them here is cheaper than in the guest.
fn add_modules(
    archive: &mut Archive<impl Write>,
    kernel: &Kernel,
    modules: &Modules,
) -> Result<()> {
    let mut order = String::new();
    for name in modules.names {
        let compressed = kernel.module(name)?;
        let data = Command::new("xz")
            .args(["--decompress", "--stdout"])
            .arg(&compressed)
            .output()
            .context("cannot start xz; install the package xz-utils")?;
        anyhow::ensure!(data.status.success(), "xz cannot unpack {}", compressed.display());
        let file = format!("{name}.ko");
        let module = if modules.are_signed { &data.stdout } else { unsigned(&data.stdout) };
        archive.bytes(&Path::new("/modules").join(&file), 0o644, module)?;
        order.push_str(&file);
        order.push('\n');
    }
    archive.bytes(Path::new("/modules/order"), 0o644, order.as_bytes())
}

/// A module without the signature that may follow it: the signature, twelve bytes that end with
/// its length, and a text (`struct module_signature`).
fn unsigned(module: &[u8]) -> &[u8] {
    const INFO: usize = 12;
    let Some(signed) = module.strip_suffix(b"~Module signature appended~\n") else { return module };
    let length = signed.last_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes) as usize);
    signed.len().checked_sub(INFO + length).map_or(module, |end| &signed[..end])
}

/// Writes the cached part and this boot's payload to `path`.
pub(crate) fn with_payload(base: &Path, guest: &Guest, command: &str, path: &Path) -> Result<()> {
    let mut out = create(path)?;
    let mut cached = File::open(base).with_context(|| format!("cannot read {}", base.display()))?;
    io::copy(&mut cached, &mut out).context("cannot copy the initramfs")?;
    let mut archive = Archive::new(out);
    let root = Path::new("/payload");
    for (host, place) in &guest.payload {
        archive.tree(host, &root.join(merged(place)))?;
    }
    if guest.has_systemd {
        archive.bytes(&root.join(SYSTEMD), 0o644, b"")?;
    }
    archive.bytes(&root.join(".turbolane-command"), 0o755, command.as_bytes())?;
    archive.finish()?;
    Ok(())
}

/// Debian's `/bin`, `/sbin`, `/lib` and `/lib64` are links into `/usr`; a folder
/// of that name in the payload would hide the link and all that is behind it.
fn merged(guest: &Path) -> PathBuf {
    let guest = guest.strip_prefix("/").unwrap_or(guest);
    let linked = ["bin", "sbin", "lib", "lib64"];
    if linked.iter().any(|top| guest.starts_with(top)) {
        Path::new("usr").join(guest)
    } else {
        guest.to_owned()
    }
}

fn create(path: &Path) -> Result<BufWriter<File>> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(BufWriter::new(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_left_out() {
        const TEXT: &[u8] = b"~Module signature appended~\n";
        let signed = [b"ELF", &b"signature"[..], &[0; 8], &[0, 0, 0, 9], TEXT].concat();
        assert_eq!(unsigned(&signed), b"ELF");
        assert_eq!(unsigned(b"ELF"), b"ELF");
        // a length that is none
        let odd = [b"ELF", &[0xff; 12][..], TEXT].concat();
        assert_eq!(unsigned(&odd), odd);
    }

    #[test]
    fn merged_folders_lead_into_usr() {
        for (given, want) in [
            ("/bin/turbolane", "usr/bin/turbolane"),
            ("/usr/bin/turbolane", "usr/bin/turbolane"),
            ("/lib/modules/x.ko", "usr/lib/modules/x.ko"),
            ("/library", "library"),
        ] {
            assert_eq!(merged(Path::new(given)), Path::new(want));
        }
    }
}
