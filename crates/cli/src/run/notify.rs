// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run reports to the service manager that started it (sd_notify(3)).
//!
//! The manager names a datagram socket in NOTIFY_SOCKET; a message is lines of KEY=VALUE. `READY=1`
//! ends the start, `STOPPING=1` begins the end, `MAINPID` names the process that takes over.
//! WATCHDOG_USEC asks for `WATCHDOG=1` at least that often: the supervising loop sends it, so a
//! loop that hangs is noticed, and the manager ends the process, with which the kernel's own
//! scheduler takes over. Twice per interval, as sd_watchdog_enabled(3) recommends.
//!
//! Without a manager nothing is sent. A message that cannot be sent is dropped: the run matters
//! more.

use std::env;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// The connection to the service manager, if there is one.
pub(super) struct Manager {
    socket: Option<UnixDatagram>,
    ping: Option<Duration>,
    last: Instant,
}

impl Manager {
    /// The manager that the environment names.
    pub(super) fn from_environment() -> Self {
        let number = |name| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        // It may be meant for a process that started us, and not for us.
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|&us| us > 0 && is_ours);
        Self::new(env::var_os("NOTIFY_SOCKET").as_deref(), watchdog.map(Duration::from_micros))
    }

    fn new(address: Option<&OsStr>, watchdog: Option<Duration>) -> Self {
        let socket = address.and_then(connect);
        Manager { socket, ping: watchdog.map(|interval| interval / 2), last: Instant::now() }
    }

    /// Whether there is one.
    pub(super) fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// The run has started; `status` is what the manager shows.
    pub(super) fn ready(&self, status: &str) {
        // One line: a line break would begin another message.
        self.send(&format!("READY=1\nSTATUS={}", status.replace('\n', " ")));
    }

    /// The loop is alive. Sends only when a message is due.
    pub(super) fn alive(&mut self) {
        if self.ping.is_some_and(|ping| self.last.elapsed() >= ping) {
            self.last = Instant::now();
            self.send("WATCHDOG=1");
        }
    }

    /// Another process is the service from now on.
    pub(super) fn taken_over_by(&self, pid: u32) {
        self.send(&format!("MAINPID={pid}"));
    }

    /// The run is about to give the machine back.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, message: &str) {
        if let Some(socket) = &self.socket {
            _ = socket.send(message.as_bytes());
        }
    }
}

/// A socket connected to the manager's: a path, or an abstract name after an `@`.
fn connect(address: &OsStr) -> Option<UnixDatagram> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok()?,
        [b'/', ..] => SocketAddr::from_pathname(address).ok()?,
        _ => return None,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect_addr(&address).ok()?;
    // A manager that does not read must not stop the loop.
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(at: &UnixDatagram) -> Option<String> {
        let mut buffer = [0; 256];
        at.set_nonblocking(true).unwrap();
        let bytes = at.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..bytes]).into_owned())
    }

    /// Both kinds of addresses are reached, and a status of several lines is one message.
    #[test]
    fn messages_arrive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("turbolane-test-{}", std::process::id());
        let by_path = UnixDatagram::bind(&path).unwrap();
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let by_name = UnixDatagram::bind_addr(&abstract_name).unwrap();
        for (address, end) in
            [(path.into_os_string(), by_path), (format!("@{name}").into(), by_name)]
        {
            let manager = Manager::new(Some(&address), None);
            manager.ready("scx mode\nwide CPUs 3");
            assert_eq!(received(&end).unwrap(), "READY=1\nSTATUS=scx mode wide CPUs 3");
            manager.taken_over_by(7);
            assert_eq!(received(&end).unwrap(), "MAINPID=7");
            manager.stopping();
            assert_eq!(received(&end).unwrap(), "STOPPING=1");
        }
    }

    /// The watchdog is fed when half of its interval has passed, and never if none was requested.
    #[test]
    fn the_watchdog_is_fed_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let end = UnixDatagram::bind(&path).unwrap();
        let mut manager = Manager::new(Some(path.as_os_str()), Some(Duration::from_secs(3600)));
        manager.alive();
        assert_eq!(received(&end), None);
        manager.ping = Some(Duration::ZERO);
        manager.alive();
        assert_eq!(received(&end).unwrap(), "WATCHDOG=1");
        let mut manager = Manager::new(Some(path.as_os_str()), None);
        manager.alive();
        assert_eq!(received(&end), None);
    }

    /// No manager, one that is gone, and a name that is none: the run goes on.
    #[test]
    fn a_missing_manager_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone").into_os_string();
        for address in [None, Some(gone.as_os_str()), Some(OsStr::new("vsock:2:1"))] {
            let mut manager = Manager::new(address, Some(Duration::ZERO));
            manager.ready("");
            manager.alive();
            manager.stopping();
        }
    }
}
