// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user's terminal: taken for the time of the view, and given back however that ends.
//!
//! Raw mode and the alternate screen outlive the program that set them, and leave a shell that
//! shows nothing of what is typed. It is restored in all cases: a normal end and an error drop the
//! guard; a panic goes through the hook, which gives the terminal back first, so that the message
//! is seen; SIGTERM, SIGINT and SIGHUP are no end but a note that the loop finds ([`crate::live`]).
//! What is left is kill -9, after which `reset` helps.

use std::io::{self, Stdout, stdout};
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// The terminal while it is ours.
pub struct TakenTerminal {
    /// What is drawn on.
    pub terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl TakenTerminal {
    /// Takes the terminal on standard output. On an error it is as it was.
    pub fn take() -> io::Result<Self> {
        restore_before_panics();
        enable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::Relaxed);
        let taken = execute!(stdout(), EnterAlternateScreen, Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        match taken {
            Ok(terminal) => Ok(TakenTerminal { terminal }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }
}

impl Drop for TakenTerminal {
    fn drop(&mut self) {
        restore();
    }
}

/// The terminal is ours. Giving it back twice would put the cursor where it was before, over the
/// panic's message.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// A terminal that has gone needs nothing.
fn restore() {
    if !IS_TAKEN.swap(false, Ordering::Relaxed) {
        return;
    }
    _ = execute!(stdout(), LeaveAlternateScreen, Show);
    _ = disable_raw_mode();
}

fn restore_before_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let told = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            told(info);
        }));
    });
}
