// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server's thread: who has connected, who has spoken, whose thread is searched, and whose turn
//! it is.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hw::task::{Lookup, Search};
use turbolane_hint::protocol::{MAGIC, Request, TIMEOUT_MS};

use super::desk::Desk;
use super::socket::{self, Caller};
use crate::lock::lock;

/// Connections at once. Honest ones last microseconds.
pub(super) const PEERS_MAX: usize = 64;

/// Threads that a search looks at in one step, about 1 ms.
const SEARCH_STEP: usize = 48;

/// Rest after the kernel refused a connection for want of memory or descriptors.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// Someone who has connected and has not been answered yet.
pub(super) struct Peer {
    pub(super) caller: Caller,
    pub(super) since: Instant,
    /// It has spoken, and its thread is searched.
    pub(super) search: Option<Box<Search>>,
}

/// The server's thread.
pub(super) fn serve(listener: &OwnedFd, stopped: &OwnedFd, desk: &Mutex<Desk>) {
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
pub(super) fn search_on(peers: &mut Vec<Peer>, last_searched: &mut u32, desk: &Mutex<Desk>) {
    let searching = || peers.iter().enumerate().filter(|(_, peer)| peer.search.is_some());
    let turn = |uid: u32| uid.wrapping_sub(last_searched.wrapping_add(1));
    let Some((at, _)) = searching().min_by_key(|(at, peer)| (turn(peer.caller.uid), *at)) else {
        return;
    };
    *last_searched = peers[at].caller.uid;
    let step = peers[at].search.as_mut().map(|search| search.step(SEARCH_STEP));
    let found = match step {
        Some(Ok(Some(tid))) => Ok(tid),
        Some(Err(error)) => Err(error),
        _ => return,
    };
    let peer = peers.remove(at);
    lock(desk).answer(&peer.caller, found);
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
    let fd_of = |peer: &Peer| if is_silent(peer) { peer.caller.as_raw_fd() } else { -1 };
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
        match socket::accept(listener) {
            Ok(Some(caller)) => {
                if peers.len() == PEERS_MAX {
                    peers.remove(dispensable(peers));
                }
                peers.push(Peer { caller, since: Instant::now(), search: None });
            }
            Ok(None) => {}
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return,
                ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                _ => return std::thread::sleep(REFUSED_PAUSE),
            },
        }
    }
}

/// The oldest peer of the user who has most.
pub(super) fn dispensable(peers: &[Peer]) -> usize {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    peers.iter().for_each(|peer| *counts.entry(peer.caller.uid).or_default() += 1);
    let crowded = counts.into_iter().max_by_key(|(_, count)| *count).map(|(uid, _)| uid);
    peers.iter().position(|peer| Some(peer.caller.uid) == crowded).unwrap_or(0)
}

/// Reads a peer's request, if it is one, and answers it; true if its thread must be searched first.
fn serve_peer(peer: &mut Peer, desk: &Mutex<Desk>) -> bool {
    let request = peer.caller.receive().map(|message| Request::from_bytes(&message));
    let Some(request) = request.filter(|request| request.magic == MAGIC) else { return false };
    let mut desk = lock(desk);
    match desk.look_up(&peer.caller, request) {
        Ok(Lookup::Found(tid)) => desk.answer(&peer.caller, Ok(tid)),
        Ok(Lookup::Search(search)) => peer.search = Some(Box::new(search)),
        Err(error) => desk.answer(&peer.caller, Err(error)),
    }
    peer.search.is_some()
}
