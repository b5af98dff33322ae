// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conclusion: which modes of `turbolane run` work here.

use hw::Facts;
use report::doctor::Check;
use sched::obstacles;

use super::{Seen, no, ok, warn};

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    vec![run_scx(facts), run_affinity(facts)]
}

fn run_scx(facts: &Facts) -> Check {
    let title = "run --mode scx";
    let why = "the complete scheduler: the kernel places every task, with hints and marks";
    match obstacles::of_scx(&facts.kernel) {
        Some(obstacles::Obstacle { problem, .. }) => {
            let mut check = no(problem.why, "").check("run-scx", title, why);
            check.next = problem.next;
            check
        }
        None => by_rights(facts, "works").check("run-scx", title, why),
    }
}

fn run_affinity(facts: &Facts) -> Check {
    let seen = if facts.topology.cores().len() < 2 {
        no("one core: there is no other core to move to", "use a machine with two cores or more")
    } else {
        by_rights(facts, "works, for threads that give hints")
    };
    seen.check(
        "run-affinity",
        "run --mode affinity",
        "works without sched_ext: sets the affinity masks of threads that use libturbolane",
    )
}

fn by_rights(facts: &Facts, works: &str) -> Seen {
    match obstacles::of_rights(&facts.rights) {
        None => ok(works),
        Some(_) => warn(format!("{works}, as root"), "run it with sudo"),
    }
}
