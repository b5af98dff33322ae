// SPDX-License-Identifier: MIT OR Apache-2.0
//! A daemon in a thread, which the library cannot distinguish from the real one: it owns a memfd
//! page, listens on a socket and gives out slots. Tests set its flags, mode and table size
//! directly.
//! The real one is `crates/sched/src/hints`, which has tests of its own.

#![allow(dead_code)] // each test program uses a part

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use turbolane_hint::page::{self, Area, Board};
use turbolane_hint::protocol::{MAGIC, MESSAGE_BYTES, Message, Reply, Request};
use turbolane_hint::{Status, wide_status};

/// The daemon. Its thread is never joined: test programs end with it.
pub struct FakeDaemon {
    /// Board and the one area, as their owner sees them.
    pub page: Pages,
    /// Every request that came, in order.
    pub requests: &'static Mutex<Vec<Request>>,
    path: PathBuf,
    listener: i32,
}

/// What a daemon shares: `page.header`, `page.cpu` and `page.slot` are the places in it.
#[derive(Clone, Copy, Debug)]
pub struct Pages {
    board: &'static Board,
    pub slot: &'static [page::Slot; page::AREA_SLOTS],
}

impl std::ops::Deref for Pages {
    type Target = Board;

    fn deref(&self) -> &Board {
        self.board
    }
}

/// The name of the board's file.
pub const PAGE_NAME: &str = "fake-hints";

impl FakeDaemon {
    /// Listens at `path` and gives out `slots` slots. CPU flags are all 0.
    pub fn start(path: &Path, mode: u32, slots: u32) -> io::Result<FakeDaemon> {
        static NEXT_ID: AtomicU32 = AtomicU32::new(1);
        let (files, page) = new_pages(mode)?;
        let listener = listen(path)?;
        let requests: &'static Mutex<Vec<Request>> = Box::leak(Box::default());
        let id = NEXT_ID.fetch_add(1, Relaxed);
        let fd = listener.as_raw_fd();
        std::thread::spawn(move || serve(&listener, &files, page, requests, id, slots));
        Ok(FakeDaemon { page, requests, path: path.to_owned(), listener: fd })
    }

    /// All CPUs may run everything, and nobody has to leave.
    pub fn make_all_fit(&self) {
        self.set_cpus(|_| 3);
    }

    /// Sets every CPU's flags.
    pub fn set_cpus(&self, flags: impl Fn(usize) -> u8) {
        for (cpu, entry) in self.page.cpu.iter().enumerate() {
            entry.store(flags(cpu), Relaxed);
        }
        self.page.header.generation.fetch_add(1, Relaxed);
    }

    /// Ends as a daemon does: nobody reads the page, nobody listens.
    pub fn stop(self) {
        self.page.header.active.store(0, Relaxed);
        std::fs::remove_file(&self.path).unwrap();
        // SAFETY: no memory of ours; the descriptor belongs to the thread, which lives.
        unsafe { libc::shutdown(self.listener, libc::SHUT_RDWR) };
    }
}

fn checked(result: isize) -> io::Result<i32> {
    match result {
        0.. => Ok(result as i32),
        _ => Err(io::Error::last_os_error()),
    }
}

fn new_pages(mode: u32) -> io::Result<([File; 2], Pages)> {
    let (board_file, board) = new_memfd(PAGE_NAME)?;
    let (area_file, area) = new_memfd("fake-slots")?;
    // SAFETY: mappings of a page each, never unmapped; zeroes are a value of both types.
    let (board, area) = unsafe { (&*board.cast::<Board>(), &*area.cast::<Area>()) };
    board.header.abi.store(page::ABI, Relaxed);
    board.header.mode.store(mode, Relaxed);
    board.header.nr_slots.store(page::AREA_SLOTS as u32, Relaxed);
    // a Xeon Gold 6130's
    for (entry, lacks_q10) in board.header.lacks_q10.iter().zip([0, 146, 329, 329]) {
        entry.store(lacks_q10, Relaxed);
    }
    board.header.active.store(1, Relaxed);
    board.header.magic.store(page::MAGIC, Relaxed);
    Ok(([board_file, area_file], Pages { board, slot: &area.slot }))
}

/// A file of one page, mapped.
fn new_memfd(name: &str) -> io::Result<(File, *const u8)> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: reads the string.
    let fd = checked(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) } as isize)?;
    // SAFETY: a new descriptor that nobody else owns.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(4096)?;
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a file that is large enough; never unmapped.
    let base = unsafe { libc::mmap(ptr::null_mut(), 4096, rw, libc::MAP_SHARED, fd, 0) };
    assert_ne!(base, libc::MAP_FAILED);
    Ok((file, base.cast()))
}

/// A listening socket at `path`.
pub fn listen(path: &Path) -> io::Result<OwnedFd> {
    // SAFETY: sockaddr_un is plain data; the calls read the local address, whose size is given.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        let fd = checked(libc::socket(libc::AF_UNIX, kind, 0) as isize)?;
        let fd = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as _;
        let name = path.as_os_str().as_encoded_bytes();
        for (to, from) in address.sun_path.iter_mut().zip(name) {
            *to = *from as _;
        }
        let bytes = offset_of!(libc::sockaddr_un, sun_path) + name.len() + 1;
        let address = (&raw const address).cast();
        checked(libc::bind(fd.as_raw_fd(), address, bytes as u32) as isize)?;
        checked(libc::listen(fd.as_raw_fd(), 64) as isize)?;
        Ok(fd)
    }
}

fn serve(
    listener: &OwnedFd,
    files: &[File; 2],
    page: Pages,
    requests: &Mutex<Vec<Request>>,
    run_id: u32,
    slots: u32,
) {
    let mut tids = Vec::new();
    loop {
        // SAFETY: no memory of ours.
        let fd = unsafe { libc::accept(listener.as_raw_fd(), ptr::null_mut(), ptr::null_mut()) };
        if fd < 0 {
            return;
        }
        // SAFETY: a new descriptor that nobody else owns.
        let peer = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut message = Message::default();
        // SAFETY: writes at most the given number of bytes to the local message.
        let bytes = unsafe { libc::recv(fd, message.as_mut_ptr().cast(), MESSAGE_BYTES, 0) };
        assert_eq!(bytes, MESSAGE_BYTES as isize);
        let request = Request::from_bytes(&message);
        requests.lock().unwrap().push(request);
        let known = tids.iter().position(|tid| *tid == request.tid);
        let index = known.unwrap_or(tids.len());
        let is_full = index >= slots as usize;
        if !is_full {
            if known.is_none() {
                tids.push(request.tid);
            }
            let slot = &page.slot[index];
            slot.want.store(page::SILENT, Relaxed);
            slot.seq.store(0, Relaxed);
            slot.tid.store(request.tid, Relaxed);
        }
        let reply = Reply {
            magic: MAGIC,
            status: if is_full { -libc::ENOSPC } else { 0 },
            slot: index as u32,
            run_id,
        };
        let fds = files.each_ref().map(|file| file.as_raw_fd());
        send(&peer, &reply.to_bytes(), if is_full { &[] } else { &fds });
    }
}

/// Sends a message with descriptors.
pub fn send(socket: &OwnedFd, bytes: &[u8], fds: &[i32]) {
    // SAFETY: the header points to local buffers with their sizes; 128 bytes hold the control
    // message for up to 16 descriptors.
    unsafe {
        let mut part =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut control = [0u64; 16];
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        if !fds.is_empty() {
            assert!(fds.len() <= 16);
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(size_of_val(fds) as u32) as _;
            let entry = libc::CMSG_FIRSTHDR(&header);
            (*entry).cmsg_level = libc::SOL_SOCKET;
            (*entry).cmsg_type = libc::SCM_RIGHTS;
            (*entry).cmsg_len = libc::CMSG_LEN(size_of_val(fds) as u32) as _;
            ptr::copy_nonoverlapping(fds.as_ptr(), libc::CMSG_DATA(entry).cast(), fds.len());
        }
        libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_NOSIGNAL);
    }
}

/// Runs a scenario in a process of its own: the page, the connection and the environment belong to
/// a whole process. Called by the test `name`, which is started again with the library pointed at a
/// socket in a new folder; there `body` runs.
pub fn in_process(name: &str, body: impl FnOnce(&Path)) {
    if let Some(socket) = std::env::var_os(turbolane_hint::protocol::SOCKET_ENV) {
        return body(Path::new(&socket));
    }
    let folder = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(turbolane_hint::protocol::SOCKET_ENV, folder.path().join("hint.sock"))
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{}:\n{text}", output.status);
}

/// Runs `body` in a forked child; true if it returned true there.
pub fn in_fork(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `body`, which allocates little (glibc allows that) and takes no lock
    // that another thread may hold, and ends without returning.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            let is_fine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            libc::_exit(if is_fine.unwrap_or(false) { 0 } else { 1 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }
}

/// Opens and closes sections until `is_so`: the library looks for a scheduler at sections only, and
/// not at each.
pub fn sections_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed().as_secs() < 20, "{what}");
        turbolane_hint::wide_begin(1).unwrap();
        turbolane_hint::wide_end().unwrap();
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
}

/// Waits until the calling thread is served: on a loaded machine the daemon's thread may need more
/// than the library's patience, which then tries again after a second.
pub fn await_served() {
    sections_until("the thread is served", || wide_status() != Status::None);
}

/// How often a file of this name is mapped into this process.
pub fn times_mapped(name: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(name)).count()
}
