// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a file can be opened without waiting for someone else.
//!
//! **Problem.** A file system that a user's program serves (FUSE), or a network, may never answer,
//! and whoever waits for it cannot be killed. In a namespace of their own users can mount FUSE, and
//! an overlay on top of it; and between a look and an open they can map another file.
//!
//! **Idea.** The file is found first, without any effect (`O_PATH`), and held. The kernel says on
//! which mount it is (/proc/self/fdinfo) without asking the file system, and of which kind that
//! mount is. Overlays count only if the machine's first process has them mounted too, as it has the
//! roots of containers.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Kinds whose files the kernel alone changes.
pub(super) const LOCAL: [&str; 15] = [
    "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "ramfs", "rootfs", "squashfs",
    "erofs", "iso9660", "vfat", "zfs", "bcachefs",
];
/// Files of other file systems, which may be of any kind.
pub(super) const OVERLAY: &str = "overlay";

/// Mounts are listed in so many bytes at most: users may make any number in their namespaces.
const BYTES_MAX: u64 = 1 << 20;

/// Device of a mount, `major:minor` as mountinfo has it.
type Device = String;

/// Overlays of the machine itself.
#[derive(Default)]
pub(super) struct Overlays(HashSet<Device>);

impl Overlays {
    /// As they are now; none if that cannot be said.
    pub(super) fn now() -> Self {
        let text = mountinfo(Path::new("/proc/1")).unwrap_or_default();
        let mounts = text.lines().filter_map(mount);
        Overlays(mounts.filter(|(_, _, kind)| *kind == OVERLAY).map(|(_, d, _)| d.into()).collect())
    }
}

/// The mounts that a process sees whose files can be opened.
pub(super) struct Mounts(HashSet<u64>);

impl Mounts {
    /// `None` if they are too many, or it has ended.
    pub(super) fn of(process: &Path, overlays: &Overlays) -> Option<Self> {
        Some(Self::parse(&mountinfo(process)?, overlays))
    }

    fn parse(text: &str, overlays: &Overlays) -> Self {
        let is_local = |device: &str, kind: &str| {
            LOCAL.contains(&kind) || (kind == OVERLAY && overlays.0.contains(device))
        };
        let mounts = text.lines().filter_map(mount);
        Mounts(mounts.filter(|(_, d, kind)| is_local(d, kind)).map(|(id, ..)| id).collect())
    }

    /// Whether a file that was found is on one of them.
    pub(super) fn have(&self, found: &File) -> bool {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", found.as_raw_fd()));
        info.ok().and_then(|info| mount_id(&info)).is_some_and(|id| self.0.contains(&id))
    }
}

fn mountinfo(process: &Path) -> Option<String> {
    let mut text = String::new();
    let file = File::open(process.join("mountinfo")).ok()?;
    file.take(BYTES_MAX + 1).read_to_string(&mut text).ok()?;
    (text.len() as u64 <= BYTES_MAX).then_some(text)
}

/// Number, device and kind of a mount, from its line.
pub(super) fn mount(line: &str) -> Option<(u64, &str, &str)> {
    let mut fields = line.split(' ');
    let id = fields.next()?.parse().ok()?;
    let device = fields.nth(1)?;
    let kind = fields.skip_while(|field| *field != "-").nth(1)?;
    Some((id, device, kind))
}

fn mount_id(fdinfo: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kinds whose files others may change or withhold are not opened, nor overlays that only a
    /// user has; numbers of mounts are found by their lines.
    #[test]
    fn only_local_mounts() {
        let line = |id: u64, device: &str, kind: &str| {
            format!("{id} 35 {device} / /mnt rw,noatime shared:1 - {kind} /dev/root rw\n")
        };
        let text = [
            line(1, "254:16", "ext4"),
            line(2, "0:50", "fuse.sshfs"),
            line(3, "0:51", "nfs4"),
            line(4, "0:52", OVERLAY),
            line(5, "0:53", OVERLAY),
            "6 35 0:54 / / rw\n\n".to_owned(),
        ];
        let mounts = Mounts::parse(&text.concat(), &Overlays(HashSet::from(["0:53".to_owned()])));
        let mut ids: Vec<u64> = mounts.0.into_iter().collect();
        ids.sort_unstable();
        assert_eq!(ids, [1, 5]);
        assert_eq!(mount_id("pos:\t0\nflags:\t02000000\nmnt_id:\t29\nino:\t7\n"), Some(29));
        assert_eq!(mount_id("pos:\t0\n"), None);
    }

    /// A file of /proc is on a mount that is not local, and found without being opened.
    #[test]
    fn a_file_knows_its_mount() {
        use std::os::unix::fs::OpenOptionsExt;
        let find =
            |path: &str| File::options().read(true).custom_flags(libc::O_PATH).open(path).unwrap();
        let mounts = Mounts::of(Path::new("/proc/self"), &Overlays::default()).unwrap();
        assert!(!mounts.have(&find("/proc/self/maps")));
        let own = find("/proc/self/exe");
        let fdinfo = format!("/proc/self/fdinfo/{}", own.as_raw_fd());
        let id = mount_id(&fs::read_to_string(fdinfo).unwrap()).unwrap();
        let info = mountinfo(Path::new("/proc/self")).unwrap();
        let (.., kind) = info.lines().filter_map(mount).find(|(other, ..)| *other == id).unwrap();
        assert_eq!(mounts.have(&own), LOCAL.contains(&kind), "{kind}");
    }
}
