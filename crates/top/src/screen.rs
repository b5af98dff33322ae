// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of the screen, and what keys do to it. Draws nothing and reads nothing, so that a test
//! can press keys.

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use report::top::Top;

use crate::order::Selection;

/// Shortest interval: below it the view measures itself (`turbolane stats` has the same).
pub const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Longest interval that keys lead to.
const MAX_INTERVAL: Duration = Duration::from_secs(60);
/// Longest filter: no task's name is longer (15 bytes), no number either.
const FILTER_MAX: usize = 15;

/// How CPUs are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuView {
    /// Each on a line where that leaves room for the tasks, else by role.
    #[default]
    Fitting,
    /// Each on a line.
    Each,
    /// One line per role, with means.
    ByRole,
}

/// What is shown.
#[derive(Debug, Default)]
pub struct Screen {
    /// The latest interval; none before the first has passed.
    pub top: Option<Top>,
    /// Which tasks, in which order.
    pub selection: Selection,
    /// Tasks above the first one that is shown.
    pub scroll: usize,
    /// New intervals are not taken over.
    pub is_paused: bool,
    /// The explanation of keys and columns covers the tables.
    pub is_help: bool,
    /// A filter is being typed.
    pub is_editing: bool,
    /// How CPUs are listed.
    pub cpu_view: CpuView,
    /// Length of an interval.
    pub interval: Duration,
}

/// What the event loop has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Draw anew.
    Draw,
    /// Sample at another interval from now on.
    Interval(Duration),
    /// End.
    Quit,
}

impl Screen {
    /// An empty screen.
    pub fn new(selection: Selection, interval: Duration) -> Self {
        Screen { selection, interval, ..Screen::default() }
    }

    /// A new interval has passed.
    pub fn update(&mut self, top: Top) {
        if !self.is_paused || self.top.is_none() {
            self.top = Some(top);
        }
    }

    /// A key was pressed.
    pub fn key(&mut self, key: KeyEvent) -> Act {
        if key.kind == KeyEventKind::Release {
            return Act::Draw;
        }
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if has_control && matches!(key.code, KeyCode::Char('c' | 'C')) {
            return Act::Quit;
        }
        match key.code {
            code if self.is_editing => self.edit(code),
            KeyCode::Char(letter) if !has_control => return self.letter(letter),
            KeyCode::Esc if self.is_help => self.is_help = false,
            KeyCode::Esc => return Act::Quit,
            code => self.move_by(code),
        }
        Act::Draw
    }

    fn edit(&mut self, code: KeyCode) {
        let filter = &mut self.selection.filter;
        match code {
            KeyCode::Char(c) if filter.chars().count() < FILTER_MAX => filter.push(c),
            KeyCode::Backspace => _ = filter.pop(),
            KeyCode::Enter => self.is_editing = false,
            KeyCode::Esc => {
                filter.clear();
                self.is_editing = false;
            }
            _ => {}
        }
        self.scroll = 0;
    }

    fn letter(&mut self, letter: char) -> Act {
        match letter {
            'q' | 'Q' => return Act::Quit,
            '?' | 'h' => self.is_help = !self.is_help,
            'p' | ' ' => self.is_paused = !self.is_paused,
            's' => self.selection.sort = self.selection.sort.stepped(1),
            'S' => self.selection.sort = self.selection.sort.stepped(-1),
            'r' => self.selection.reverse = !self.selection.reverse,
            'c' => self.cpu_view = next(self.cpu_view),
            '/' => self.is_editing = true,
            '+' => return self.change_interval(self.interval * 2),
            '-' => return self.change_interval(self.interval / 2),
            _ => {}
        }
        Act::Draw
    }

    fn change_interval(&mut self, to: Duration) -> Act {
        self.interval = to.clamp(MIN_INTERVAL, MAX_INTERVAL);
        Act::Interval(self.interval)
    }

    fn move_by(&mut self, code: KeyCode) {
        const PAGE: usize = 10;
        let scroll = self.scroll;
        self.scroll = match code {
            KeyCode::Up => scroll.saturating_sub(1),
            KeyCode::Down => scroll + 1,
            KeyCode::PageUp => scroll.saturating_sub(PAGE),
            KeyCode::PageDown => scroll + PAGE,
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX / 2, // drawing goes no further than the last task
            _ => scroll,
        };
    }
}

fn next(view: CpuView) -> CpuView {
    match view {
        CpuView::Fitting => CpuView::Each,
        CpuView::Each => CpuView::ByRole,
        CpuView::ByRole => CpuView::Fitting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::SortKey;

    fn screen() -> Screen {
        Screen::new(Selection::default(), Duration::from_secs(1))
    }

    fn press(screen: &mut Screen, keys: &str) -> Act {
        let mut act = Act::Draw;
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                '\u{8}' => KeyCode::Backspace,
                letter => KeyCode::Char(letter),
            };
            act = screen.key(code.into());
        }
        act
    }

    /// The keys that end it; Escape closes the help before it ends the program.
    #[test]
    fn keys_end_the_program() {
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(screen().key(control_c), Act::Quit);
        assert_eq!(press(&mut screen(), "q"), Act::Quit);
        assert_eq!(press(&mut screen(), "\u{1b}"), Act::Quit);
        let mut screen = screen();
        assert_eq!(press(&mut screen, "?\u{1b}"), Act::Draw);
        assert!(!screen.is_help);
        assert_eq!(press(&mut screen, "\u{1b}"), Act::Quit);
    }

    /// While a filter is typed letters are letters, but Ctrl-C is not.
    #[test]
    fn a_filter_is_typed() {
        let mut screen = screen();
        assert_eq!(press(&mut screen, "/qsp\u{8}\n"), Act::Draw);
        assert_eq!((screen.selection.filter.as_str(), screen.is_editing), ("qs", false));
        press(&mut screen, "/a much too long name");
        assert_eq!(screen.selection.filter.len(), FILTER_MAX);
        press(&mut screen, "\u{1b}");
        assert_eq!((screen.selection.filter.as_str(), screen.is_editing), ("", false));
        press(&mut screen, "/");
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(screen.key(control_c), Act::Quit);
    }

    /// Intervals double and halve within bounds.
    #[test]
    fn the_interval_changes() {
        let mut screen = screen();
        assert_eq!(press(&mut screen, "+"), Act::Interval(Duration::from_secs(2)));
        assert_eq!(press(&mut screen, "---------"), Act::Interval(MIN_INTERVAL));
        assert_eq!(press(&mut screen, "++++++++++++"), Act::Interval(MAX_INTERVAL));
    }

    /// A paused screen keeps what it shows, and takes the next interval when it goes on.
    #[test]
    fn a_pause_keeps_the_picture() {
        let at = |interval_ns| Top { interval_ns, ..Top::default() };
        let mut screen = screen();
        press(&mut screen, "p");
        screen.update(at(1));
        screen.update(at(2));
        assert_eq!(screen.top, Some(at(1)), "an empty screen is no picture");
        press(&mut screen, "p");
        screen.update(at(3));
        assert_eq!(screen.top, Some(at(3)));
    }

    /// Sort keys go round, order turns, CPUs change their form, the list scrolls and stops at its
    /// begin.
    #[test]
    fn other_keys() {
        let mut screen = screen();
        press(&mut screen, "ssSrc");
        assert_eq!((screen.selection.sort, screen.selection.reverse), (SortKey::Wide, true));
        assert_eq!(screen.cpu_view, CpuView::Each);
        for code in [KeyCode::Up, KeyCode::Down, KeyCode::PageDown, KeyCode::Up] {
            screen.key(code.into());
        }
        assert_eq!(screen.scroll, 10);
        screen.key(KeyCode::Home.into());
        assert_eq!(screen.scroll, 0);
    }
}
