// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another core writes the P-state (TURBO 9, "delegate: dedicated wrmsr core").
//!
//! Problem: setting a P-state is a system call and a register write that holds the core up for as
//! long as the hardware takes (28 k cycles to slow down on an AMD FX-8120, TURBO 8), and the owner
//! of a lock pays it inside the lock.
//!
//! Idea: each CPU has a mailbox with its latest request. The lock writes the request and rings; a
//! server thread carries the requests out. A request that is overtaken by the next one is never
//! carried out, and is not missed: only the latest counts.
//!
//! ```text
//!   mailbox[cpu]   0 nothing new   1 boost   2 slow   3 restore
//! ```
//!
//! [`OtherCore`] is a [`CpuFrequency`] around another one, so `Owner<OtherCore<F>>` is TURBO's
//! strategy. It needs a core to itself to be quick; on a machine without one to spare it is slower
//! than `Owner<F>`. When it is dropped, every CPU that it touched is restored first.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::io;
use std::sync::Arc;

use crate::bell::Bell;
use crate::frequency::{CpuFrequency, Request};
use crate::placed::{self, Placed};

const NOTHING: u32 = 0;

fn letter(request: Request) -> u32 {
    match request {
        Request::Boost => 1,
        Request::Slow => 2,
        Request::Restore => 3,
    }
}

/// Carries out requests on another core.
#[derive(Debug)]
pub struct OtherCore<F: CpuFrequency + 'static> {
    office: Arc<Office<F>>,
    server: Option<Placed>,
}

#[derive(Debug)]
struct Office<F> {
    frequency: F,
    mailboxes: Box<[AtomicU32]>,
    bell: Bell,
    closing: AtomicBool,
}

impl<F: CpuFrequency + 'static> OtherCore<F> {
    /// Starts the server for CPUs below `nr_cpus`, on `server_cpu` alone if one is named.
    pub fn new(frequency: F, nr_cpus: u32, server_cpu: Option<u32>) -> io::Result<Self> {
        let mailboxes = (0..nr_cpus).map(|_| AtomicU32::new(NOTHING)).collect();
        let office = Arc::new(Office {
            frequency,
            mailboxes,
            bell: Bell::default(),
            closing: AtomicBool::new(false),
        });
        let here = office.clone();
        let server = placed::start("tl-pstates", server_cpu, move || here.serve())?;
        Ok(OtherCore { office, server: Some(server) })
    }

    fn post(&self, cpu: u32, request: Request) {
        if let Some(mailbox) = self.office.mailboxes.get(cpu as usize) {
            mailbox.store(letter(request), Ordering::Release);
            self.office.bell.ring();
        }
    }
}

impl<F: CpuFrequency> Office<F> {
    fn serve(&self) {
        let mut touched = vec![false; self.mailboxes.len()];
        self.bell.serve(|| {
            // before the last round, so that requests from before the close are carried out
            let closing = self.closing.load(Ordering::Acquire);
            self.round(&mut touched);
            !closing
        });
        for (cpu, _) in (0..).zip(&touched).filter(|(_, touched)| **touched) {
            self.frequency.restore(cpu);
        }
    }

    fn round(&self, touched: &mut [bool]) {
        for ((cpu, mailbox), touched) in (0..).zip(&self.mailboxes[..]).zip(touched) {
            if mailbox.load(Ordering::Relaxed) == NOTHING {
                continue;
            }
            match mailbox.swap(NOTHING, Ordering::Acquire) {
                1 => self.frequency.boost(cpu),
                2 => self.frequency.slow(cpu),
                3 => self.frequency.restore(cpu),
                _ => continue,
            }
            *touched = true;
        }
    }
}

impl<F: CpuFrequency + 'static> CpuFrequency for OtherCore<F> {
    fn boost(&self, cpu: u32) {
        self.post(cpu, Request::Boost);
    }
    fn slow(&self, cpu: u32) {
        self.post(cpu, Request::Slow);
    }
    fn restore(&self, cpu: u32) {
        self.post(cpu, Request::Restore);
    }
}

impl<F: CpuFrequency + 'static> Drop for OtherCore<F> {
    fn drop(&mut self) {
        self.office.closing.store(true, Ordering::Release);
        self.office.bell.ring();
        if let Some(server) = self.server.take() {
            server.join();
        }
    }
}
