// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the daemon hands an area to the keeper: a message of its number with its descriptor, and a
//! byte back. The end of the socket is the daemon's end.
//!
//! The daemon waits for the byte, for a second at most: only then does the keeper know the area,
//! and the process may be answered.

use std::io::{self, Error};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// The keeper is forked and does nothing else; a second is for machines that swap.
const PATIENCE_S: libc::time_t = 1;

/// Both ends: the keeper's and the daemon's.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: writes two descriptors, which are new and ours; reads the local structure, whose size
    // is given.
    unsafe {
        if libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) != 0 {
            return Err(Error::last_os_error());
        }
        let patience = libc::timeval { tv_sec: PATIENCE_S, tv_usec: 0 };
        for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            let bytes = size_of_val(&patience) as libc::socklen_t;
            let value = (&raw const patience).cast();
            libc::setsockopt(fds[1], libc::SOL_SOCKET, option, value, bytes);
        }
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

/// Hands over an area, and waits until it has arrived.
pub(super) fn send(socket: &OwnedFd, number: u32, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut number = number;
    let mut part = libc::iovec { iov_base: (&raw mut number).cast(), iov_len: size_of::<u32>() };
    let mut control = [0u64; 4];
    let mut confirmed = 0u8;
    // SAFETY: msghdr is plain data, all zeroes is a value of it. The header points to local buffers
    // with their sizes; the control buffer is aligned as cmsghdr asks, and holds the 24 bytes of
    // one descriptor.
    let is_done = unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as _;
        let entry = libc::CMSG_FIRSTHDR(&header);
        (*entry).cmsg_level = libc::SOL_SOCKET;
        (*entry).cmsg_type = libc::SCM_RIGHTS;
        (*entry).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
        libc::CMSG_DATA(entry).cast::<i32>().write_unaligned(fd.as_raw_fd());
        libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_NOSIGNAL) > 0
            && libc::recv(socket.as_raw_fd(), (&raw mut confirmed).cast(), 1, 0) == 1
    };
    if is_done { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}

/// The next area; `None` once no process holds the other end any more.
pub(super) fn receive(socket: &OwnedFd) -> Option<(u32, OwnedFd)> {
    loop {
        let mut number = 0u32;
        let mut control = [0u64; 4];
        let mut part =
            libc::iovec { iov_base: (&raw mut number).cast(), iov_len: size_of::<u32>() };
        // SAFETY: as in `send`; a descriptor that came along is new and ours.
        let (bytes, fd) = unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_iov = &mut part;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = size_of_val(&control) as _;
            let bytes = libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC);
            let entry = if bytes > 0 { libc::CMSG_FIRSTHDR(&header) } else { ptr::null_mut() };
            let fd =
                (!entry.is_null()).then(|| libc::CMSG_DATA(entry).cast::<i32>().read_unaligned());
            (bytes, fd.map(|fd| OwnedFd::from_raw_fd(fd)))
        };
        match (bytes, fd) {
            (1.., Some(fd)) => return Some((number, fd)),
            (1.., None) => confirm(socket), // the descriptor did not fit in
            (0, _) => return None,
            _ if Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return None,
        }
    }
}

/// Says that the area is known.
pub(super) fn confirm(socket: &OwnedFd) {
    // SAFETY: reads one byte.
    unsafe { libc::send(socket.as_raw_fd(), c"".as_ptr().cast(), 1, libc::MSG_NOSIGNAL) };
}
