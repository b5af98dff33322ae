// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the standard library does not offer: a listening socket that is never open to others, and
//! who has connected to it.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

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
    let mut address =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    let name = path.as_os_str().as_bytes();
    if name.len() >= address.sun_path.len() || name.contains(&0) {
        let what = format!("{} is no name for a socket", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    for (to, from) in address.sun_path.iter_mut().zip(name) {
        *to = from.cast_signed();
    }
    let bytes = offset_of!(libc::sockaddr_un, sun_path) + name.len() + 1;
    Ok((address, bytes as libc::socklen_t))
}

/// The user who connected; `None` if the kernel does not say.
pub(super) fn uid_of(socket: &UnixStream) -> Option<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: writes at most the given number of bytes to the local structure.
    let result = unsafe {
        let to = (&raw mut peer).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &mut bytes)
    };
    (result == 0).then_some(peer.uid)
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
