// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the standard library does not offer: a listening socket that is never open to others, and
//! who has connected to it.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use crate::unix_socket;

/// Connections that wait to be accepted.
const BACKLOG: libc::c_int = 128;

/// A socket at `path` that its owner alone can open, from its first moment: `bind` gives the file
/// the mode of the socket (net/unix/af_unix.c), so that there is no time before a chmod.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory of ours.
    let fd = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: a new descriptor that no one else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: no memory of ours.
    check(unsafe { libc::fchmod(fd, 0o600) })?;
    let (address, address_bytes) = address(path)?;
    // SAFETY: reads the local address, whose length is given.
    check(unsafe { libc::bind(fd, (&raw const address).cast(), address_bytes) })?;
    // SAFETY: no memory of ours.
    check(unsafe { libc::listen(fd, BACKLOG) })?;
    Ok(UnixListener::from(socket))
}

fn address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    unix_socket::address(path).ok_or_else(|| {
        let what = format!("{} is no name for a socket", path.display());
        io::Error::new(io::ErrorKind::InvalidInput, what)
    })
}

/// The user who connected; `None` if the kernel does not say.
pub(super) fn uid_of(socket: &UnixStream) -> Option<u32> {
    unix_socket::peer(socket).map(|peer| peer.uid)
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
