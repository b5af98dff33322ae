// SPDX-License-Identifier: MIT OR Apache-2.0
//! A local user without rights against the hints of all other users: what `nobody` can do with the
//! descriptors it is given, with the socket, and with its own threads. The machine goes on, others
//! are served, and no other task's mask changes.
//!
//! The attacker speaks the protocol by hand, and treats every descriptor alike: it maps what can be
//! mapped, reads all of it, and writes wherever it may.

use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use turbolane::page::{self, Header, SILENT};
use turbolane::protocol::{MAGIC, MESSAGE_BYTES, Message, OP_REGISTER, Reply, Request, SOCKET};

use crate::guest::{Child, set_affinity, spin, wait_for};
use crate::lane::{Lane, turbolane};

const NOBODY: u32 = 65534;

/// An emulated machine under attack is slow; who is not served by then is not served.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a child says of itself to the test, in memory that both share.
struct Board {
    /// `turbolane::Status` + 1, 0 = not asked yet.
    status: AtomicU64,
    /// The first word of its affinity mask.
    mask: AtomicU64,
    sections: AtomicU64,
}

fn new_board() -> Result<&'static Board> {
    // SAFETY: a new mapping, never unmapped; zeroes are a value of atomics.
    unsafe {
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let shared = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let memory = libc::mmap(ptr::null_mut(), size_of::<Board>(), rw, shared, -1, 0);
        ensure!(memory != libc::MAP_FAILED, "no shared memory");
        Ok(&*memory.cast())
    }
}

/// A child as another user.
fn as_user(uid: u32, body: impl FnOnce()) -> Result<Child> {
    Child::fork(move || {
        // SAFETY: system calls without memory of ours.
        let is_user = unsafe {
            let nproc = libc::rlimit { rlim_cur: 8192, rlim_max: 8192 };
            libc::setrlimit(libc::RLIMIT_NPROC, &nproc);
            libc::setgid(uid) == 0 && libc::setuid(uid) == 0
        };
        if is_user {
            body();
        } else {
            exit(9);
        }
    })
}

fn exit(code: i32) -> ! {
    // SAFETY: ends this child.
    unsafe { libc::_exit(code) }
}

/// Root's thread that the attacks are aimed at: sections, for ever.
fn victim(board: &'static Board) -> Result<Child> {
    Child::fork(move || {
        loop {
            let _ = turbolane::wide_begin(2);
            spin(Duration::from_micros(300));
            let _ = turbolane::wide_end();
            spin(Duration::from_micros(300));
            board.sections.fetch_add(1, Relaxed);
            board.mask.store(own_mask(), Relaxed);
            board.status.store(turbolane::wide_status() as u64 + 1, Relaxed);
        }
    })
}

fn own_mask() -> u64 {
    let mut mask = [0u64; 16];
    // SAFETY: writes at most the given number of bytes.
    unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    mask[0]
}

/// One connection, and whatever is said over it.
fn connect(patience: Duration) -> Option<OwnedFd> {
    // SAFETY: plain structures, whose sizes are given; a new descriptor is ours.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return None;
        }
        let socket = OwnedFd::from_raw_fd(fd);
        let limit = libc::timeval { tv_sec: patience.as_secs() as i64, tv_usec: 0 };
        for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            let bytes = size_of_val(&limit) as u32;
            libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const limit).cast(), bytes);
        }
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as _;
        for (to, from) in address.sun_path.iter_mut().zip(SOCKET.bytes()) {
            *to = from as _;
        }
        let bytes = offset_of!(libc::sockaddr_un, sun_path) + SOCKET.len() + 1;
        (libc::connect(fd, (&raw const address).cast(), bytes as u32) == 0).then_some(socket)
    }
}

fn say(socket: &OwnedFd, bytes: &[u8]) {
    // SAFETY: reads the given bytes.
    unsafe {
        libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL)
    };
}

/// The reply, and all descriptors that came along.
fn hear(socket: &OwnedFd) -> Option<(Reply, Vec<OwnedFd>)> {
    let mut message = Message::default();
    let mut control = [0u64; 16];
    let mut fds = Vec::new();
    // SAFETY: the header points to local buffers of the given sizes; descriptors that come are new
    // and ours.
    let bytes = unsafe {
        let mut part =
            libc::iovec { iov_base: message.as_mut_ptr().cast(), iov_len: MESSAGE_BYTES };
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        let bytes = libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC);
        let entry = libc::CMSG_FIRSTHDR(&header);
        if bytes > 0 && !entry.is_null() && (*entry).cmsg_type == libc::SCM_RIGHTS {
            #[allow(clippy::unnecessary_cast)]
            let nr = ((*entry).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / 4;
            let data: *const i32 = libc::CMSG_DATA(entry).cast();
            fds.extend((0..nr).map(|i| OwnedFd::from_raw_fd(data.add(i).read_unaligned())));
        }
        bytes
    };
    (bytes == MESSAGE_BYTES as isize).then(|| (Reply::from_bytes(&message), fds))
}

fn request(tid: u32) -> Message {
    Request { magic: MAGIC, abi: page::ABI, op: OP_REGISTER, tid }.to_bytes()
}

fn own_tid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }.cast_unsigned()
}

/// The calling thread asks for its slot.
fn register() -> Option<(Reply, Vec<OwnedFd>)> {
    let socket = connect(PATIENCE)?;
    say(&socket, &request(own_tid()));
    hear(&socket).filter(|(reply, _)| reply.status == 0)
}

/// As much of a descriptor as can be mapped with these rights.
fn map(fd: &OwnedFd, rights: i32) -> Option<&'static mut [u8]> {
    [1_056_768, 1_053_696, 8192, 4096].into_iter().find_map(|bytes| {
        // SAFETY: a new mapping, never unmapped. Others may write it too; bytes are any value.
        unsafe {
            let memory =
                libc::mmap(ptr::null_mut(), bytes, rights, libc::MAP_SHARED, fd.as_raw_fd(), 0);
            // What lies beyond a file's end cannot be touched; one byte in the last page shows it.
            let is_there = memory != libc::MAP_FAILED && {
                let mut resident = [0u8; 512];
                libc::mincore(memory, bytes, resident.as_mut_ptr()) == 0 && fits(fd, bytes)
            };
            is_there.then(|| std::slice::from_raw_parts_mut(memory.cast(), bytes))
        }
    })
}

fn fits(fd: &OwnedFd, bytes: usize) -> bool {
    // SAFETY: writes to the local structure only.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(fd.as_raw_fd(), &mut stat) == 0
            && (stat.st_mode & libc::S_IFMT != libc::S_IFREG
                || stat.st_size as usize >= bytes.next_multiple_of(4096)
                || stat.st_size as usize >= bytes)
    }
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// "Affinity mode, and only CPU 0 is wide", wherever that may be written.
fn claim_affinity_mode(memory: &mut [u8]) {
    let mode = offset_of!(Header, mode);
    memory[mode..mode + 4].copy_from_slice(&page::MODE_AFFINITY.to_ne_bytes());
    for cpus in [1024, 4096] {
        if memory.len() >= cpus + 1024 {
            memory[cpus..cpus + 1024].fill(0x80);
            memory[cpus] = 3;
        }
    }
}

/// Everything that may be written is, first with a lie, later with rubbish. Exits 1 if nothing
/// could be mapped, so that the attack was none.
fn scribble(hold: &'static Board) {
    let Some((_, fds)) = register() else { exit(2) };
    let mut pages: Vec<_> = fds.iter().filter_map(|fd| map(fd, READ_WRITE)).collect();
    if pages.is_empty() {
        exit(1);
    }
    pages.iter_mut().for_each(|page| claim_affinity_mode(page));
    std::thread::sleep(Duration::from_secs(1));
    for round in 0..2000u32 {
        for page in &mut pages {
            let seed = u64::from(round) << 32 | 77;
            let mut random = fastrand::Rng::with_seed(seed);
            page.iter_mut().step_by(3).for_each(|byte| *byte = random.u8(..));
        }
    }
    hold.sections.store(1, Relaxed);
    pages.iter_mut().for_each(|page| page.fill(0xff));
}

/// Exits 1 if a slot of this thread can be read, or what is published cannot.
fn spy(tid: u32) {
    let Some((_, fds)) = register() else { exit(2) };
    let mut is_published = false;
    for memory in fds.iter().filter_map(|fd| map(fd, libc::PROT_READ)) {
        let magic = u32::from_ne_bytes(memory[..4].try_into().unwrap_or_default());
        is_published |= magic == page::MAGIC;
        let word = tid.to_ne_bytes();
        if memory.chunks_exact(4).any(|chunk| chunk == word) {
            exit(1);
        }
    }
    exit(if is_published { 0 } else { 3 });
}

/// Fresh processes of several users, one after the other, ask for a slot each; says how many got
/// none.
fn refused(nr: u32) -> Result<u32> {
    let mut refused = 0;
    for i in 0..nr {
        let uid = [0, 1000, 1001][i as usize % 3];
        let mut child = as_user(uid, || {
            let socket = connect(Duration::from_secs(2));
            let reply = socket.and_then(|socket| {
                say(&socket, &request(own_tid()));
                hear(&socket)
            });
            exit(i32::from(reply.is_none_or(|(reply, _)| reply.status != 0)));
        })?;
        refused += u32::from(child.wait()? != 0);
    }
    Ok(refused)
}

/// A process that comes now is served by the library as well.
fn newcomer_is_served() -> Result<()> {
    let mut child = Child::fork(|| {
        for _ in 0..400 {
            if turbolane::wide_status() != turbolane::Status::None {
                exit(0);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        exit(1);
    })?;
    ensure!(child.wait()? == 0, "a process that starts now is not served");
    Ok(())
}

fn start(mode: &str) -> Result<Lane> {
    let args = ["--mode", mode, "--wide-cpus", "2-3"];
    if mode == "scx" {
        return Lane::start(&args);
    }
    let lane = Lane::spawn(&args)?;
    wait_for("affinity mode is not up", PATIENCE, || turbolane(&["ctl", "status"]).is_ok())?;
    Ok(lane)
}

/// `nobody` writes all that it may write, in both modes: root's thread keeps its mask, its
/// scheduler and its CPUs, and those who come later are served.
pub fn scribblers() -> Result<()> {
    for (mode, status) in
        [("scx", turbolane::Status::Scx), ("affinity", turbolane::Status::Affinity)]
    {
        let lane = start(mode)?;
        let (board, hold) = (new_board()?, new_board()?);
        let target = victim(board)?;
        let is_served = || board.status.load(Relaxed) == status as u64 + 1;
        wait_for("the victim is not served", PATIENCE, is_served)?;
        let mut attacker = as_user(NOBODY, || scribble(hold))?;
        let seen = std::cell::Cell::new(u64::MAX);
        let status_now = std::cell::Cell::new(true);
        wait_for("the attacker does not come to its end", PATIENCE * 10, || {
            seen.set(seen.get() & board.mask.load(Relaxed));
            status_now.set(status_now.get() && is_served());
            hold.sections.load(Relaxed) != 0 || !is_running(attacker.pid)
        })?;
        let code = attacker.wait()?;
        ensure!(code == 0, "{mode}: the attacker had nothing to write to ({code})");
        ensure!(status_now.get(), "{mode}: the victim's library was led astray");
        // In affinity mode the victim itself goes to and fro between two pairs of CPUs.
        let expected: &[u64] = if mode == "scx" { &[0xf] } else { &[0xf, 0xc, 0x3] };
        let mask = board.mask.load(Relaxed);
        ensure!(expected.contains(&mask), "{mode}: root's thread was moved: mask {mask:#x}");
        ensure!(mode != "scx" || seen.get() & 0xf == 0xf, "{mode}: it was moved for a while");
        newcomer_is_served().context(mode.to_owned())?;
        lane.signal(libc::SIGINT);
        lane.wait()?;
        wait_for("root's thread was left on other CPUs", PATIENCE, || {
            board.mask.load(Relaxed) == 0xf
        })?;
        drop(target);
    }
    Ok(())
}

fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// `nobody` reads all that it may read: nothing of root's threads is there.
pub fn spies() -> Result<()> {
    let lane = start("scx")?;
    let board = new_board()?;
    let target = victim(board)?;
    let is_served = || board.status.load(Relaxed) == turbolane::Status::Scx as u64 + 1;
    wait_for("the victim is not served", PATIENCE, is_served)?;
    let tid = target.pid.cast_unsigned();
    let code = as_user(NOBODY, || spy(tid))?.wait()?;
    ensure!(
        code == 0,
        "{}",
        ["", "root's slot can be read", "no slot", "nothing is published"][code as usize]
    );
    drop(target);
    lane.stop().map(drop)
}

/// A process of thousands of idle threads asks for threads that it does not have, from several of
/// them at a time, each time a search; and asks for slots for all that it has. Others are served
/// all the while, in both modes.
pub fn many_threads() -> Result<()> {
    for mode in ["scx", "affinity"] {
        let lane = start(mode)?;
        let board = new_board()?;
        let crowd = as_user(NOBODY, || crowd(board))?;
        wait_for("the threads do not start", PATIENCE * 5, || board.sections.load(Relaxed) != 0)?;
        let threads = board.status.load(Relaxed);
        ensure!(threads >= 1000, "only {threads} threads could be started");
        let refused = refused(50)?;
        println!("{mode}: {threads} idle threads: {refused} of 50 registrations of others failed");
        ensure!(refused == 0, "{mode}: {refused} of 50 registrations of others failed");
        newcomer_is_served()?;
        drop(crowd);
        lane.signal(libc::SIGINT);
        lane.wait()?;
    }
    Ok(())
}

fn crowd(board: &'static Board) {
    let idle = || {
        std::thread::Builder::new().stack_size(16384).spawn(|| {
            loop {
                std::thread::park();
            }
        })
    };
    let threads = (0..4000).map_while(|_| idle().ok()).count();
    board.status.store(threads as u64, Relaxed);
    for _ in 0..8 {
        let _ = std::thread::Builder::new().spawn(|| {
            let none = u32::MAX >> 2;
            loop {
                if let Some(socket) = connect(PATIENCE) {
                    say(&socket, &request(none));
                    let _ = hear(&socket);
                }
            }
        });
    }
    board.sections.store(1, Relaxed);
    let tids: Vec<u32> = std::fs::read_dir("/proc/self/task")
        .map(|names| {
            names.filter_map(|name| name.ok()?.file_name().to_str()?.parse().ok()).collect()
        })
        .unwrap_or_default();
    for tid in tids.into_iter().cycle() {
        if let Some(socket) = connect(PATIENCE) {
            say(&socket, &request(tid));
            let _ = hear(&socket);
        }
    }
}

/// Silent, slow and talkative connections, more than the daemon has places and descriptors for;
/// bombs of children that hint and end; masks that change below open sections. Others are served
/// meanwhile, root's thread among them.
pub fn floods() -> Result<()> {
    let lane = start("scx")?;
    let board = new_board()?;
    let target = victim(board)?;
    let is_served = || board.status.load(Relaxed) == turbolane::Status::Scx as u64 + 1;
    wait_for("the victim is not served", PATIENCE, is_served)?;
    let attacks: [fn(); 5] = [silent, slow, garbage, bomb, masks];
    for (i, attack) in attacks.into_iter().enumerate() {
        let attackers = [as_user(NOBODY, attack)?, as_user(NOBODY, attack)?];
        std::thread::sleep(Duration::from_millis(500));
        let refused = refused(20)?;
        ensure!(refused == 0, "attack {i}: {refused} of 20 registrations of others failed");
        let before = board.sections.load(Relaxed);
        wait_for("the victim stops", PATIENCE, || board.sections.load(Relaxed) > before)?;
        end_all(attackers);
    }
    ensure!(is_served(), "the victim has lost its scheduler");
    newcomer_is_served()?;
    drop(target);
    lane.stop().map(drop)
}

/// Ends the attackers, and with them what they forked: all processes of `nobody`.
fn end_all(attackers: [Child; 2]) {
    let mut killer = as_user(NOBODY, || {
        // SAFETY: no memory of ours; as this user it reaches its own processes only.
        unsafe { libc::kill(-1, libc::SIGKILL) };
    });
    if let Ok(killer) = &mut killer {
        let _ = killer.wait();
    }
    drop(attackers);
}

fn silent() {
    let mut held = Vec::new();
    loop {
        match connect(PATIENCE) {
            Some(socket) => held.push(socket),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
        if held.len() > 900 {
            held.clear();
        }
    }
}

fn slow() {
    loop {
        let sockets: Vec<_> = (0..100).filter_map(|_| connect(PATIENCE)).collect();
        std::thread::sleep(Duration::from_millis(150));
        for socket in &sockets {
            say(socket, &request(own_tid())[..5]);
        }
    }
}

fn garbage() {
    let mut random = fastrand::Rng::with_seed(11);
    loop {
        if let Some(socket) = connect(PATIENCE) {
            let mut bytes = vec![0; random.usize(..100)];
            random.fill(&mut bytes);
            let starts_well = random.bool() && bytes.len() >= 4;
            if starts_well {
                bytes[..4].copy_from_slice(&MAGIC.to_ne_bytes());
            }
            say(&socket, &bytes);
        }
    }
}

fn bomb() {
    loop {
        let children: Vec<_> = (0..8)
            .filter_map(|_| {
                Child::fork(|| {
                    let _ = turbolane::wide_begin(3);
                    let threads: Vec<_> = (0..4)
                        .map(|_| std::thread::spawn(|| turbolane::wide_begin(1).is_ok()))
                        .collect();
                    threads.into_iter().for_each(|thread| drop(thread.join()));
                })
                .ok()
            })
            .collect();
        children.into_iter().for_each(|mut child| drop(child.wait()));
    }
}

fn masks() {
    let tid = own_tid().cast_signed();
    std::thread::spawn(move || {
        for bits in (1..16u32).cycle() {
            let mask: Vec<usize> = (0..4).filter(|cpu| bits >> cpu & 1 == 1).collect();
            let _ = set_affinity(tid, &mask);
        }
    });
    let slot = register();
    let pages: Vec<_> =
        slot.iter().flat_map(|(_, fds)| fds).filter_map(|fd| map(fd, READ_WRITE)).collect();
    let mut random = fastrand::Rng::with_seed(5);
    loop {
        let _ = turbolane::wide_begin(1 + random.u32(..3));
        for page in &pages {
            let at = random.usize(..page.len() / 4) * 4;
            // SAFETY: within the mapping; others may write it too.
            unsafe {
                page.as_ptr()
                    .cast_mut()
                    .add(at)
                    .cast::<u32>()
                    .write_volatile(SILENT >> random.u32(..32))
            };
        }
        let _ = turbolane::wide_end();
    }
}
