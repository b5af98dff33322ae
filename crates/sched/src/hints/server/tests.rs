// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server against the real library, in processes of their own, and against peers that are
//! anything but the library.

use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use turbolane_hint::page::{self, AREA_SLOTS, MODE_SCX, SILENT, Slot};
use turbolane_hint::protocol::{
    MAGIC, MESSAGE_BYTES, Message, OP_REGISTER, Reply, Request, SOCKET_ENV,
};

use super::super::memory::{Area, Board};
use super::super::slots::{Process, Slots, Thread};
use super::desk::{InProc, SPARE_AREAS};
use super::peers::{PEERS_MAX, Peer, dispensable, search_on};
use super::socket::{Caller, address, socket};
use super::*;

/// Longer than anything here takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

struct Setup {
    folder: tempfile::TempDir,
    server: HintServer,
    registrations: mpsc::Receiver<Registration>,
}

impl Setup {
    /// A server that takes everybody. All CPUs are fit.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (board, fd) = Board::memfd().unwrap();
        board.publish(MODE_SCX, 1024);
        board.set_flags(&[3; 1024]);
        let (tell, registrations) = mpsc::channel();
        let on_register = Box::new(move |registration| {
            tell.send(registration).unwrap();
            Ok(())
        });
        let path = folder.path().join("run").join("hint.sock");
        let server = HintServer::start(&path, fd, memfds(), on_register).unwrap();
        Setup { folder, server, registrations }
    }

    /// A slot as the daemon sees it.
    fn slot(&self, slot: u32) -> &'static Slot {
        let desk = lock(&self.server.desk);
        let area =
            Area::from_fd(desk.areas[&(slot / 64)].fd().try_clone_to_owned().unwrap()).unwrap();
        &Box::leak(Box::new(area)).slot[slot as usize % 64]
    }

    fn path(&self) -> &Path {
        &self.server.path
    }

    /// A client that has connected and said nothing.
    fn connect(&self) -> OwnedFd {
        let socket = socket().unwrap();
        let (address, bytes) = address(self.path()).unwrap();
        // SAFETY: reads the local address, whose length is given; the other call touches no memory.
        unsafe {
            let address = (&raw const address).cast();
            assert_eq!(libc::connect(socket.as_raw_fd(), address, bytes), 0);
            libc::fcntl(socket.as_raw_fd(), libc::F_SETFL, 0); // wait for replies
        }
        socket
    }

    /// What comes back when a client says this: a message, or `None` if the server hangs up.
    fn reply_to(&self, said: &[u8]) -> Option<Reply> {
        let socket = self.connect();
        say(&socket, said);
        hear(&socket)
    }
}

/// Areas are there before anybody asks, many made at once; one that could not be made is made when
/// it is needed, and whoever needed it gets the error if it still cannot.
#[test]
fn areas_are_made_ahead() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hint.sock");
    let (_board, fd) = Board::memfd().unwrap();
    let (tell, made) = mpsc::channel();
    let mut refuse = 0;
    let new_areas: NewAreas = Box::new(move |numbers| {
        tell.send(numbers.to_vec()).unwrap();
        refuse += 1;
        match refuse {
            2 | 3 => Err(Error::from_raw_os_error(libc::ENOMEM)),
            _ => memfds()(numbers),
        }
    });
    let server = HintServer::start(&path, fd, new_areas, Box::new(|_| Ok(()))).unwrap();
    let ahead: Vec<u32> = (0..SPARE_AREAS as u32).collect();
    assert_eq!(made.recv_timeout(PATIENCE).unwrap(), ahead);
    let mut desk = lock(&server.desk);
    let process = |tgid| Process { tgid, start_ticks: 1, uid: 0 };
    let give = |desk: &mut Desk, tgid| {
        let thread = Thread { tid: tgid, start_ticks: 1 };
        let given = desk.slots.give(process(tgid), thread, &InProc).unwrap();
        desk.use_spare_area(process(tgid), given.slot).map(|()| given.slot / AREA_SLOTS as u32)
    };
    for area in 0..SPARE_AREAS as u32 {
        assert_eq!(give(&mut desk, area + 1).unwrap(), area);
    }
    assert!(made.try_recv().is_err(), "more were made");
    desk.stock_up();
    assert_eq!(give(&mut desk, 100).unwrap_err().raw_os_error(), Some(libc::ENOMEM));
    let next = SPARE_AREAS as u32;
    assert_eq!(
        give(&mut desk, 101).unwrap(),
        next + 1,
        "the area that could not be made is given again later"
    );
    assert_eq!(
        made.try_iter().map(|numbers| numbers[0]).collect::<Vec<_>>(),
        [next, next, next + 1]
    );
}

fn memfds() -> NewAreas {
    Box::new(|numbers| numbers.iter().map(|_| Area::memfd()).collect())
}

fn say(socket: &OwnedFd, bytes: &[u8]) {
    // SAFETY: reads the given number of bytes.
    unsafe {
        libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL)
    };
}

fn hear(socket: &OwnedFd) -> Option<Reply> {
    let mut message = Message::default();
    // SAFETY: writes at most the given number of bytes to the local message.
    let bytes =
        unsafe { libc::recv(socket.as_raw_fd(), message.as_mut_ptr().cast(), MESSAGE_BYTES, 0) };
    (bytes == MESSAGE_BYTES as isize).then(|| Reply::from_bytes(&message))
}

fn my_tid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::gettid() as u32 }
}

fn request() -> Request {
    Request { magic: MAGIC, abi: page::ABI, op: OP_REGISTER, tid: my_tid() }
}

/// Starts this test program again, to run `application` only, as a user of the library.
fn start_application(socket: &Path, what: &str, namespace: bool) -> Child {
    let program = std::env::current_exe().unwrap();
    let mut command = match namespace {
        true => {
            let mut command = Command::new("unshare");
            command.args(["--pid", "--fork", "--kill-child"]).arg(program);
            command
        }
        false => Command::new(program),
    };
    let name = std::any::type_name_of_val(&application);
    let name = name.split_once("::").unwrap().1;
    command
        .args(["--exact", name, "--nocapture"])
        .env(SOCKET_ENV, socket)
        .env("TURBOLANE_TEST_APPLICATION", what)
        .stdin(Stdio::piped())
        .stdout(Stdio::null()) // the harness's talk
        .spawn()
        .unwrap()
}

/// Not a test but the other process of some: does what it is asked to until its stdin ends.
#[test]
fn application() {
    let Ok(what) = std::env::var("TURBOLANE_TEST_APPLICATION") else { return };
    match what.as_str() {
        "refused" => assert_eq!(turbolane_hint::wide_status(), turbolane_hint::Status::None),
        _ => eventually("served", || turbolane_hint::wide_status() == turbolane_hint::Status::Scx),
    }
    turbolane_hint::wide_begin(2).unwrap();
    std::io::read_to_string(std::io::stdin()).unwrap();
    turbolane_hint::wide_end().unwrap();
}

fn finish(mut application: Child) {
    drop(application.stdin.take());
    assert!(application.wait().unwrap().success());
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A thread of another process gets a slot with its own tid in it, and its hints arrive there.
#[test]
fn library_registers_and_hints_arrive() {
    let setup = Setup::new();
    let application = start_application(setup.path(), "served", false);
    let registration = setup.registrations.recv_timeout(PATIENCE).unwrap();
    assert_eq!(registration.tgid, application.id());
    assert!(hw::task::threads(registration.tgid).unwrap().contains(&registration.tid));
    let slot = setup.slot(registration.slot);
    eventually("the hint arrives", || slot.want.load(Relaxed) == 2);
    assert_eq!(slot.seq.load(Relaxed), 1);
    assert_eq!(slot.tid.load(Relaxed), registration.tid);
    finish(application);
    assert_eq!(slot.want.load(Relaxed), 0);
}

/// A thread in a PID namespace of its own, which knows itself by another number, is found too.
#[test]
fn thread_in_a_pid_namespace_is_found() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: a PID namespace needs root");
    }
    let setup = Setup::new();
    let application = start_application(setup.path(), "served", true);
    let registration = setup.registrations.recv_timeout(PATIENCE).unwrap();
    assert_ne!(registration.tgid, application.id(), "unshare's child registers");
    let status = fs::read_to_string(format!("/proc/{}/status", registration.tid)).unwrap();
    let numbers = status.lines().find(|line| line.starts_with("NSpid:")).unwrap();
    assert_eq!(numbers.split_whitespace().count(), 3, "{numbers}: here and in there");
    // Registered first, named on the page after it.
    let slot = setup.slot(registration.slot);
    eventually("the slot is named", || slot.tid.load(Relaxed) == registration.tid);
    finish(application);
}

/// Whoever says what is no request gets no reply or a refusal, and the next one is served.
#[test]
fn nonsense_is_refused() {
    let setup = Setup::new();
    let bytes = request().to_bytes();
    assert_eq!(setup.reply_to(&bytes[..15]), None);
    assert_eq!(setup.reply_to(&[&bytes[..], &[0]].concat()), None);
    assert_eq!(setup.reply_to(&[0; 4096]), None);
    assert_eq!(setup.reply_to(&Request { magic: 1, ..request() }.to_bytes()), None);
    let status = |request: Request| setup.reply_to(&request.to_bytes()).unwrap().status;
    assert_eq!(
        status(Request { abi: 1, ..request() }),
        -libc::EPROTONOSUPPORT,
        "the library before this one"
    );
    assert_eq!(status(Request { op: 0, ..request() }), -libc::EOPNOTSUPP);
    for tid in [0, 1, u32::MAX] {
        assert_eq!(status(Request { tid, ..request() }), -libc::ESRCH, "tid {tid} is not ours");
    }
    assert!(setup.registrations.try_recv().is_err());
    assert_eq!(status(request()), 0);
}

/// Silent peers, more than there are places for, do not keep out one that speaks.
#[test]
fn silent_peers_do_not_block_others() {
    let setup = Setup::new();
    let _silent: Vec<OwnedFd> = (0..3 * PEERS_MAX).map(|_| setup.connect()).collect();
    assert_eq!(setup.reply_to(&request().to_bytes()).unwrap().status, 0);
}

/// Who hangs up before the reply, or says its request twice, harms no one.
#[test]
fn rude_peers_harm_nobody() {
    let setup = Setup::new();
    for _ in 0..200 {
        let socket = setup.connect();
        say(&socket, &request().to_bytes());
        say(&socket, &request().to_bytes());
    }
    assert_eq!(setup.reply_to(&request().to_bytes()).unwrap().status, 0);
    let slots = setup.registrations.try_iter().map(|registration| registration.slot);
    assert!(slots.into_iter().all(|slot| slot == 0), "one thread has one slot");
}

/// With all areas taken the library goes unserved; the areas of processes that ended are given
/// again, empty.
#[test]
fn full_table() {
    let setup = Setup::new();
    lock(&setup.server.desk).slots = Slots::new(0);
    finish(start_application(setup.path(), "refused", false));
    lock(&setup.server.desk).slots = Slots::new(1);
    finish(start_application(setup.path(), "served", false));
    setup.slot(0).target_q10.store(7, Relaxed);
    finish(start_application(setup.path(), "served", false));
    assert_eq!(setup.slot(0).target_q10.load(Relaxed), 0, "what the process before asked for");
}

/// Two processes get an area each; with a reply come the board, which cannot be mapped for writing,
/// and the area.
#[test]
fn processes_have_areas_of_their_own() {
    let setup = Setup::new();
    let applications = [0, 1].map(|_| start_application(setup.path(), "served", false));
    let slots = [0, 1].map(|_| setup.registrations.recv_timeout(PATIENCE).unwrap().slot);
    assert_ne!(slots[0] / 64, slots[1] / 64);
    applications.into_iter().for_each(finish);
}

/// A search in a process of many threads is done in steps, the users in turn, and others are served
/// between them.
#[test]
fn users_take_turns_in_searches() {
    let mut peers: Vec<Peer> = [5, 5, 9]
        .map(|uid| {
            let search = hw::task::Search::new(std::process::id(), u32::MAX).unwrap();
            let socket = socket().unwrap();
            let caller = Caller { socket, tgid: 1, uid };
            Peer { caller, since: Instant::now(), search: Some(Box::new(search)) }
        })
        .into();
    let setup = Setup::new();
    let mut last = 0;
    let turns = [0, 1].map(|_| {
        search_on(&mut peers, &mut last, &setup.server.desk);
        last
    });
    assert_eq!(turns, [5, 9]);
}

/// The one that has to go is of the user with most connections.
#[test]
fn crowded_user_goes_first() {
    let peer = |uid| {
        let socket = socket().unwrap();
        let caller = Caller { socket, tgid: 1, uid };
        Peer { caller, since: Instant::now(), search: None }
    };
    assert_eq!(dispensable(&[7, 5, 5, 9].map(peer)), 1);
}

/// A thread that registers again has not said yet what it runs, but how fast it is to be.
#[test]
fn registering_again_keeps_the_target() {
    let setup = Setup::new();
    assert_eq!(setup.reply_to(&request().to_bytes()).unwrap().status, 0);
    let slot = setup.slot(0);
    slot.want.store(2, Relaxed);
    slot.target_q10.store(300, Relaxed);
    assert_eq!(setup.reply_to(&request().to_bytes()).unwrap().status, 0);
    assert_eq!((slot.want.load(Relaxed), slot.target_q10.load(Relaxed)), (SILENT, 300));
}

/// A registration that the scheduler refuses leaves no trace.
#[test]
fn refused_registration_leaves_no_trace() {
    let setup = Setup::new();
    setup.server.hand_over(Box::new(|_| Err(Error::from_raw_os_error(libc::ESRCH))));
    let reply = setup.reply_to(&request().to_bytes()).unwrap();
    assert_eq!(reply.status, -libc::ESRCH);
    assert_eq!(setup.slot(0).tid.load(Relaxed), 0);
    assert_eq!(lock(&setup.server.desk).slots.iter().count(), 0);
}

/// A scheduler loaded anew learns of the living threads, in their slots, and of no others.
#[test]
fn hand_over_introduces_the_living() {
    let setup = Setup::new();
    finish(start_application(setup.path(), "served", false));
    let ended = setup.registrations.recv_timeout(PATIENCE).unwrap();
    assert_eq!(setup.reply_to(&request().to_bytes()).unwrap().status, 0);
    let living = setup.registrations.recv_timeout(PATIENCE).unwrap();
    assert_ne!(ended.slot, living.slot);
    let (tell, told) = mpsc::channel();
    setup.server.hand_over(Box::new(move |registration| {
        tell.send(registration).unwrap();
        Ok(())
    }));
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [living]);
    assert_eq!(setup.slot(living.slot).tid.load(Relaxed), my_tid());
}

/// Another server goes on where this one stops: the same slots in the same memory, of the same run,
/// and the scheduler hears of the living.
#[test]
fn another_server_goes_on() {
    let setup = Setup::new();
    let first = setup.reply_to(&request().to_bytes()).unwrap();
    let slot = setup.slot(first.slot);
    slot.want.store(2, Relaxed);
    let area = {
        let desk = lock(&setup.server.desk);
        Area::from_fd(desk.areas[&0].fd().try_clone_to_owned().unwrap()).unwrap()
    };
    let path = setup.path().to_owned();
    let Setup { folder, server, .. } = setup;
    let given = server.stop();
    assert!(!path.exists());
    let (tell, told) = mpsc::channel();
    let on_register = Box::new(move |registration: Registration| {
        tell.send(registration).unwrap();
        Ok(())
    });
    let (_board, fd) = Board::memfd().unwrap();
    let areas = HashMap::from([(0, area)]);
    let server = HintServer::go_on(&path, fd, memfds(), on_register, &given, areas).unwrap();
    let introduced: Vec<_> = told.try_iter().map(|to| (to.tid, to.slot)).collect();
    assert_eq!(introduced, [(my_tid(), first.slot)]);
    assert_eq!(slot.want.load(Relaxed), 2, "what the thread has said is lost");
    let setup = Setup { folder, server, registrations: told };
    let second = setup.reply_to(&request().to_bytes()).unwrap();
    assert_eq!((second.slot, second.run_id), (first.slot, first.run_id));
}

/// The socket is everybody's, its folder is not; the file is gone with the server.
#[test]
fn socket_file_comes_and_goes() {
    let setup = Setup::new();
    let path = setup.path().to_owned();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o666);
    assert_eq!(mode(path.parent().unwrap()) & 0o022, 0);
    drop(setup.server);
    assert!(!path.exists());
    drop(setup.folder);
}

/// A second server is refused because there is one; a dead one's socket is replaced; another file
/// is not.
#[test]
fn second_server_fails() {
    let setup = Setup::new();
    let start = |path: &Path| {
        let (_board, fd) = Board::memfd().unwrap();
        HintServer::start(path, fd, memfds(), Box::new(|_| Ok(())))
    };
    let refusal = start(setup.path()).err().unwrap();
    assert_eq!(refusal.kind(), ErrorKind::AddrInUse);
    assert!(refusal.to_string().contains("another scheduler"), "{refusal}");
    assert_eq!(setup.reply_to(&request().to_bytes()).unwrap().status, 0, "the first serves on");

    let stale = setup.folder.path().join("stale.sock");
    drop(listen(&stale).unwrap());
    drop(start(&stale).unwrap());

    let precious = setup.folder.path().join("precious");
    fs::write(&precious, "text").unwrap();
    assert_eq!(start(&precious).err().unwrap().kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "text");
}
