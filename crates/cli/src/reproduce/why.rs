// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why ours differs, where we know. An explanation names a cause; "the model is wrong" is one too.

/// The explanation for a row or a ranking; `None` if there is none.
pub(super) fn why(id: &str) -> Option<&'static str> {
    WHY.iter().find(|(known, _)| *known == id).map(|(_, why)| *why)
}

const TYPE_CHANGE: &str = "our costs of a switch, a migration and a cache refill add up to 6.1 us \
    of CPU time; SFMA's benchmark touches no memory (4.2: \"excludes cache effects\"), so 2.6 us of \
    refill should not be in it";
const SERVER_DIFFERS: &str = "the request of SFMA's server is not published; ours is fitted to the \
    loss without mitigation, which two long sections and many short ones reach alike";
const TRAPS: &str = "our request has the two wide sections that its size asks for, and a third of \
    them begins on a wide CPU, where nothing traps; the prototype counts 2.2 traps, so its requests \
    have more sections";
const MIGRATION_COST: &str = "Table 5.7 counts 88,000 kernel cycles more per migration, eight times \
    the 11,000 instructions of Table 5.6 that our costs come from; the paper does not say where they \
    go. It is a mitigated row, so the model may not be fitted to it";
const RETURN_ON_WIDE: &str = "back on return, the system call behind a section runs on the wide core \
    at its clock; ours pays for that, and not for the second scheduler call that the prototype \
    makes when it re-schedules on entry (5.2.2)";
const GUESTS_LEAVE: &str = "our policy displaces guests and gives wide CPUs back at once; the \
    prototype ran Parsec beside x265 for 30 % of its cycles at the AVX-512 level (4.2)";
const OTHER_KERNEL: &str = "the scenario is fitted to the same server under MuQSS (6.0 %); the paper \
    measured this one under another kernel and scheduler and gives no reason for the difference";

const WHY: [(&str, &str); 17] = [
    ("sfma-type-change-cost", TYPE_CHANGE),
    ("sfma-type-change-overhead", TYPE_CHANGE),
    ("sfma-nginx-migrations", SERVER_DIFFERS),
    ("systor-cfs-nginx-avx512", OTHER_KERNEL),
    ("systor-parsec-slowdown-mitigated", GUESTS_LEAVE),
    ("systor-parsec-loss-removed", GUESTS_LEAVE),
    ("systor-order-parsec-x265", GUESTS_LEAVE),
    ("thesis-static-loss", RETURN_ON_WIDE),
    ("thesis-t53-static", RETURN_ON_WIDE),
    ("thesis-order-return-entry", RETURN_ON_WIDE),
    (
        "thesis-t56-migrations-trap",
        "256 threads on two wide CPUs: some of ours are displaced while they wait for theirs and \
         migrate once more; with explicit marks the count agrees to 0.1 %",
    ),
    ("thesis-t57-migrations-trap", TRAPS),
    ("thesis-t57-traps", TRAPS),
    ("thesis-t57-transfer-trap", MIGRATION_COST),
    ("thesis-trap-overhead", MIGRATION_COST),
    ("thesis-order-flat", MIGRATION_COST),
    (
        "thesis-order-latency-none",
        "at an eighth of the load our server is hardly slower with AVX-512: most requests find a \
         core whose licence has relaxed",
    ),
];
