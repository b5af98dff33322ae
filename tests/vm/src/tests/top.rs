// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `turbolane top` shows of a load that is known.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::guest::Child;
use crate::lane::turbolane;

/// Workers of one kind, and what must be seen of them.
pub struct Kind<'a> {
    /// Who they are.
    pub workers: &'a [Child],
    /// What the lane takes them for; `None` for those that turn wide and scalar all the time.
    pub task_type: Option<&'static str>,
}

/// Wide tasks are shown as wide, on a wide CPU; scalar ones as scalar, on a scalar CPU; those that
/// change as migrating. CPUs 2 and 3 are wide.
pub fn shows(kinds: &[Kind<'_>]) -> Result<()> {
    let text = turbolane(&["top", "--once", "--json", "--interval", "2s"])?;
    let top: Value = serde_json::from_str(&text)?;
    ensure!(top["lane"]["mode"] == "scx" && top["tasks_from"] == "lane", "no lane: {text}");
    for kind in kinds {
        for worker in kind.workers {
            let tasks = top["tasks"].as_array().context("no tasks")?;
            let task = tasks.iter().find(|task| task["tid"] == worker.pid);
            let task = task.with_context(|| format!("no task {} in {text}", worker.pid))?;
            look_at(task, kind.task_type).with_context(|| task.to_string())?;
        }
    }
    let moved = &top["totals"]["migrations_to_wide_per_s"];
    ensure!(moved.as_f64() > Some(0.0), "nobody moved to a wide CPU: {}", top["totals"]);
    for (cpu, role) in ["scalar", "scalar", "wide", "wide"].iter().enumerate() {
        ensure!(top["cpus"][cpu]["role"] == *role, "CPU {cpu}: {}", top["cpus"][cpu]);
    }
    // On a scalar CPU a tick may see a section that has just begun, and its task is on its way.
    let wide_pct = |cpu: usize| top["cpus"][cpu]["wide_pct"].as_f64().unwrap_or(-1.0);
    let (scalar, wide) = (wide_pct(0).max(wide_pct(1)), wide_pct(2).min(wide_pct(3)));
    ensure!(0.0 <= scalar && scalar < wide, "wide work is elsewhere: {}", top["cpus"]);
    turbolane(&["top", "--once", "--interval", "100ms"]).map(drop)
}

fn look_at(task: &Value, task_type: Option<&str>) -> Result<()> {
    let number = |key: &str| task[key].as_f64().with_context(|| format!("no {key}"));
    ensure!(number("cpu_pct")? > 0.0);
    match task_type {
        Some(task_type) => {
            let is_wide = task_type == "wide";
            ensure!(task["type"] == task_type && task["license_level"] == 2 * i32::from(is_wide));
            ensure!((number("cpu")? >= 2.0) == is_wide, "on a CPU of the other role");
            let (share, level) = if is_wide { (100.0, 2.0) } else { (0.0, 0.0) };
            ensure!(number("wide_pct")? == share && number("mean_level")? == level);
        }
        None => {
            ensure!(number("migrations_per_s")? > 0.0, "it does not migrate");
            let share = number("wide_pct")?;
            ensure!(0.0 < share && share < 100.0, "it does not change its type");
        }
    }
    ensure!(task["power_score"].is_null(), "a score without counters");
    Ok(())
}
