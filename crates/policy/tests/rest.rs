// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rests: which scalar phases a task stays for, and when it has stayed long enough.

use policy::Cfg;

const CFG: Cfg = Cfg {
    slice_ns: 0,
    slice_wide_ns: 0,
    wide_timeout_ns: 0,
    remigrate_timeout_ns: 0,
    rest_below_ns: 1_000,
    remigrate: 0,
    unclassified: 0,
    counts_q10: [0; 4],
};

/// Below the break-even time a task stays; from there on, without a length, and where there are no
/// rests, it leaves.
#[test]
fn short_phases_are_rests() {
    for (phase_ns, stays) in [(0, false), (1, true), (999, true), (1_000, false), (u64::MAX, false)]
    {
        assert_eq!(CFG.rest_stays(phase_ns), stays, "{phase_ns}");
        assert!(!Cfg { rest_below_ns: 0, ..CFG }.rest_stays(phase_ns));
    }
}

/// A rest lasts until its end and not a moment longer; an end that no rest can have is a lie, and
/// has passed.
#[test]
fn rests_end() {
    let now_ns = 1 << 40;
    for (until_ns, over) in [
        (0, true),
        (now_ns - 1, true),
        (now_ns, true),
        (now_ns + 1, false),
        (now_ns + 999, false),
        (now_ns + 1_000, true),
        (u64::MAX, true),
    ] {
        assert_eq!(CFG.rest_is_over(until_ns, now_ns), over, "{until_ns}");
    }
}

/// What stays is not over at once, and is over after its time: the two answers fit together.
#[test]
fn what_stays_is_over_in_time() {
    for phase_ns in 1..1_000 {
        assert!(CFG.rest_stays(phase_ns) && !CFG.rest_is_over(50 + phase_ns, 50));
        assert!(CFG.rest_is_over(50 + phase_ns, 50 + phase_ns));
    }
}
