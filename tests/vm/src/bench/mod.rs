// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmarks. Groups `vm` and `trap`: each measures its claim beside its baseline in one
//! guest. Group `sim`: the simulator's speed, and what it says about the policy. Groups `dvfs` and
//! `scan`: the speed of replays and of the scanner. Group `probe`: what the frequency probe and the
//! comparison of runs are worth, and what handing a section to another CPU costs. Group `lib`: the
//! application library. Group `record`: what a recording costs. Group `silicon`: the dim-silicon
//! machine itself. Group `best`: the lane's defaults beside every other choice. Group `boost`:
//! locks on a machine whose P-states software sets. Group `predict`: the papers' figures, and
//! clocks under a power limit, beside ours. Group `ship`: a run that takes over from another.

mod attacks;
mod best;
mod boost;
mod boosted_barriers;
mod boosted_programs;
mod boosted_stm;
pub mod conservation;
mod control;
mod dvfs;
mod dvfs_live;
mod experiment;
mod groups;
mod handover;
mod hints;
mod kills;
mod large;
mod layered;
mod lib_locks;
mod lib_monitor;
mod lib_pstate;
mod lib_targets;
mod migration;
mod overhead;
mod placement;
mod power_limit;
mod predict;
mod probe;
pub mod record;
mod registration;
mod sample;
mod scan;
mod silicon;
mod sim;
mod sim_results;
mod take_over;
mod trap;
mod trap_avx512;
mod waits;
mod wakeups;

use crate::suite::Case;

/// All benchmarks.
pub const ALL: &[Case] = &[
    Case::bench("hints", hints::run).host(),
    Case::bench("marks", hints::marks).group("best").host(),
    Case::bench("best", best::run).group("best").host().limit_s(3600),
    Case::bench("locks", boost::locks).group("boost").silicon("fx-8120").cpus(8).limit_s(3600),
    Case::bench("asleep", boost::asleep)
        .group("boost")
        .silicon("fx-8120,boosted=1")
        .cpus(8)
        .limit_s(1800),
    Case::bench("programs", boosted_programs::run)
        .group("boost")
        .silicon("fx-8120")
        .cpus(8)
        .limit_s(1800),
    Case::bench("barriers", boosted_barriers::run)
        .group("boost")
        .silicon("fx-8120")
        .cpus(8)
        .limit_s(1800),
    Case::bench("stm", boosted_stm::run).group("boost").silicon("fx-8120").cpus(8).limit_s(1800),
    Case::bench("restore", lib_pstate::registers)
        .group("boost")
        .silicon("fx-8120")
        .cpus(4)
        .limit_s(3600),
    Case::bench("restore-limits", lib_pstate::limits)
        .group("boost")
        .silicon("xeon-gold-6130,others=0")
        .limit_s(7200),
    Case::bench("restore-setspeed", lib_pstate::setspeed)
        .group("boost")
        .silicon("xeon-gold-6130,others=0")
        .limit_s(7200),
    Case::bench("restore-intel", lib_pstate::intel_registers)
        .group("boost")
        .silicon("xeon-gold-6130,others=0")
        .limit_s(7200),
    Case::bench("restore-hint", lib_pstate::hint).group("boost").limit_s(3600),
    Case::bench("sample", sample::run)
        .group("ship")
        .silicon("xeon-gold-6130")
        .cpus(2)
        .limit_s(1200),
    Case::bench("reproduce", predict::reproduce).group("predict").host().limit_s(1800),
    Case::bench("power-limit", power_limit::power_limit).group("predict").host(),
    Case::bench("placement", placement::run).limit_s(3600),
    Case::bench("take-over", take_over::run).group("ship").virtual_time().limit_s(3000),
    Case::bench("control", control::run).limit_s(900),
    Case::bench("conservation", conservation::run).limit_s(400),
    Case::bench("waits", waits::longest).virtual_time().limit_s(1800),
    Case::bench("waits-llcs", waits::imbalances).topology("sockets=2,cores=2").limit_s(600),
    Case::bench("attacks", attacks::run).limit_s(3000),
    Case::bench("kills", kills::run).limit_s(10_000),
    Case::bench("groups", groups::run).virtual_time().limit_s(900),
    Case::bench("registration", registration::run).limit_s(900),
    Case::bench("wakeups", wakeups::run).limit_s(1200).peers(&["scx_layered"]),
    Case::bench("wakeups-remote", wakeups::remote)
        .topology("sockets=2,cores=3")
        .cpus(6)
        .limit_s(600),
    Case::bench("large", large::run).cpus(64).limit_s(1800),
    Case::bench("lib-locks", lib_locks::run).group("lib").host(),
    Case::bench("overhead", overhead::run).icount().limit_s(900).peers(&["scx_layered"]),
    Case::bench("probe", probe::run).group("probe").limit_s(900).host(),
    Case::bench("handover", handover::run).group("probe").host(),
    Case::bench("experiment", experiment::run).group("probe").host(),
    Case::bench("record", record::run).group("record").host(),
    Case::bench("scan", scan::run).group("scan").host(),
    Case::bench("silicon-clocks", silicon::clocks).group("silicon").silicon("xeon-gold-6130"),
    Case::bench("silicon-scores", silicon::power_scores)
        .group("silicon")
        .silicon("xeon-gold-6130")
        .limit_s(900),
    Case::bench("tiers", silicon::tiers)
        .group("silicon")
        .silicon("xeon-6980p")
        .cpus(6)
        .limit_s(1800),
    Case::bench("dvfs-live", dvfs_live::run)
        .group("silicon")
        .silicon("xeon-gold-6130")
        .limit_s(900),
    Case::bench("silicon-probe", silicon::probes)
        .group("silicon")
        .silicon("xeon-gold-6130")
        .limit_s(900),
    Case::bench("sim", sim::run).group("sim").host(),
    Case::bench("dvfs", dvfs::run).group("dvfs").host(),
    Case::bench("sim-results", sim_results::run).group("sim").host(),
    Case::bench("lib-monitor", lib_monitor::run).group("lib").host(),
    Case::bench("lib-restore", lib_pstate::fake_tree).group("lib").host(),
    Case::bench("lib-restore-guest", lib_pstate::guest).group("lib").limit_s(1200),
    Case::bench("lib-targets", lib_targets::run).group("lib").icount().limit_s(300),
    Case::bench("migration", migration::run).icount().limit_s(300),
    Case::bench("trap-paths", trap::paths).group("trap").icount().limit_s(600),
    Case::bench("trap-extra", trap::extra).group("trap").icount().limit_s(600),
    Case::bench("trap-xstate", trap::xstate).group("trap").limit_s(300),
    Case::bench("trap-contexts", trap::foreign_contexts).group("trap").limit_s(900),
    Case::bench("trap-contexts-avx512", trap::foreign_contexts).group("trap").bochs().limit_s(1800),
    Case::bench("trap-stress", trap::stress).group("trap").limit_s(1200),
    Case::bench("trap-stress-avx512", trap_avx512::stress).group("trap").bochs().limit_s(3000),
    Case::bench("trap-sections", trap_avx512::sections).group("trap").bochs().limit_s(1800),
    Case::bench("trap-dynamic", trap::dynamic).group("trap").icount().limit_s(900),
    Case::bench("trap-known-light", trap::known_light).group("trap").limit_s(600),
];
