// SPDX-License-Identifier: MIT OR Apache-2.0
//! Of Unix sockets, what the standard library does not offer and both of our sockets need: their
//! address, and who has connected.

use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The address of the socket at `path`, and its length; `None` if no socket can have that name.
pub(crate) fn address(path: &Path) -> Option<(libc::sockaddr_un, libc::socklen_t)> {
    let mut address =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    let name = path.as_os_str().as_bytes();
    if name.len() >= address.sun_path.len() || name.contains(&0) {
        return None;
    }
    for (to, from) in address.sun_path.iter_mut().zip(name) {
        *to = from.cast_signed();
    }
    let bytes = offset_of!(libc::sockaddr_un, sun_path) + name.len() + 1;
    Some((address, bytes as libc::socklen_t))
}

/// Who connected, as they were then; `None` if the kernel does not say. The process is 0 if it has
/// no number in our PID namespace.
pub(crate) fn peer(socket: &impl AsRawFd) -> Option<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: writes at most the given number of bytes to the local structure.
    let result = unsafe {
        let to = (&raw mut peer).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &mut bytes)
    };
    (result == 0).then_some(peer)
}
