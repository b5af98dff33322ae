// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress on standard error: a spinner for people, plain lines for logs.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// One step under way. Dropped without [`Step::done`], it says nothing more:
/// the error that follows tells the story.
pub struct Step {
    what: String,
    start: Instant,
    spinner: Option<ProgressBar>,
}

impl Step {
    /// Announces a step.
    #[must_use]
    pub fn start(what: &str) -> Self {
        let spinner = std::io::stderr().is_terminal().then(|| spinner(what));
        if spinner.is_none() {
            eprintln!("{what} ...");
        }
        Self { what: what.to_owned(), start: Instant::now(), spinner }
    }

    /// Says that the step is complete, and how long it took.
    pub fn done(mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
        let seconds = self.start.elapsed().as_secs_f64();
        eprintln!("{}: done in {seconds:.1} s", self.what);
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }
}

fn spinner(what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg} [{elapsed}]")
        .expect("the template is a constant");
    let bar = ProgressBar::new_spinner().with_style(style).with_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}
