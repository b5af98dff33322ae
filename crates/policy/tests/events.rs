// SPDX-License-Identifier: MIT OR Apache-2.0
//! The event table at the head of policy/task.h, exhaustively: every combination of evidence,
//! settings and event against the table written a second time, in other words. Without gaps and
//! last system calls, which gap.rs and last.rs test.

use policy::{
    Cfg, Event, FLAG_HINTS, FLAG_RAN_FIT, FLAG_SYSCALL_WIDE, FLAG_WAS_WIDE, Remigrate, Score, Stay,
    TYPE_DEFAULT, TYPE_SCALAR, TYPE_WIDE, Task,
};

const TIMEOUT_NS: u64 = 100;
/// Between the shortest stay and its double.
const FALLBACK_NS: u64 = 70_000;

fn cfg(bits: u32) -> Cfg {
    let remigrate = Remigrate {
        syscall_entry: bits & 1 != 0,
        syscall_return: bits & 2 != 0,
        context_switch: bits & 4 != 0,
        timeout: bits & 8 != 0,
        gap: false,
        last_syscall: false,
    };
    assert_eq!(remigrate.bits(), bits);
    Cfg {
        wide_timeout_ns: FALLBACK_NS,
        rest_below_ns: 0,
        remigrate_timeout_ns: TIMEOUT_NS,
        remigrate: bits,
        ..Cfg::default()
    }
}

/// Evidence as one level; a score only of who gives no hints.
fn level_of(hint: u8, mark: u8, loose: u8, score: Score, flags: u8) -> u8 {
    let score = if flags & FLAG_HINTS == 0 { score.level } else { 0 };
    hint.max(mark).max(loose).max(score)
}

/// How long a task stays after its last trap.
fn stay_ns(t: &Task) -> u64 {
    (Stay::LEAST_NS << t.stay.early.saturating_sub(Stay::CALLS)).min(FALLBACK_NS)
}

/// Around the ends of the shortest stay, and of one that the timeout cuts.
fn stays() -> [Stay; 5] {
    let least = Stay::LEAST_NS as u32;
    let all = [(least - 1, 0), (least, 0), (140_000, 4), (least - 1, 3), (u32::MAX, 14)];
    all.map(|(ran_ns, early)| Stay { ran_ns, early, ..Stay::default() })
}

/// Every consistent task that the events can tell apart.
fn tasks() -> Vec<Task> {
    let mut tasks = Vec::new();
    for evidence in 0..128u8 {
        let (hint_level, mark_level, loose_level) =
            (evidence & 3, evidence >> 2 & 3, evidence >> 4 & 3);
        // none, or one between the others
        let score = Score { level: evidence >> 6 << 1, ..Score::default() };
        for flags in 0..8 {
            if hint_level > 0 && flags & FLAG_HINTS == 0 {
                continue;
            }
            let level = level_of(hint_level, mark_level, loose_level, score, flags);
            for mark_depth in 0..3 {
                if mark_level > 0 && mark_depth == 0 {
                    continue;
                }
                for quiet in [TYPE_DEFAULT, TYPE_SCALAR] {
                    let task_type = if level > 0 { TYPE_WIDE } else { quiet } as u8;
                    let base = Task { weight: 100, evidence_ns: 5000, caps: 15, ..Task::default() };
                    for stay in stays() {
                        tasks.push(Task {
                            task_type,
                            level,
                            hint_level,
                            mark_level,
                            loose_level,
                            mark_depth,
                            flags,
                            score,
                            stay,
                            ..base
                        });
                    }
                }
            }
        }
    }
    tasks
}

/// The table, as the head of policy/task.h has it.
fn expected(before: Task, cfg: &Cfg, event: Event, level: u32, now_ns: u64) -> Task {
    let mut t = before;
    let score_level = level.min(3) as u8;
    let level = level.clamp(1, 3) as u8;
    let heuristic = |bit: u32| cfg.remigrate & bit != 0;
    let wide = before.task_type == TYPE_WIDE as u8;
    let (mut end_all, mut passes) = (false, false);
    match event {
        Event::HintBegin => {
            t.hint_level = level;
            t.flags |= FLAG_HINTS;
        }
        Event::HintEnd | Event::HintAway => {
            t.hint_level = 0;
            t.flags |= FLAG_HINTS;
            if t.task_type == TYPE_DEFAULT as u8 {
                t.task_type = TYPE_SCALAR as u8;
            }
        }
        Event::MarkEnter => {
            t.mark_depth += 1;
            t.mark_level = t.mark_level.max(level);
        }
        Event::MarkReturn => {
            t.mark_depth = t.mark_depth.saturating_sub(1);
            if t.mark_depth == 0 {
                t.mark_level = 0;
            }
        }
        Event::Trap => {
            let had_left = t.loose_level == 0;
            t.stay.early = match (had_left, u64::from(t.stay.ran_ns) >= 2 * stay_ns(&t)) {
                (false, _) => t.stay.early,
                (true, true) if t.stay.early > Stay::CALLS => t.stay.early / 2,
                (true, true) => 0,
                (true, false) => (t.stay.early + 1).min(Stay::EARLY_MOST),
            };
            t.stay.ran_ns = 0;
            t.loose_level = t.loose_level.max(level);
        }
        Event::SyscallEntry => {
            passes = true;
            t.flags = if wide { t.flags | FLAG_SYSCALL_WIDE } else { t.flags & !FLAG_SYSCALL_WIDE };
            end_all = wide && heuristic(1);
        }
        Event::SyscallReturn => {
            passes = true;
            end_all = t.flags & FLAG_SYSCALL_WIDE != 0 && heuristic(2);
            t.flags &= !FLAG_SYSCALL_WIDE;
        }
        Event::SwitchOut => {
            passes = true;
            end_all = wide && heuristic(4) && t.flags & FLAG_RAN_FIT != 0;
        }
        Event::Score => t.score.level = score_level,
        Event::Tick => {
            passes = true;
            let age_ns = now_ns.saturating_sub(t.evidence_ns);
            end_all = wide && heuristic(8) && age_ns >= TIMEOUT_NS;
            if wide && age_ns >= FALLBACK_NS {
                t.loose_level = 0;
            }
        }
    }
    let at_call = matches!(event, Event::SyscallEntry | Event::SyscallReturn);
    let is_over = u64::from(t.stay.ran_ns) >= stay_ns(&t) || at_call && t.stay.early < Stay::CALLS;
    let is_coming = wide && t.flags & FLAG_RAN_FIT == 0;
    if passes && is_over && !is_coming {
        t.loose_level = 0;
    }
    if end_all {
        (t.hint_level, t.mark_level, t.loose_level) = (0, 0, 0);
    }
    if matches!(event, Event::HintBegin | Event::MarkEnter | Event::Trap) {
        t.evidence_ns = now_ns;
    }
    t.level = level_of(t.hint_level, t.mark_level, t.loose_level, t.score, t.flags);
    if t.level > 0 {
        if !wide {
            t.flags &= !FLAG_RAN_FIT;
        }
        t.task_type = TYPE_WIDE as u8;
        t.flags |= FLAG_WAS_WIDE;
    } else if wide {
        t.task_type = TYPE_SCALAR as u8;
    }
    t
}

/// The C does what the table says, for every task, setting, event, level and age.
#[test]
fn the_table_holds() {
    let mut checked = 0u64;
    for bits in 0..16 {
        let cfg = cfg(bits);
        for before in tasks() {
            for event in Event::ALL {
                for level in 0..=4 {
                    for now_ns in [
                        4000,
                        5000 + TIMEOUT_NS - 1,
                        5000 + TIMEOUT_NS,
                        5000 + FALLBACK_NS - 1,
                        5000 + FALLBACK_NS,
                    ] {
                        let mut after = before;
                        let changed = after.event(&cfg, event, level, now_ns);
                        let mut table = expected(before, &cfg, event, level, now_ns);
                        assert!(!after.gap.stays(), "stays unasked");
                        assert!(!after.last.is_away(), "leaves unasked");
                        (table.gap, table.last) = (after.gap, after.last);
                        assert_eq!(
                            after, table,
                            "{event:?} {level} at {now_ns} with {bits:#b} on {before:?}"
                        );
                        let moved =
                            (before.task_type, before.level) != (after.task_type, after.level);
                        assert_eq!(changed, moved, "{event:?} on {before:?}");
                        checked += 1;
                    }
                }
            }
        }
    }
    assert!(checked > 1_000_000, "only {checked} combinations");
}

/// A child inherits a non-default type and, if wide, turns scalar by the fallback timeout.
#[test]
fn children_inherit() {
    let cfg = cfg(0);
    let mut wide = Task::new(&cfg, TYPE_WIDE, 2, 10);
    assert_eq!((wide.task_type, wide.level, wide.loose_level), (TYPE_WIDE as u8, 2, 2));
    assert!(!wide.event(&cfg, Event::Tick, 0, 10 + FALLBACK_NS - 1));
    assert!(wide.event(&cfg, Event::Tick, 0, 10 + FALLBACK_NS));
    assert_eq!(wide.task_type, TYPE_SCALAR as u8);
    assert_eq!(Task::new(&cfg, TYPE_SCALAR, 0, 10).task_type, TYPE_SCALAR as u8);
    assert_eq!(Task::new(&cfg, TYPE_DEFAULT, 0, 10).task_type, TYPE_DEFAULT as u8);
    let scalar = Cfg { unclassified: TYPE_SCALAR, ..cfg };
    assert_eq!(Task::new(&scalar, TYPE_DEFAULT, 0, 10).task_type, TYPE_SCALAR as u8);
}

/// The switch that carries a task to its wide CPU does not end the period, the next one does.
#[test]
fn the_first_switch_does_not_end_the_period() {
    let cfg = cfg(4);
    let mut task = Task::new(&cfg, TYPE_DEFAULT, 0, 0);
    assert!(task.event(&cfg, Event::HintBegin, 2, 1));
    assert!(!task.event(&cfg, Event::SwitchOut, 0, 2));
    task.flags |= FLAG_RAN_FIT;
    assert!(task.event(&cfg, Event::SwitchOut, 0, 3));
    assert_eq!(task.task_type, TYPE_SCALAR as u8);
}

/// Saying "scalar" sticks to tasks that nobody classified only.
#[test]
fn classification_does_not_override_evidence() {
    let cfg = cfg(0);
    let mut wide = Task::new(&cfg, TYPE_WIDE, 1, 0);
    wide.classify_scalar();
    assert_eq!(wide.task_type, TYPE_WIDE as u8);
    let mut task = Task::new(&cfg, TYPE_DEFAULT, 0, 0);
    task.classify_scalar();
    assert_eq!(task.task_type, TYPE_SCALAR as u8);
}
