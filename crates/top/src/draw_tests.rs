// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pictures of the screen. A change on purpose: look at the new picture in the test's output.

use std::time::Duration;

use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use report::top::{CpuRole, TaskType, TasksFrom, TopLane, TopTask, TopTotals};

use crate::order::Selection;

fn cpu(cpu: u32, role: CpuRole, busy_pct: f64, wide_pct: f64) -> TopCpu {
    TopCpu {
        cpu,
        role: Some(role),
        role_level: Some(if role == CpuRole::Wide { 3 } else { 0 }),
        license_level: None,
        busy_pct: Some(busy_pct),
        wide_pct: Some(wide_pct),
        scalar_pct: Some(busy_pct - wide_pct),
        default_pct: Some(0.0),
        frequency_khz: Some(2_800_000),
    }
}

fn task(tid: u32, name: &str, task_type: TaskType, cpu_pct: f64) -> TopTask {
    let is_wide = task_type == TaskType::Wide;
    TopTask {
        tid,
        pid: 4242,
        name: name.into(),
        task_type: Some(task_type),
        license_level: Some(if is_wide { 2 } else { 0 }),
        mean_level: Some(if is_wide { 1.25 } else { 0.0 }),
        power_score: None,
        cpu: 3,
        cpu_pct,
        wide_pct: Some(if is_wide { 62.5 } else { 0.0 }),
        migrations_per_s: Some(if is_wide { 310.0 } else { 0.5 }),
        traps_per_s: Some(0.0),
    }
}

fn top() -> Top {
    Top {
        interval_ns: 1_000_000_000,
        lane: Some(TopLane {
            pid: 42,
            mode: "scx".into(),
            uptime_ns: 61_000_000_000,
            wide_cpus: "2-3".into(),
            scalar_cpus: "0-1".into(),
        }),
        lane_why: None,
        license_level_why: Some("this CPU model has no counters of licence levels".into()),
        power_score_why: Some("no counters feed it".into()),
        tasks_from: TasksFrom::Lane,
        totals: TopTotals {
            migrations_per_s: Some(310.0),
            migrations_to_wide_per_s: Some(150.0),
            migrations_from_wide_per_s: Some(149.0),
            type_changes_per_s: Some(300.0),
            hints_per_s: Some(600.0),
            marks_per_s: Some(0.0),
            traps_per_s: Some(0.0),
            size_changes: Some(0),
        },
        cpus: vec![
            cpu(0, CpuRole::Scalar, 100.0, 0.0),
            cpu(1, CpuRole::Scalar, 37.5, 0.0),
            cpu(2, CpuRole::Wide, 99.0, 95.5),
            cpu(3, CpuRole::Wide, 0.0, 0.0),
        ],
        tasks: vec![
            task(4243, "encoder", TaskType::Wide, 95.5),
            task(4242, "nginx: worker", TaskType::Scalar, 50.0),
        ],
        tasks_left_out: 0,
    }
}

fn screen(top: Top) -> Screen {
    let mut screen = Screen::new(Selection::default(), Duration::from_secs(1));
    screen.update(top);
    screen
}

fn picture(screen: &Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, screen)).unwrap();
    let buffer = terminal.backend().buffer();
    let cell = |x, y| buffer[(x, y)].symbol().to_string();
    let line = |y| (0..width).map(|x| cell(x, y)).collect::<String>().trim_end().to_string();
    (0..height).map(line).collect()
}

/// The usual window: nothing of what matters is cut off, numbers are under their titles.
#[test]
fn eighty_by_twenty_four() {
    let lines = picture(&screen(top()), 80, 24);
    let expected = "\
turbolane top: 1.00s, lane scx, wide CPUs 2-3, for 61.0s
migrations/s 310: 150 to wide CPUs, 149 from them, 11 other
per second: 300 type changes, 600 hints, 0.0 marks, 0.0 traps; 0 size changes

 CPU  ROLE     LEVEL   BUSY%   WIDE%  SCALAR%  DEFAULT%    MHz
   0  scalar       -   100.0     0.0    100.0       0.0   2800
   1  scalar       -    37.5     0.0     37.5       0.0   2800
   2  wide 3       -    99.0    95.5      3.5       0.0   2800
   3  wide 3       -     0.0     0.0      0.0       0.0   2800

    TID  TYPE     LVL  MEAN  SCORE   CPU%  WIDE%  MIGR/s    ON  NAME
   4243  wide       2  1.25      -   95.5   62.5     310     3  encoder
   4242  scalar     0  0.00      -   50.0    0.0     0.5     3  nginx: worker";
    assert_eq!(lines[..13].join("\n"), expected);
    assert!(lines[13..23].iter().all(String::is_empty), "{lines:#?}");
    assert_eq!(lines[23], "q quit  ? help  s sort: cpu  p pause  / filter  +- 1.00s");
}

/// A narrow window loses columns, not the ends of lines in the tables.
#[test]
fn forty_by_twelve() {
    let lines = picture(&screen(top()), 40, 12);
    let expected = "\
\x20CPU  ROLE      BUSY%   WIDE%    MHz
  2x  scalar     68.8     0.0   2800
  2x  wide 3     49.5    47.8   2800

    TID  TYPE      CPU%  NAME
   4243  wide      95.5  encoder
   4242  scalar    50.0  nginx: worker";
    assert_eq!(lines[4..11].join("\n"), expected, "{lines:#?}");
}

/// A wide window has all columns.
#[test]
fn a_wide_window_has_all_columns() {
    let lines = picture(&screen(top()), 130, 24).join("\n");
    for column in TASK_COLUMNS.iter().map(|c| c.title).chain(CPU_COLUMNS.iter().map(|c| c.title)) {
        assert!(lines.contains(column), "{column}: {lines}");
    }
}

/// No window is too small to draw on.
#[test]
fn every_size_is_drawn() {
    for is_help in [false, true] {
        let screen = Screen { is_help, scroll: 9, ..screen(top()) };
        for (width, height) in [(1, 1), (2, 2), (5, 3), (10, 4), (79, 5), (300, 1), (1, 100)] {
            picture(&screen, width, height);
        }
    }
    picture(&Screen::default(), 80, 24);
}

/// A name that would clear the screen, turn the text around or break the line does none of it.
#[test]
fn hostile_names_are_harmless() {
    let mut top = top();
    top.tasks[0].name = "\u{1b}[2Jx\r\n\u{202e}y\u{9b}1m\0".into();
    top.tasks[1].name = "\u{1f980}\u{4e2d}\u{6587}".repeat(20);
    let lines = picture(&screen(top), 80, 24);
    assert!(lines[11].ends_with("?[2Jx???y?1m?"), "{}", lines[11]);
    assert!(lines[12].contains("scalar") && lines[13].is_empty(), "{lines:#?}");
}

/// Many CPUs become a line per role, so that tasks have room; a key shows each.
#[test]
fn many_cpus_are_summed_up() {
    let mut top = top();
    let role = |n| if n < 120 { CpuRole::Scalar } else { CpuRole::Wide };
    top.cpus = (0..128).map(|n| cpu(n, role(n), 50.0, 0.0)).collect();
    let mut screen = screen(top);
    let lines = picture(&screen, 80, 24);
    assert_eq!(lines[5], "120x  scalar       -    50.0     0.0     50.0       0.0   2800");
    assert!(lines[6].starts_with("  8x  wide 3") && lines[9].contains("encoder"), "{lines:#?}");
    screen.cpu_view = CpuView::Each;
    assert!(picture(&screen, 80, 24)[22].starts_with("  17  scalar"));
}

/// Scrolling ends at the last task; there is always one to be seen.
#[test]
fn the_list_scrolls_to_its_end() {
    let mut top = top();
    let name = |n| format!("task-{n}");
    top.tasks =
        (0..100).map(|n| task(n, &name(n), TaskType::Scalar, 99.0 - f64::from(n))).collect();
    let mut screen = screen(top);
    assert!(picture(&screen, 80, 24)[11].ends_with("task-0"));
    screen.scroll = usize::MAX / 2;
    let lines = picture(&screen, 80, 24);
    assert!(lines[22].ends_with("task-99") && lines[11].ends_with("task-88"), "{lines:#?}");
}

/// Without a lane it says so, and shows what there is; the help says why there are dashes.
#[test]
fn without_a_lane() {
    let mut bare = top();
    bare.lane = None;
    bare.lane_why = Some("no turbolane runs on this machine".into());
    bare.totals = TopTotals::default();
    bare.cpus = vec![TopCpu { cpu: 0, busy_pct: Some(12.0), ..TopCpu::default() }];
    bare.tasks = vec![TopTask { tid: 1, pid: 1, name: "init".into(), ..TopTask::default() }];
    let mut screen = screen(bare);
    let lines = picture(&screen, 80, 24);
    assert_eq!(lines[0], "turbolane top: 1.00s, no lane: no turbolane runs on this machine");
    assert_eq!(lines[3], "   0  -            -    12.0       -        -         -      -");
    assert!(lines[6].ends_with("init"), "{lines:#?}");
    screen.is_help = true;
    let help = picture(&screen, 80, 24).join("\n");
    assert!(help.contains("SCORE is not visible: no counters feed it"), "{help}");
    assert!(help.contains("LEVEL of CPUs is not visible: this CPU model"), "{help}");
}

/// The last line says what is not as usual.
#[test]
fn the_footer_tells_the_state() {
    let mut screen = screen(top());
    screen.is_paused = true;
    screen.selection.filter = "wide".into();
    screen.selection.reverse = true;
    let lines = picture(&screen, 80, 24);
    let foot = "PAUSED  FILTER wide  q quit  ? help  s sort: cpu reversed  p pause  / filter  +- 1";
    assert_eq!(lines[23], &foot[..80]);
    assert!(lines[11].ends_with("encoder") && lines[12].is_empty(), "{lines:#?}");
    screen.is_editing = true;
    assert!(picture(&screen, 80, 24)[23].starts_with("filter: wide_ "));
}
