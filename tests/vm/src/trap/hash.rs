// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel vector code on behalf of user code: SHA-256 and SHA-512 by sockets of AF_ALG, whose
//! results are known, while the caller holds values in its own registers.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::vectors::{hold, image, mix};
use crate::guest::Child;

/// Digests of the 4096 bytes `i * 37 + 11`, by coreutils' sha256sum and sha512sum.
const DIGESTS: [(&str, &str); 2] = [
    ("sha256", "4e441a3533bb2c10cd5649981d395744213e09a336746b5a3458fee4057205ec"),
    (
        "sha512",
        "dfa11c3bc678ff101b886fe62705d84e6c7d7b9dbebea792eba5543ed900fe40\
         7079a6960ce85b194056b3dafc67e051fe9f3196e055a348a894b4f739451b4a",
    ),
];

/// A process that hashes; killed when dropped.
pub struct Hashing {
    child: Child,
}

impl Hashing {
    /// Starts one, for this time.
    pub fn start(time: Duration) -> Result<Self> {
        // By hand: in the guest the kernel looks for modprobe in another root.
        let loaded = Command::new("modprobe").arg("algif_hash").status()?;
        ensure!(loaded.success(), "algif_hash does not load");
        let child = Child::fork(move || {
            if let Err(error) = run(time) {
                println!("hash: {error:#}");
                // SAFETY: ends the child.
                unsafe { libc::_exit(1) };
            }
        })?;
        Ok(Hashing { child })
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Result<()> {
        let code = self.child.wait()?;
        ensure!(code == 0, "the kernel's hashes, or registers over them, were wrong ({code})");
        Ok(())
    }
}

fn run(time: Duration) -> Result<()> {
    let input: Vec<u8> = (0..4096_u32).map(|i| (i * 37 + 11) as u8).collect();
    let sockets = [operation("sha256")?, operation("sha512")?];
    let start = Instant::now();
    for round in 0.. {
        let (name, digest) = DIGESTS[round % 2];
        let got = digest_of(&sockets[round % 2], &input, round as u64)?;
        ensure!(got == digest, "{name} is {got}");
        if start.elapsed() > time {
            return Ok(());
        }
    }
    Ok(())
}

/// A socket that takes data and gives their hash.
fn operation(name: &str) -> Result<OwnedFd> {
    // SAFETY: an all-zero sockaddr_alg is valid, and the strings fit with their ends.
    unsafe {
        let mut address: libc::sockaddr_alg = std::mem::zeroed();
        address.salg_family = libc::AF_ALG as u16;
        address.salg_type[..4].copy_from_slice(b"hash");
        address.salg_name[..name.len()].copy_from_slice(name.as_bytes());
        let socket = libc::socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0);
        ensure!(socket >= 0, "no AF_ALG in this kernel");
        let socket = OwnedFd::from_raw_fd(socket);
        let bound = libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as u32,
        );
        ensure!(bound == 0, "the kernel has no {name}: {}", std::io::Error::last_os_error());
        let operation =
            libc::accept(socket.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut());
        ensure!(operation >= 0, "AF_ALG: {}", std::io::Error::last_os_error());
        Ok(OwnedFd::from_raw_fd(operation))
    }
}

/// Sends the data and reads the digest back with values in the registers: the kernel finishes the
/// hash when it is read.
fn digest_of(socket: &OwnedFd, data: &[u8], seed: u64) -> Result<String> {
    let fd = socket.as_raw_fd();
    // SAFETY: sends our own bytes.
    let sent = unsafe { libc::send(fd, data.as_ptr().cast(), data.len(), libc::MSG_MORE) };
    ensure!(sent == data.len() as isize, "send: {}", std::io::Error::last_os_error());
    let mut digest = [0_u8; 64];
    let held = image(mix(seed));
    let arguments = [i64::from(fd), digest.as_mut_ptr() as i64, digest.len() as i64];
    let (after, read) = hold(&held, libc::SYS_read, arguments, 1, 0);
    ensure!(after == held, "registers changed over kernel vector code");
    let read = usize::try_from(read).context("no digest")?;
    Ok(std::hint::black_box(digest)[..read].iter().map(|byte| format!("{byte:02x}")).collect())
}
