// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives threads their slots on the hint page: the daemon's side of `turbolane::protocol`.
//!
//! Problem: any program on the machine may connect, in any PID namespace, and say anything, or
//! nothing, or that ten thousand times a second. The daemon must serve the honest ones within
//! their 200 ms of patience.
//!
//! Idea: one thread, and nothing in it waits for a peer. A connection is one request of 16 bytes
//! and one reply; whoever sends something else is cut off, whoever sends nothing is cut off after
//! 200 ms. There are 64 connections at most; one more replaces the oldest, so that those who
//! connect and stay silent cannot keep out those who speak at once.
//!
//! Who a thread is, the kernel says, not the peer: the process by SO_PEERCRED (in our PID
//! namespace), the thread by searching that process for the number that the thread knows itself by
//! (`hw::task::global_tid`). So nobody can register threads of a process that is not its own.
//!
//! Order of a registration: the slot is without an owner, is prepared, the scheduler is told, the
//! owner is written, the thread is answered. Neither the scheduler nor the thread sees a slot half
//! done.
//!
//! Limits: the search reads /proc once per thread of a containered process (20 us each), so
//! registering all threads of a large one takes time that grows with the square of their number:
//! 1000 threads 10 s in the worst case, during which they run unserved and ask again.

use std::io::{self, Error, ErrorKind};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::fs::MetadataExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, ptr};

use turbolane::page::{self, SILENT, Slot};
use turbolane::protocol::{MAGIC, MESSAGE_BYTES, Message, OP_REGISTER, Reply, Request, TIMEOUT_MS};

use super::Page;
use super::slots::{Owner, Slots};

/// Connections at once. Honest ones last microseconds.
const PEERS_MAX: usize = 64;

/// Connections that wait to be accepted: all threads of a large program that start at once.
const BACKLOG: i32 = 1024;

/// Rest after the kernel refused a connection for want of memory or descriptors.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// A thread gets a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The thread, in the daemon's PID namespace.
    pub tid: u32,
    /// Its process, likewise.
    pub tgid: u32,
    /// Index of its slot on the page.
    pub slot: u32,
}

/// Told of each registration before the thread is answered, in the server's thread; also when a
/// thread registers again. An error refuses the thread.
pub type OnRegister = Box<dyn Fn(Registration) -> io::Result<()> + Send>;

/// Serves until it is dropped; then the socket is gone.
pub struct HintServer {
    path: PathBuf,
    /// Device and inode of the socket file, to remove no other.
    identity: (u64, u64),
    desk: Arc<Mutex<Desk>>,
    /// Closing it ends the thread.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// What a registration needs.
struct Desk {
    page: Arc<Page>,
    page_fd: OwnedFd,
    page_id: u32,
    slots: Slots,
    on_register: OnRegister,
}

/// Somebody who has connected and not spoken yet.
struct Peer {
    socket: OwnedFd,
    since: Instant,
}

impl HintServer {
    /// Listens at `path`, whose folder is made if need be. Fails with `AddrInUse` if somebody else
    /// listens there; a socket whose owner is gone is replaced.
    pub fn start(
        path: &Path,
        page: Arc<Page>,
        page_fd: OwnedFd,
        on_register: OnRegister,
    ) -> io::Result<HintServer> {
        let listener = listen(path)?;
        let file = fs::symlink_metadata(path)?;
        let (stopped, stop) = io::pipe()?;
        let slots = Slots::new(page::SLOTS);
        let page_id = random_id()?;
        let desk = Arc::new(Mutex::new(Desk { page, page_fd, page_id, slots, on_register }));
        let served = Arc::clone(&desk);
        let thread = std::thread::Builder::new()
            .name("hints".into())
            .spawn(move || serve(&listener, &stopped.into(), &served))?;
        Ok(HintServer {
            path: path.to_owned(),
            identity: (file.st_dev(), file.st_ino()),
            desk,
            stop: Some(stop.into()),
            thread: Some(thread),
        })
    }

    /// Tells another one from now on, beginning with all threads that are registered and live: for
    /// a scheduler that was loaded anew, behind the same page. Their slots stay what they are.
    pub fn hand_over(&self, on_register: OnRegister) {
        let mut desk = lock(&self.desk);
        desk.on_register = on_register;
        desk.introduce_all();
    }
}

impl Drop for HintServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there was reported there
        }
        let is_ours = |file: &fs::Metadata| (file.st_dev(), file.st_ino()) == self.identity;
        if fs::symlink_metadata(&self.path).is_ok_and(|file| is_ours(&file)) {
            let _ = fs::remove_file(&self.path); // nobody to tell; the next server replaces it
        }
    }
}

fn lock(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn random_id() -> io::Result<u32> {
    let mut bytes = [0; 4];
    // SAFETY: writes at most the given number of bytes to the local array.
    if unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } != 4 {
        return Err(Error::last_os_error());
    }
    Ok(u32::from_ne_bytes(bytes).max(1))
}

impl Desk {
    /// Answers a request of a thread of process `tgid`.
    fn answer(&mut self, tgid: u32, request: Request) -> Reply {
        let refusal = |error: Error| -error.raw_os_error().unwrap_or(libc::EIO);
        let (status, slot) = match self.register(tgid, request) {
            Ok(slot) => (0, slot),
            Err(error) => (refusal(error), 0),
        };
        Reply { magic: MAGIC, status, slot, page_id: self.page_id }
    }

    fn register(&mut self, tgid: u32, request: Request) -> io::Result<u32> {
        if request.abi != page::ABI {
            return Err(Error::from_raw_os_error(libc::EPROTONOSUPPORT));
        }
        if request.op != OP_REGISTER {
            return Err(Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let tid = hw::task::global_tid(tgid, request.tid)?;
        let owner = Owner { tid, tgid, start_ticks: hw::task::start_ticks(tid)? };
        let page = Arc::clone(&self.page);
        let given = self
            .slots
            .give(owner, |slot, owner| has_ended(&page.slot[slot as usize], owner))
            .ok_or_else(|| Error::from_raw_os_error(libc::ENOSPC))?;
        let slot = &page.slot[given.slot as usize];
        slot.tid.store(0, Release);
        if given.is_new {
            // What the last owner left. The same thread's stays: it tells our masks from others, and how
            // fast the thread is to be.
            slot.narrowed.iter().for_each(|hash| hash.store(0, Relaxed));
            slot.target_q10.store(0, Relaxed);
        }
        slot.want.store(SILENT, Relaxed);
        slot.seq.store(0, Relaxed);
        self.introduce(given.slot, owner)?;
        Ok(given.slot)
    }

    /// Tells the scheduler of a slot's owner, then names it on the page; takes the slot back if the
    /// scheduler does not want it.
    fn introduce(&mut self, slot: u32, owner: Owner) -> io::Result<()> {
        let Owner { tid, tgid, .. } = owner;
        if let Err(error) = (self.on_register)(Registration { tid, tgid, slot }) {
            self.page.slot[slot as usize].tid.store(0, Release);
            self.slots.release(slot);
            return Err(error);
        }
        self.page.slot[slot as usize].tid.store(tid, Release);
        Ok(())
    }

    fn introduce_all(&mut self) {
        let owners: Vec<_> = self.slots.iter().collect();
        for (slot, owner) in owners {
            if is_alive(owner) {
                let _ = self.introduce(slot, owner); // who cannot be served is not
            } else {
                self.slots.release(slot);
            }
        }
    }
}

/// True if a slot can be given to somebody else: the scheduler (or a hostile neighbour) has cleared
/// it, so that it is no use to its owner any more, or the owner is gone.
fn has_ended(slot: &Slot, owner: Owner) -> bool {
    slot.tid.load(Relaxed) == 0 || !is_alive(owner)
}

fn is_alive(owner: Owner) -> bool {
    hw::task::lives_since(owner.tid, owner.start_ticks)
}

/// The server's thread.
fn serve(listener: &OwnedFd, stopped: &OwnedFd, desk: &Mutex<Desk>) {
    let mut peers: Vec<Peer> = Vec::new();
    loop {
        let Some(ready) = wait(listener, stopped, &peers) else { return };
        let mut spoke = ready.peers.into_iter();
        peers.retain(|peer| match spoke.next() {
            Some(true) => {
                serve_peer(peer, desk);
                false
            }
            _ => peer.since.elapsed() < Duration::from_millis(TIMEOUT_MS),
        });
        if ready.listener {
            accept_all(listener, &mut peers);
        }
    }
}

/// Who can be heard without waiting.
struct Ready {
    listener: bool,
    /// In the order of the peers.
    peers: Vec<bool>,
}

/// Waits for the next event or the next peer's time to run out; `None` to stop.
fn wait(listener: &OwnedFd, stopped: &OwnedFd, peers: &[Peer]) -> Option<Ready> {
    let sockets = peers.iter().map(|peer| &peer.socket);
    let mut polled: Vec<libc::pollfd> = [stopped, listener]
        .into_iter()
        .chain(sockets)
        .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    let timeout_ms = if peers.is_empty() { -1 } else { TIMEOUT_MS as i32 };
    // SAFETY: the array is as long as said.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout_ms) };
    let mut is_ready = polled.iter().map(|fd| fd.revents != 0);
    if is_ready.next()? {
        return None;
    }
    Some(Ready { listener: is_ready.next()?, peers: is_ready.collect() })
}

/// Lets in who is waiting, as many as there are places. The next round hears them.
fn accept_all(listener: &OwnedFd, peers: &mut Vec<Peer>) {
    for _ in 0..PEERS_MAX {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory of ours.
        let fd =
            unsafe { libc::accept4(listener.as_raw_fd(), ptr::null_mut(), ptr::null_mut(), flags) };
        if fd >= 0 {
            if peers.len() == PEERS_MAX {
                peers.remove(0); // the oldest
            }
            // SAFETY: a new descriptor that nobody else owns.
            let socket = unsafe { OwnedFd::from_raw_fd(fd) };
            peers.push(Peer { socket, since: Instant::now() });
            continue;
        }
        match Error::last_os_error().kind() {
            ErrorKind::WouldBlock => return,
            ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
            _ => return std::thread::sleep(REFUSED_PAUSE),
        }
    }
}

/// Reads a peer's request and answers it, if it is one.
fn serve_peer(peer: &Peer, desk: &Mutex<Desk>) {
    let (Some(message), Some(tgid)) = (receive(&peer.socket), process_of(&peer.socket)) else {
        return;
    };
    let request = Request::from_bytes(&message);
    if request.magic == MAGIC {
        let mut desk = lock(desk);
        let reply = desk.answer(tgid, request);
        send(&peer.socket, reply, &desk.page_fd);
    }
}

/// A message of the right size. Longer ones are told by their true size (MSG_TRUNC).
fn receive(socket: &OwnedFd) -> Option<Message> {
    let mut message = Message::default();
    // SAFETY: writes at most the given number of bytes to the local message.
    let bytes = unsafe {
        let to = message.as_mut_ptr().cast();
        libc::recv(socket.as_raw_fd(), to, MESSAGE_BYTES, libc::MSG_DONTWAIT | libc::MSG_TRUNC)
    };
    (bytes == MESSAGE_BYTES as isize).then_some(message)
}

/// The peer's process, in our PID namespace; `None` if it has no number there.
fn process_of(socket: &OwnedFd) -> Option<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: writes at most the given number of bytes to the local structure.
    let result = unsafe {
        let to = (&raw mut peer).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &mut bytes)
    };
    u32::try_from(peer.pid).ok().filter(|&pid| result == 0 && pid != 0)
}

/// Sends the reply, with the page if it says yes. Who does not wait for it has had their chance.
fn send(socket: &OwnedFd, reply: Reply, page_fd: &OwnedFd) {
    let message = reply.to_bytes();
    let mut part =
        libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: MESSAGE_BYTES };
    let mut control = [0u64; 8];
    // SAFETY: msghdr is plain data, all zeroes is a value of it.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    let fd = page_fd.as_raw_fd();
    // SAFETY: the header points to the local buffers above, with their sizes; the control buffer
    // is aligned as cmsghdr asks, and its 64 bytes hold the 24 of one descriptor. sendmsg reads.
    unsafe {
        if reply.status == 0 {
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as _;
            let entry = libc::CMSG_FIRSTHDR(&header);
            (*entry).cmsg_level = libc::SOL_SOCKET;
            (*entry).cmsg_type = libc::SCM_RIGHTS;
            (*entry).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
            libc::CMSG_DATA(entry).cast::<i32>().write_unaligned(fd);
        }
        libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    }
}

/// A socket that listens at `path`, for everybody.
fn listen(path: &Path) -> io::Result<OwnedFd> {
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
            let what = format!("{} is there already and is no socket", path.display());
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

fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory of ours.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    let mut address =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    let name = path.as_os_str().as_bytes();
    if name.len() >= address.sun_path.len() {
        let what = format!("{} is too long for a socket's name", path.display());
        return Err(Error::new(ErrorKind::InvalidInput, what));
    }
    for (to, from) in address.sun_path.iter_mut().zip(name) {
        *to = from.cast_signed();
    }
    let bytes = offset_of!(libc::sockaddr_un, sun_path) + name.len() + 1;
    Ok((address, bytes as libc::socklen_t))
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
