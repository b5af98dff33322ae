// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws the screen: what happened in all, the CPUs, the tasks, the keys.
//!
//! ```text
//! turbolane top: 1.00s, lane scx, wide CPUs 2-3, for 61.0s
//! migrations/s 310: 150 to wide CPUs, 150 from them, 10 other
//! per second: 300 type changes, 600 hints, 0.0 marks, 0.0 traps; 0 size changes
//!
//!  CPU  ROLE     LEVEL   BUSY%   WIDE%  SCALAR%  DEFAULT%    MHz
//! ...
//!     TID  TYPE     LVL  MEAN  SCORE   CPU%  WIDE%  MIGR/s    ON  NAME
//! ...
//! q quit  ? help  s sort: cpu  p pause  / filter  +- 1.00s
//! ```
//!
//! It uses no colour: bold and reversed titles structure the screen on any terminal, in any theme,
//! and with NO_COLOR. A window that is too narrow loses columns in order of their rank, one that is
//! too low loses tasks first, then CPUs. Names of tasks may be any user's text: what a terminal
//! would obey is taken out (`report::top::printable`).

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Clear, Paragraph};
use report::text::{duration, pad};
use report::top::{CPU_COLUMNS, Column, TASK_COLUMNS, Top, TopCpu, columns_in, printable};

use crate::screen::{CpuView, Screen};

/// What the help says, after the notes on what is not visible.
const HELP: &str = "\
q, Esc, Ctrl-C  quit             p, space  pause, go on
s, S            sort by another  r         reverse the order
/               filter: part of a name, a type, a number; Esc ends it
+, -            longer, shorter intervals
c               CPUs: each, by role, as it fits
arrows, PgUp, PgDn, Home, End    scroll the tasks
?               close this

CPUs   ROLE: wide N runs tasks up to licence level N; scalar none.
       LEVEL: mean licence level of the core. WIDE%, SCALAR%, DEFAULT%:
       share of the interval with tasks of that type.
tasks  LVL: what its hints, marks and traps say now. MEAN: the same over
       its CPU time. SCORE: power score, from counters. WIDE%: share of its
       own CPU time. MIGR/s: starts on another CPU. ON: its last CPU.";

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, screen: &Screen) {
    let area = frame.area();
    let Some((body, foot)) = split_last_line(area) else { return };
    frame.render_widget(Clear, area);
    let lines = match &screen.top {
        None => vec![Line::raw(format!("measuring for {} ...", interval(screen)))],
        Some(top) if screen.is_help => help(top),
        Some(top) => lines(screen, top, body),
    };
    frame.render_widget(Paragraph::new(lines), body);
    let foot_line = Line::styled(footer(screen), Style::new().add_modifier(Modifier::REVERSED));
    frame.render_widget(Paragraph::new(foot_line), foot);
}

/// The last line is the footer's; nothing is drawn on a window without lines.
fn split_last_line(area: Rect) -> Option<(Rect, Rect)> {
    let height = area.height.checked_sub(1)?;
    let foot = Rect { y: area.y + height, height: 1, ..area };
    Some((Rect { height, ..area }, foot))
}

fn interval(screen: &Screen) -> String {
    duration(screen.interval.as_nanos() as u64)
}

fn footer(screen: &Screen) -> String {
    let selection = &screen.selection;
    if screen.is_editing {
        return format!(
            "filter: {}_   (Enter: keep it, Esc: no filter)",
            printable(&selection.filter)
        );
    }
    let mut text = String::new();
    if screen.is_paused {
        text += "PAUSED  ";
    }
    if !selection.filter.is_empty() {
        text += &format!("FILTER {}  ", printable(&selection.filter));
    }
    let turned = if selection.reverse { " reversed" } else { "" };
    let sort = selection.sort.word();
    let interval = interval(screen);
    text + &format!("q quit  ? help  s sort: {sort}{turned}  p pause  / filter  +- {interval}")
}

fn help(top: &Top) -> Vec<Line<'static>> {
    let notes = top.notes().into_iter();
    let mut lines: Vec<Line<'static>> = HELP.lines().map(Line::raw).collect();
    lines.push(Line::default());
    lines.extend(notes.map(Line::raw));
    lines
}

fn lines(screen: &Screen, top: &Top, area: Rect) -> Vec<Line<'static>> {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut lines: Vec<Line<'static>> = top.head().into_iter().map(Line::raw).collect();
    lines.push(Line::default());
    let cpus = cpu_rows(screen.cpu_view, &top.cpus, height.saturating_sub(lines.len()));
    lines.extend(table(&CPU_COLUMNS, width, cpus));
    lines.push(Line::default());
    let mut chosen = top.clone();
    screen.selection.apply(&mut chosen);
    let room = height.saturating_sub(lines.len() + 1).max(1);
    let first = screen.scroll.min(chosen.tasks.len().saturating_sub(room));
    let shown = chosen.tasks.iter().skip(first).take(room);
    lines.extend(table(&TASK_COLUMNS, width, shown.map(|task| (None, task.clone())).collect()));
    lines
}

/// The rows of CPUs, each with what is shown instead of its number. Each CPU by itself if that
/// takes no more than half of the room.
fn cpu_rows(view: CpuView, cpus: &[TopCpu], room: usize) -> Vec<(Option<String>, TopCpu)> {
    let is_each = match view {
        CpuView::Each => true,
        CpuView::ByRole => false,
        CpuView::Fitting => cpus.len() <= (room / 2).max(1),
    };
    if is_each {
        return cpus.iter().map(|cpu| (None, *cpu)).collect();
    }
    let role = |cpu: &TopCpu| (cpu.role, cpu.role_level);
    let mut roles: Vec<_> = cpus.iter().map(role).collect();
    roles.sort_unstable();
    roles.dedup();
    let of_role = |wanted| cpus.iter().filter(|cpu| role(cpu) == wanted).collect::<Vec<_>>();
    roles.into_iter().map(|role| mean(&of_role(role))).collect()
}

/// A row for all these CPUs: how many there are, and their means.
fn mean(cpus: &[&TopCpu]) -> (Option<String>, TopCpu) {
    let of = |value: fn(&TopCpu) -> Option<f64>| {
        let known: Vec<f64> = cpus.iter().filter_map(|cpu| value(cpu)).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let row = TopCpu {
        cpu: 0,
        role: cpus[0].role,
        role_level: cpus[0].role_level,
        license_level: of(|cpu| cpu.license_level),
        busy_pct: of(|cpu| cpu.busy_pct),
        wide_pct: of(|cpu| cpu.wide_pct),
        scalar_pct: of(|cpu| cpu.scalar_pct),
        default_pct: of(|cpu| cpu.default_pct),
        frequency_khz: of(|cpu| cpu.frequency_khz.map(f64::from)).map(|khz| khz as u32),
    };
    (Some(format!("{}x", cpus.len())), row)
}

/// Titles and rows; a row's first cell may be given.
fn table<T>(
    columns: &[Column<T>],
    width: usize,
    rows: Vec<(Option<String>, T)>,
) -> Vec<Line<'static>> {
    let columns = columns_in(columns, width);
    let line = |cell: &dyn Fn(usize, &Column<T>) -> String| {
        let cells = columns
            .iter()
            .enumerate()
            .map(|(at, column)| pad(&cell(at, column), usize::from(column.width), column.align));
        cells.collect::<Vec<String>>().join("  ")
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut lines = vec![Line::styled(line(&|_, column| column.title.into()), bold)];
    for (first, row) in rows {
        lines.push(Line::raw(line(&|at, column| match &first {
            Some(text) if at == 0 => text.clone(),
            _ => (column.cell)(&row),
        })));
    }
    lines
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
