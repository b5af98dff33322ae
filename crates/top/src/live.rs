// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop: a thread that samples, and one that draws and listens to keys.
//!
//! Two threads, for the lane may take its time to answer (it restarts while CPUs come and go), and
//! `q` must work meanwhile. The sampler sleeps on the channel that sends it another interval; the
//! screen's thread looks at keys, at signals and at what was sampled ten times a second, and draws
//! if there was anything.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use hw::Source;
use ratatui::crossterm::event::{self, Event};
use report::top::Top;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::draw::draw;
use crate::growth::Meter;
use crate::sample::Sampler;
use crate::screen::{Act, Screen};
use crate::terminal::TakenTerminal;

/// Longest time until a signal or a sample is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Intervals of a machine and its lane, one after the other.
pub struct Intervals<S> {
    sampler: Sampler<S>,
    meter: Meter,
    begun: Instant,
}

impl<S: Source> Intervals<S> {
    /// Takes the sample with which the first interval begins. An error if the machine does not
    /// report it.
    pub fn begin(sampler: Sampler<S>) -> io::Result<Self> {
        let meter = Meter::new(hw::activity::ticks_per_second());
        let mut intervals = Intervals { sampler, meter, begun: Instant::now() };
        intervals.end_one()?;
        Ok(intervals)
    }

    /// The interval that ends now; `None` for the first sample.
    pub fn end_one(&mut self) -> io::Result<Option<Top>> {
        let at_ns = self.begun.elapsed().as_nanos() as u64;
        Ok(self.meter.add(self.sampler.sample(at_ns)?))
    }
}

/// What tests make the view do wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Panic at the first interval.
    Panic,
}

/// Shows intervals on the terminal until a key or a signal ends it.
pub fn show<S: Source + Send + 'static>(
    intervals: Intervals<S>,
    mut screen: Screen,
    fault: Fault,
) -> io::Result<()> {
    let is_ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&is_ended))?;
    }
    let (change, changes) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let interval = screen.interval;
    thread::Builder::new()
        .name("turbolane-top".into())
        .spawn(move || sample_on(intervals, interval, &changes, &tell))?;
    let mut taken = TakenTerminal::take()?;
    taken.terminal.draw(|frame| draw(frame, &screen))?;
    while !is_ended.load(Ordering::Relaxed) {
        let mut is_new = false;
        while let Some(top) = next_told(&told)? {
            assert!(fault != Fault::Panic, "provoked on purpose (--fault panic)");
            screen.update(top);
            is_new = true;
        }
        if event::poll(LOOK_EVERY)? {
            match act(&mut screen, event::read()?) {
                Act::Quit => return Ok(()),
                // A sampler that has ended says so in next_told().
                Act::Interval(interval) => _ = change.send(interval),
                Act::Draw => {}
            }
            is_new = true;
        }
        if is_new {
            taken.terminal.draw(|frame| draw(frame, &screen))?;
        }
    }
    Ok(())
}

fn act(screen: &mut Screen, event: Event) -> Act {
    match event {
        Event::Key(key) => screen.key(key),
        // A new size, among others: drawing asks for it.
        _ => Act::Draw,
    }
}

/// The next interval if there is one already; the sampler's error if it had one.
fn next_told(told: &Receiver<io::Result<Top>>) -> io::Result<Option<Top>> {
    match told.try_recv() {
        Ok(top) => top.map(Some),
        Err(mpsc::TryRecvError::Empty) => Ok(None),
        Err(mpsc::TryRecvError::Disconnected) => Err(io::Error::other("the sampler has ended")),
    }
}

/// Samples until no one listens or the machine does not report any more.
fn sample_on<S: Source>(
    mut intervals: Intervals<S>,
    mut interval: Duration,
    changes: &Receiver<Duration>,
    tell: &Sender<io::Result<Top>>,
) {
    loop {
        match changes.recv_timeout(interval) {
            Ok(changed) => {
                interval = changed;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let next = intervals.end_one().transpose();
        let is_error = matches!(next, Some(Err(_)));
        if next.is_some_and(|next| tell.send(next).is_err()) || is_error {
            return;
        }
    }
}
