// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives threads their slots on the hint page: the daemon's side of `turbolane_hint::protocol`.
//!
//! Problem: any program on the machine may connect, from any PID namespace, and send anything, or
//! nothing, or ten thousand requests a second. The daemon must serve the honest ones within the
//! 200 ms that they wait.
//!
//! Idea: one thread, and nothing in it waits for a peer. A connection is one request of 16 bytes
//! and one reply; whoever sends something else is cut off, whoever sends nothing is cut off after
//! 200 ms. There are 64 connections at most; one more replaces the oldest of the user who has most,
//! so that those who connect and stay silent cannot keep out those who speak at once.
//!
//! The kernel says who a thread is, not the peer: the process and its user by SO_PEERCRED (in our
//! PID namespace), the thread by a search of that process for the number that the thread has in its
//! own namespace (`hw::task::look_up`). So no peer can register threads of another process. At the
//! end the daemon checks that no number has passed to another process meanwhile (SO_PEERPIDFD,
//! Linux 6.5; otherwise start times).
//!
//! Only processes in containers need a search, which reads /proc once per thread, 20 us each. It is
//! done in steps: a few threads per round, while others are served; one search per user at a time,
//! the users in turn.
//!
//! Areas are made before they are needed, many at a time: to make one takes as long as the
//! scheduler's programs may run, tens of milliseconds on a busy machine, and the workers of a
//! server all come at once.
//!
//! Order of a registration: the slot is prepared, the scheduler gets its number, the owner is
//! written, the thread is answered. Neither the scheduler nor the thread sees a slot half done.
//!
//! Limits: registering all threads of a large containered process takes time that grows with the
//! square of their number: 1000 threads 10 s in the worst case, during which they run unserved and
//! ask again.

use std::collections::HashMap;
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

use hw::task::{Lookup, Search};
use turbolane_hint::page::{self, AREA_SLOTS, AREAS, SILENT, Slot};
use turbolane_hint::protocol::{
    MAGIC, MESSAGE_BYTES, Message, OP_REGISTER, Reply, Request, TIMEOUT_MS,
};

use super::memory::{Area, NewAreas};
use super::slots::{Living, Process, Slots, Thread};

/// Connections at once. Honest ones last microseconds.
const PEERS_MAX: usize = 64;

/// Connections that wait to be accepted: all threads of a large program that start at once.
const BACKLOG: i32 = 1024;

/// Threads that a search looks at in one step, about 1 ms.
const SEARCH_STEP: usize = 48;

/// Areas that are made at a time, for processes to come. When half of them are left the next ones
/// are made.
const SPARE_AREAS: usize = 32;

/// Descriptors that areas in use leave for everything else: peers, spare areas, what the scheduler
/// itself has open.
const OTHER_DESCRIPTORS: usize = 256;

/// Rest after the kernel refused a connection for want of memory or descriptors.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// A thread gets a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The thread, in the daemon's PID namespace.
    pub tid: u32,
    /// Its process, likewise.
    pub tgid: u32,
    /// Number of its slot.
    pub slot: u32,
}

/// Called at each registration before the thread is answered, in the server's thread; also when a
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
    board_fd: OwnedFd,
    run_id: u32,
    slots: Slots,
    /// By number; one that is free is kept until its number is given again.
    areas: HashMap<u32, Area>,
    /// No one has had them yet.
    spare: HashMap<u32, Area>,
    new_areas: NewAreas,
    on_register: OnRegister,
}

/// Someone who has connected and has not been answered yet.
struct Peer {
    socket: OwnedFd,
    since: Instant,
    /// The process, in our PID namespace, and its user.
    tgid: u32,
    uid: u32,
    /// It has spoken, and its thread is searched.
    search: Option<Box<Search>>,
}

/// By /proc.
struct InProc;

impl Living for InProc {
    fn thread(&self, thread: Thread) -> bool {
        hw::task::lives_since(thread.tid, thread.start_ticks)
    }

    fn process(&self, process: Process) -> bool {
        hw::task::exists_since(process.tgid, process.start_ticks)
    }
}

impl HintServer {
    /// Listens at `path`, whose folder is made if need be. Fails with `AddrInUse` if someone else
    /// listens there; a socket whose owner is gone is replaced.
    pub fn start(
        path: &Path,
        board_fd: OwnedFd,
        new_areas: NewAreas,
        on_register: OnRegister,
    ) -> io::Result<HintServer> {
        let listener = listen(path)?;
        let file = fs::symlink_metadata(path)?;
        let (stopped, stop) = io::pipe()?;
        let desk = Desk {
            board_fd,
            run_id: random_id()?,
            slots: Slots::new(room()),
            areas: HashMap::new(),
            spare: HashMap::new(),
            new_areas,
            on_register,
        };
        let desk = Arc::new(Mutex::new(desk));
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

    /// Calls another one from now on, beginning with all threads that are registered and live: for
    /// a scheduler that was loaded anew, with the same board and areas. Their slots stay what they
    /// are.
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
            let _ = fs::remove_file(&self.path); // no one to report to; the next server replaces it
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

/// Areas for which there are descriptors. Takes as many as this process may have.
fn room() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads and writes the local structure only.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        let wanted = (AREAS + OTHER_DESCRIPTORS) as libc::rlim_t;
        let more = libc::rlimit { rlim_cur: wanted.min(limit.rlim_max), ..limit };
        if more.rlim_cur > limit.rlim_cur && libc::setrlimit(libc::RLIMIT_NOFILE, &more) == 0 {
            limit = more;
        }
    }
    usize::try_from(limit.rlim_cur)
        .unwrap_or(AREAS)
        .saturating_sub(OTHER_DESCRIPTORS)
        .clamp(64, AREAS)
}

impl Desk {
    /// Checks a request and begins to look for its thread.
    fn look_up(&self, peer: &Peer, request: Request) -> io::Result<Lookup> {
        if request.abi != page::ABI {
            return Err(Error::from_raw_os_error(libc::EPROTONOSUPPORT));
        }
        if request.op != OP_REGISTER {
            return Err(Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        hw::task::look_up(peer.tgid, request.tid)
    }

    /// Answers a peer whose thread was found, or cannot be served.
    fn answer(&mut self, peer: &Peer, found: io::Result<u32>) {
        let result = found.and_then(|tid| self.register(peer, tid));
        let (status, slot) = match &result {
            Ok(slot) => (0, *slot),
            Err(error) => (-error.raw_os_error().unwrap_or(libc::EIO), 0),
        };
        let reply = Reply { magic: MAGIC, status, slot, run_id: self.run_id };
        let area = self.areas.get(&(slot / AREA_SLOTS as u32)).filter(|_| result.is_ok());
        let fds = area.map(|area| [self.board_fd.as_raw_fd(), area.fd().as_raw_fd()]);
        send(&peer.socket, reply, fds);
    }

    fn register(&mut self, peer: &Peer, tid: u32) -> io::Result<u32> {
        let &Peer { tgid, uid, .. } = peer;
        let process = Process { tgid, start_ticks: hw::task::start_ticks(tgid)?, uid };
        let thread = Thread { tid, start_ticks: hw::task::start_ticks(tid)? };
        let given = self
            .slots
            .give(process, thread, &InProc)
            .ok_or_else(|| Error::from_raw_os_error(libc::ENOSPC))?;
        if given.is_new_area {
            self.use_spare_area(process, given.slot)?;
        }
        let slot = self.slot(given.slot)?;
        slot.tid.store(0, Release);
        if given.is_new {
            // What the last owner left. The same thread's stays: it distinguishes our masks from
            // others, and how fast the thread is to be.
            slot.narrowed.iter().for_each(|hash| hash.store(0, Relaxed));
            slot.target_q10.store(0, Relaxed);
        }
        slot.want.store(SILENT, Relaxed);
        slot.seq.store(0, Relaxed);
        if !is_peer_there(&peer.socket) {
            self.slots.release(process, tid);
            return Err(Error::from_raw_os_error(libc::ESRCH));
        }
        self.introduce(given.slot, process, thread)?;
        Ok(given.slot)
    }

    fn use_spare_area(&mut self, process: Process, slot: u32) -> io::Result<()> {
        let area = slot / AREA_SLOTS as u32;
        if !self.spare.contains_key(&area) {
            let made = self.make_spare_areas(Some(area));
            made.inspect_err(|_| self.slots.release_area(process, area))?;
        }
        if let Some(spare) = self.spare.remove(&area) {
            self.areas.insert(area, spare);
        }
        Ok(())
    }

    /// Makes the areas that are given next, and this one.
    fn make_spare_areas(&mut self, wanted: Option<u32>) -> io::Result<()> {
        let next = self.slots.next_areas(SPARE_AREAS).filter(|area| !self.spare.contains_key(area));
        let numbers: Vec<u32> = wanted.into_iter().chain(next).take(SPARE_AREAS).collect();
        if !numbers.is_empty() {
            let made = (self.new_areas)(&numbers)?;
            self.spare.extend(numbers.into_iter().zip(made));
        }
        Ok(())
    }

    /// Between requests: has areas made before someone must wait for one. If that fails, the next
    /// request gets the error.
    fn stock_up(&mut self) {
        if self.spare.len() <= SPARE_AREAS / 2 {
            let _ = self.make_spare_areas(None);
        }
    }

    fn slot(&self, slot: u32) -> io::Result<&Slot> {
        let area = self.areas.get(&(slot / AREA_SLOTS as u32));
        let area = area.ok_or_else(|| Error::from_raw_os_error(libc::EIO))?;
        Ok(&area.slot[slot as usize % AREA_SLOTS])
    }

    /// Gives the scheduler the slot's owner, then names it in the slot; takes the slot back if the
    /// scheduler refuses it, or the thread was another one at the end.
    fn introduce(&mut self, slot: u32, process: Process, thread: Thread) -> io::Result<()> {
        let registration = Registration { tid: thread.tid, tgid: process.tgid, slot };
        let mut done = (self.on_register)(registration);
        if done.is_ok() && !InProc.thread(thread) {
            done = Err(Error::from_raw_os_error(libc::ESRCH));
        }
        match done {
            Ok(()) => self.slot(slot)?.tid.store(thread.tid, Release),
            Err(_) => self.slots.release(process, thread.tid),
        }
        done
    }

    fn introduce_all(&mut self) {
        let owners: Vec<_> = self.slots.iter().collect();
        for (slot, process, thread) in owners {
            if InProc.thread(thread) {
                let _ = self.introduce(slot, process, thread); // who cannot be served is not
            } else {
                self.slots.release(process, thread.tid);
            }
        }
    }
}

/// The server's thread.
fn serve(listener: &OwnedFd, stopped: &OwnedFd, desk: &Mutex<Desk>) {
    let mut peers: Vec<Peer> = Vec::new();
    let mut last_searched = 0;
    loop {
        lock(desk).stock_up();
        let Some(ready) = wait(listener, stopped, &peers) else { return };
        let mut spoke = ready.peers.into_iter();
        peers.retain_mut(|peer| {
            let spoke = spoke.next() == Some(true) && peer.search.is_none();
            if spoke {
                return serve_peer(peer, desk);
            }
            peer.since.elapsed() < Duration::from_millis(TIMEOUT_MS)
        });
        search_on(&mut peers, &mut last_searched, desk);
        if ready.listener {
            accept_all(listener, &mut peers);
        }
    }
}

/// One step of one search: of the user whose turn it is, the peer that has waited longest.
fn search_on(peers: &mut Vec<Peer>, last_searched: &mut u32, desk: &Mutex<Desk>) {
    let searching = || peers.iter().enumerate().filter(|(_, peer)| peer.search.is_some());
    let turn = |uid: u32| uid.wrapping_sub(last_searched.wrapping_add(1));
    let Some((at, _)) = searching().min_by_key(|(at, peer)| (turn(peer.uid), *at)) else { return };
    *last_searched = peers[at].uid;
    let step = peers[at].search.as_mut().map(|search| search.step(SEARCH_STEP));
    let found = match step {
        Some(Ok(Some(tid))) => Ok(tid),
        Some(Err(error)) => Err(error),
        _ => return,
    };
    let peer = peers.remove(at);
    lock(desk).answer(&peer, found);
}

/// Who can be heard without waiting.
struct Ready {
    listener: bool,
    /// In the order of the peers.
    peers: Vec<bool>,
}

/// Waits for the next event or the next peer's time to run out; `None` to stop.
fn wait(listener: &OwnedFd, stopped: &OwnedFd, peers: &[Peer]) -> Option<Ready> {
    // One that is searched for has spoken: nothing it does now matters, so poll passes it over
    // (-1).
    let is_silent = |peer: &Peer| peer.search.is_none();
    let fd_of = |peer: &Peer| if is_silent(peer) { peer.socket.as_raw_fd() } else { -1 };
    let mut polled: Vec<libc::pollfd> = [stopped.as_raw_fd(), listener.as_raw_fd()]
        .into_iter()
        .chain(peers.iter().map(fd_of))
        .map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
        .collect();
    let timeout_ms = match peers {
        [] => -1,
        peers if peers.iter().all(is_silent) => TIMEOUT_MS as i32,
        _ => 0,
    };
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
            // SAFETY: a new descriptor that no one else owns.
            let socket = unsafe { OwnedFd::from_raw_fd(fd) };
            if let Some((tgid, uid)) = process_of(&socket) {
                if peers.len() == PEERS_MAX {
                    peers.remove(dispensable(peers));
                }
                peers.push(Peer { socket, since: Instant::now(), tgid, uid, search: None });
            }
            continue;
        }
        match Error::last_os_error().kind() {
            ErrorKind::WouldBlock => return,
            ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
            _ => return std::thread::sleep(REFUSED_PAUSE),
        }
    }
}

/// The oldest peer of the user who has most.
fn dispensable(peers: &[Peer]) -> usize {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    peers.iter().for_each(|peer| *counts.entry(peer.uid).or_default() += 1);
    let crowded = counts.into_iter().max_by_key(|(_, count)| *count).map(|(uid, _)| uid);
    peers.iter().position(|peer| Some(peer.uid) == crowded).unwrap_or(0)
}

/// Reads a peer's request, if it is one, and answers it; true if its thread must be searched first.
fn serve_peer(peer: &mut Peer, desk: &Mutex<Desk>) -> bool {
    let request = receive(&peer.socket).map(|message| Request::from_bytes(&message));
    let Some(request) = request.filter(|request| request.magic == MAGIC) else { return false };
    let mut desk = lock(desk);
    match desk.look_up(peer, request) {
        Ok(Lookup::Found(tid)) => desk.answer(peer, Ok(tid)),
        Ok(Lookup::Search(search)) => peer.search = Some(Box::new(search)),
        Err(error) => desk.answer(peer, Err(error)),
    }
    peer.search.is_some()
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

/// The peer's process, in our PID namespace, and its user, as they were when it connected; `None`
/// if it has no number there.
fn process_of(socket: &OwnedFd) -> Option<(u32, u32)> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: writes at most the given number of bytes to the local structure.
    let result = unsafe {
        let to = (&raw mut peer).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &mut bytes)
    };
    let tgid = u32::try_from(peer.pid).ok().filter(|&pid| result == 0 && pid != 0)?;
    Some((tgid, peer.uid))
}

/// False if the process that connected has ended: its number may be another's. True on kernels that
/// cannot say (before 6.5).
fn is_peer_there(socket: &OwnedFd) -> bool {
    const SO_PEERPIDFD: libc::c_int = 77; // asm-generic/socket.h
    let mut fd: libc::c_int = -1;
    let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: writes at most the given number of bytes to the local number.
    let result = unsafe {
        let to = (&raw mut fd).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, to, &mut bytes)
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
fn send(socket: &OwnedFd, reply: Reply, fds: Option<[i32; 2]>) {
    let message = reply.to_bytes();
    let mut part =
        libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: MESSAGE_BYTES };
    let mut control = [0u64; 8];
    // SAFETY: msghdr is plain data, all zeroes is a value of it.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    // SAFETY: the header points to the local buffers above, with their sizes; the control buffer
    // is aligned as cmsghdr asks, and its 64 bytes hold the 24 of two descriptors. sendmsg reads.
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

fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory of ours.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: a new descriptor that no one else owns.
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
