// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server's socket: how it is bound at its path, who has connected, and the messages.

use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::Path;
use std::{fs, ptr};

use turbolane_hint::protocol::{MESSAGE_BYTES, Message, Reply};

use crate::unix_socket;

/// Connections that wait to be accepted: all threads of a large program that start at once.
const BACKLOG: i32 = 1024;

/// Who has connected.
pub(super) struct Caller {
    pub(super) socket: OwnedFd,
    /// The process, in our PID namespace, and its user, as they were when it connected.
    pub(super) tgid: u32,
    pub(super) uid: u32,
}

impl Caller {
    /// A message of the right size. Longer ones are told by their true size (MSG_TRUNC).
    pub(super) fn receive(&self) -> Option<Message> {
        let mut message = Message::default();
        // SAFETY: writes at most the given number of bytes to the local message.
        let bytes = unsafe {
            let to = message.as_mut_ptr().cast();
            libc::recv(
                self.socket.as_raw_fd(),
                to,
                MESSAGE_BYTES,
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
            )
        };
        (bytes == MESSAGE_BYTES as isize).then_some(message)
    }

    /// False if the process that connected has ended: its number may be another's. True on kernels
    /// that cannot say (before 6.5).
    pub(super) fn is_there(&self) -> bool {
        const SO_PEERPIDFD: libc::c_int = 77; // asm-generic/socket.h
        let mut fd: libc::c_int = -1;
        let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: writes at most the given number of bytes to the local number.
        let result = unsafe {
            let to = (&raw mut fd).cast();
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PEERPIDFD,
                to,
                &mut bytes,
            )
        };
        if result != 0 {
            return Error::last_os_error().raw_os_error() == Some(libc::ENOPROTOOPT);
        }
        // SAFETY: a new descriptor that no one else owns.
        let process = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut ended = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one local entry.
        unsafe { libc::poll(&mut ended, 1, 0) == 0 }
    }

    /// Sends the reply, with board and area if it says yes. Who does not wait for it has had their
    /// chance.
    pub(super) fn send(&self, reply: Reply, fds: Option<[i32; 2]>) {
        let message = reply.to_bytes();
        let mut part =
            libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: MESSAGE_BYTES };
        let mut control = [0u64; 8];
        // SAFETY: msghdr is plain data, all zeroes is a value of it.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        // SAFETY: the header points to the local buffers above, with their sizes; the control
        // buffer is aligned as cmsghdr asks, and its 64 bytes hold the 24 of two descriptors.
        // sendmsg reads.
        unsafe {
            if let Some(fds) = fds {
                header.msg_control = control.as_mut_ptr().cast();
                header.msg_controllen = libc::CMSG_SPACE(size_of_val(&fds) as u32) as _;
                let entry = libc::CMSG_FIRSTHDR(&header);
                (*entry).cmsg_level = libc::SOL_SOCKET;
                (*entry).cmsg_type = libc::SCM_RIGHTS;
                (*entry).cmsg_len = libc::CMSG_LEN(size_of_val(&fds) as u32) as _;
                libc::CMSG_DATA(entry).cast::<[i32; 2]>().write_unaligned(fds);
            }
            libc::sendmsg(
                self.socket.as_raw_fd(),
                &header,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            );
        }
    }
}

impl AsRawFd for Caller {
    fn as_raw_fd(&self) -> i32 {
        self.socket.as_raw_fd()
    }
}

/// The next one who waits to be let in; `None` if the kernel does not say in our terms who it is.
pub(super) fn accept(listener: &OwnedFd) -> io::Result<Option<Caller>> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory of ours.
    let fd =
        unsafe { libc::accept4(listener.as_raw_fd(), ptr::null_mut(), ptr::null_mut(), flags) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: a new descriptor that no one else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(process_of(&socket).map(|(tgid, uid)| Caller { socket, tgid, uid }))
}

/// The peer's process, in our PID namespace, and its user, as they were when it connected; `None`
/// if it has no number there.
fn process_of(socket: &OwnedFd) -> Option<(u32, u32)> {
    let peer = unix_socket::peer(socket)?;
    let tgid = u32::try_from(peer.pid).ok().filter(|&pid| pid != 0)?;
    Some((tgid, peer.uid))
}

/// A socket that listens at `path`, for everybody.
pub(super) fn listen(path: &Path) -> io::Result<OwnedFd> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    }
    remove_stale(path)?;
    let socket = socket()?;
    let (address, address_bytes) = address(path)?;
    // SAFETY: reads the local address, whose length is given.
    let bound =
        unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), address_bytes) };
    if bound != 0 {
        return Err(Error::last_os_error());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    // SAFETY: no memory of ours.
    if unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) } != 0 {
        return Err(Error::last_os_error());
    }
    Ok(socket)
}

/// Removes the socket of a server that is gone; fails if it is not gone, or is no socket.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            let what = format!("{} exists and is not a socket", path.display());
            return Err(Error::new(ErrorKind::AlreadyExists, what));
        }
        Ok(_) => {}
    }
    let socket = socket()?;
    let (address, address_bytes) = address(path)?;
    // SAFETY: reads the local address, whose length is given.
    let connected =
        unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), address_bytes) };
    let error = Error::last_os_error();
    if connected != 0 && error.kind() == ErrorKind::ConnectionRefused {
        return fs::remove_file(path);
    }
    let what = format!("another scheduler serves hints at {}", path.display());
    Err(Error::new(ErrorKind::AddrInUse, what))
}

pub(super) fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory of ours.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: a new descriptor that no one else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(super) fn address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    unix_socket::address(path).ok_or_else(|| {
        let what = format!("{} is too long for a socket's name", path.display());
        Error::new(ErrorKind::InvalidInput, what)
    })
}
