// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes the kernel proper out of a bootable `vmlinuz`, as the kernel tree's
//! `scripts/extract-vmlinux` does: try each place where a compressed stream
//! could begin until one unpacks to an ELF file.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// The compressions Debian has used, each with its magic number.
const FORMATS: [(&[u8], &str); 3] =
    [(b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"\x1f\x8b\x08", "gzip")];

/// Writes the kernel inside `packed` to `to`.
pub(crate) fn extract(packed: &Path, to: &Path) -> Result<()> {
    let image = fs::read(packed).with_context(|| format!("cannot read {}", packed.display()))?;
    for (magic, program) in FORMATS {
        for start in occurrences(&image, magic) {
            unpack(program, &image[start..], to)?;
            if is_elf(to) {
                return Ok(());
            }
        }
    }
    bail!("found no kernel inside {}: unknown compression", packed.display())
}

fn occurrences<'a>(bytes: &'a [u8], magic: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let windows = bytes.windows(magic.len()).enumerate();
    windows.filter(move |(_, window)| *window == magic).map(|(start, _)| start)
}

/// Unpacks what it can: the stream is followed by other data, about which the
/// program complains, so its exit code says nothing.
fn unpack(program: &str, stream: &[u8], to: &Path) -> Result<()> {
    let out = File::create(to).with_context(|| format!("cannot write {}", to.display()))?;
    let mut child: Child = Command::new(program)
        .args(["-d", "-c"])
        .stdin(Stdio::piped())
        .stdout(out)
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {program}; is it installed?"))?;
    let mut input = child.stdin.take().context("no pipe to the unpacker")?;
    match input.write_all(stream) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            return Err(error).with_context(|| format!("cannot feed {program}"));
        }
        _ => drop(input),
    }
    child.wait().with_context(|| format!("cannot wait for {program}"))?;
    Ok(())
}

fn is_elf(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_stream_among_other_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = [b"\x7fELF", &[7u8; 5000][..]].concat();
        let raw = dir.path().join("raw");
        fs::write(&raw, &kernel).unwrap();
        let packed = Command::new("gzip").arg("-c").arg(&raw).output().unwrap();
        // A false magic in front, the stream, and a tail as in a real image.
        let image = [b"stub\x1f\x8b\x08stub", &packed.stdout[..], &[0u8; 64]].concat();
        let vmlinuz = dir.path().join("vmlinuz");
        fs::write(&vmlinuz, image).unwrap();
        let to = dir.path().join("vmlinux");
        extract(&vmlinuz, &to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), kernel);
    }

    #[test]
    fn says_so_when_there_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let vmlinuz = dir.path().join("vmlinuz");
        fs::write(&vmlinuz, "nothing here").unwrap();
        assert!(extract(&vmlinuz, &dir.path().join("to")).is_err());
    }
}
