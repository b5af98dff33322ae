// SPDX-License-Identifier: MIT OR Apache-2.0
//! How wide the user's window is.

use std::env;

/// Width where there is no window: a file or a pipe.
const DEFAULT_COLUMNS: usize = 80;
/// Longer lines are hard to read.
const MAX_COLUMNS: usize = 110;

/// Columns to lay text out for: `COLUMNS`, else the window's, else 80; at most 110.
pub(crate) fn width() -> usize {
    let from_environment = env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    from_environment.or_else(window_columns).unwrap_or(DEFAULT_COLUMNS).min(MAX_COLUMNS)
}

fn window_columns() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes a winsize to the pointer, which is valid for it; on anything
    // but a terminal it fails and writes nothing.
    let answer = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) };
    (answer == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}
