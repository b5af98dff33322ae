// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread's side of `protocol`: one exchange with the daemon, without allocation.
//!
//! It runs in a thread of the application, which may take signals, have few file descriptors left,
//! or be a set-user-ID program: so the descriptors are close-on-exec from the start and closed
//! again at once, nothing raises SIGPIPE, all waiting is bounded, and interrupted calls are
//! repeated a bounded number of times.

use crate::fd::Fd;
use crate::page;
use crate::protocol::{
    MAGIC, MESSAGE_BYTES, Message, OP_REGISTER, Reply, Request, SOCKET, SOCKET_ENV, TIMEOUT_MS,
};
use crate::unnoticed::errno;
use core::ffi::CStr;
use core::mem::{MaybeUninit, offset_of};

/// [`SOCKET_ENV`] as C has it.
const SOCKET_NAME: &CStr = c"TURBOLANE_HINT_SOCKET";
const _: () = assert!(SOCKET_NAME.count_bytes() == SOCKET_ENV.len());

/// A slot was given.
pub(crate) struct Registered {
    pub slot: u32,
    pub run_id: u32,
    pub board_fd: Fd,
    pub area_fd: Fd,
}

/// Why there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No scheduler listens, or it refused.
    Refused,
    /// A process listens but does not answer in time.
    Hangs,
}

/// Interrupted system calls are repeated this often: a profiler's signals may hit each of a few.
const INTERRUPTED_MAX: usize = 16;

/// Asks the daemon for a slot for the calling thread.
pub(crate) fn register() -> Result<Registered, Failure> {
    let socket = connect()?;
    // SAFETY: no arguments, cannot fail.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) };
    let request = Request {
        magic: MAGIC,
        abi: page::ABI,
        op: OP_REGISTER,
        tid: u32::try_from(tid).map_err(|_| Failure::Refused)?,
    };
    let message = request.to_bytes();
    // SAFETY: reads the local message.
    let sent = retried(|| unsafe {
        let bytes = message.as_ptr().cast();
        libc::send(socket.raw(), bytes, MESSAGE_BYTES, libc::MSG_NOSIGNAL)
    })?;
    if sent != MESSAGE_BYTES as isize {
        return Err(Failure::Refused);
    }
    let (reply, fds) = receive(&socket)?;
    let Reply { magic, status, slot, run_id } = Reply::from_bytes(&reply);
    match fds {
        [Some(board_fd), Some(area_fd)] if magic == MAGIC && status == 0 && run_id != 0 => {
            Ok(Registered { slot, run_id, board_fd, area_fd })
        }
        _ => Err(Failure::Refused),
    }
}

fn connect() -> Result<Fd, Failure> {
    let (address, address_bytes) = address()?;
    // SAFETY: no memory of ours.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
    let socket = Fd::new(fd).ok_or(Failure::Refused)?;
    set_timeout(&socket, libc::SO_RCVTIMEO)?;
    set_timeout(&socket, libc::SO_SNDTIMEO)?; // connect waits for it too, if the queue is full
    // SAFETY: reads the local address, whose length is given.
    retried(|| unsafe {
        let address = (&raw const address).cast();
        libc::connect(socket.raw(), address, address_bytes) as isize
    })?;
    Ok(socket)
}

/// The daemon's address: the environment's, unless the program runs with another user's rights.
fn address() -> Result<(libc::sockaddr_un, libc::socklen_t), Failure> {
    environment::secure(SOCKET_NAME, |value| address_of(value.unwrap_or(SOCKET.as_bytes())))
}

fn address_of(path: &[u8]) -> Result<(libc::sockaddr_un, libc::socklen_t), Failure> {
    let mut address =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    if path.is_empty() || path.len() >= address.sun_path.len() {
        return Err(Failure::Refused);
    }
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = from.cast_signed();
    }
    let bytes = offset_of!(libc::sockaddr_un, sun_path) + path.len() + 1;
    Ok((address, bytes as libc::socklen_t))
}

fn set_timeout(socket: &Fd, option: libc::c_int) -> Result<(), Failure> {
    let timeout = libc::timeval { tv_sec: 0, tv_usec: TIMEOUT_MS as libc::suseconds_t * 1000 };
    // SAFETY: reads the local structure, whose size is given.
    let result = unsafe {
        libc::setsockopt(
            socket.raw(),
            libc::SOL_SOCKET,
            option,
            (&raw const timeout).cast(),
            size_of::<libc::timeval>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(Failure::Refused) }
}

/// The descriptors that come with a reply: the board's and the area's.
type Descriptors = [Option<Fd>; 2];

/// The reply and the descriptors that came along. Any beyond the second are closed: the
/// buffer holds four, so that a third one is seen rather than cut off and lost.
fn receive(socket: &Fd) -> Result<(Message, Descriptors), Failure> {
    let mut message = Message::default();
    let mut part = libc::iovec { iov_base: message.as_mut_ptr().cast(), iov_len: MESSAGE_BYTES };
    let mut control = MaybeUninit::<[libc::cmsghdr; 4]>::zeroed();
    // SAFETY: msghdr is plain data, all zeroes is a value of it.
    let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: arithmetic only.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(4 * size_of::<i32>() as u32) } as _;
    // SAFETY: the header points to the local buffers above, with their sizes (64 bytes of control
    // buffer are more than the 32 that are offered).
    let received =
        retried(|| unsafe { libc::recvmsg(socket.raw(), &mut header, libc::MSG_CMSG_CLOEXEC) })?;
    // SAFETY: recvmsg has filled in the header.
    let fds = unsafe { descriptors(&header) };
    match received == MESSAGE_BYTES as isize {
        true => Ok((message, fds)),
        false => Err(Failure::Refused),
    }
}

/// Takes ownership of the descriptors in a received message; returns the first two.
///
/// # Safety
/// `header` must be as `recvmsg` left it, and not looked at before.
unsafe fn descriptors(header: &libc::msghdr) -> Descriptors {
    let mut kept = Descriptors::default();
    // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR walk the control buffer within the length that recvmsg
    // has set; an SCM_RIGHTS entry holds descriptors, all new and ours.
    unsafe {
        let mut entry = libc::CMSG_FIRSTHDR(header);
        while let Some(control) = entry.as_ref() {
            if control.cmsg_level == libc::SOL_SOCKET && control.cmsg_type == libc::SCM_RIGHTS {
                #[allow(clippy::unnecessary_cast)] // with musl it is a u32
                let bytes = control.cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data: *const i32 = libc::CMSG_DATA(entry).cast();
                for i in 0..bytes / size_of::<i32>() {
                    let fd = Fd::new(data.add(i).read_unaligned());
                    if let Some(free) = kept.iter_mut().find(|place| place.is_none()) {
                        *free = fd;
                    }
                }
            }
            entry = libc::CMSG_NXTHDR(header, entry);
        }
    }
    kept
}

/// Repeats a system call while signals interrupt it. A call that ran into the socket's timeout
/// fails with EAGAIN.
fn retried(mut call: impl FnMut() -> isize) -> Result<isize, Failure> {
    for _ in 0..INTERRUPTED_MAX {
        let result = call();
        if result >= 0 {
            return Ok(result);
        }
        match errno() {
            libc::EINTR => continue,
            libc::EAGAIN => return Err(Failure::Hangs),
            _ => return Err(Failure::Refused),
        }
    }
    Err(Failure::Hangs)
}
