// SPDX-License-Identifier: MIT OR Apache-2.0
//! The licence of one core: what it may execute at which clock, and how that changes.
//!
//! Problem: code that asks for a higher licence level gets it only after a wait, and code that
//! asks for less keeps the low clock of the old level for a long time. Both are what Turbolane
//! is about, so both must be modelled to the microsecond (SFMA 2, THESIS 2.2, Downs 2020).
//!
//! Idea: five phases, driven by the *demand*: the highest level that what runs on any sibling of
//! the core asks for right now.
//!
//! ```text
//!            demand > granted            after throttle_ns       after halt_ns per level
//!   steady ------------------> throttled ------------------> halted ------------------> steady
//!     |       request           wide code runs at a           core is halted             grant
//!     |                         fraction of its rate
//!     |   relax_ns after the demand last reached the level (hold)
//!     +----------------------------------------------------> halted ------------------> steady
//!                                relax                                      lower level granted
//! ```
//!
//! - A request remains once it is made, even if its code has ended when the grant comes.
//! - Throttled, only code that asks for more than is granted is slow: dispatch is limited within
//!   some 70 instructions of a wide one (Downs 2020), not for the entire core.
//! - A rise is one change of the clock for each level on its path, a fall is one change: DIM 4.1
//!   says that from level 0 to 2 there are "two separate frequency transitions", and measured 24 us
//!   of CPU time lost against 17 to level 1. Two halts after one throttle give 26 us; a throttle
//!   for each change would give 34.
//! - Each level is held on its own: code of level 2 followed by code of level 1 falls to level 1
//!   `relax_ns` after the last of level 2, and to 0 `relax_ns` after the last of level 1.
//! - A level that is already granted is used again at once, and its hold starts anew.
//!
//! Software may say more than today's CPUs let it. DIM 7.1 proposes two interfaces, and this
//! licence has both:
//!
//! - **A delay** ([`CoreLicense::set_delay`]) takes the place of `relax_ns` until it is set again:
//!   "to manually set a different frequency change timeout for individual parts of the program". It
//!   counts at once, also for a level whose code has ended already.
//! - **A forced change** ([`CoreLicense::force`]) lets the level fall at once to the one that is
//!   expected to be needed ("to immediately increase the frequency"), but not below the demand: if
//!   a change is in progress, or code of a higher level still runs, as soon as that is over. It is
//!   void when the demand comes back.
//!
//! Limits: levels are granted core by core. A part on which one core's level holds for the entire
//! package (Haswell-EP) takes the highest of all cores, see `CpuModel::level_is_package_wide`; the
//! halts of the other cores are not modelled. Nor is the clock of an intermediate level. The change
//! of voltage without one of the clock (first 256-bit code after a while on Skylake-SP, 9 us of
//! slow dispatch) is not modelled.

/// Levels that a core can distinguish.
pub const MAX_LEVELS: usize = 8;

/// Times of the transitions, all known; see `platform.rs` for how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// As [`crate::Transition::throttle_ns`].
    pub throttle_ns: u64,
    /// As [`crate::Transition::halt_ns`].
    pub halt_ns: u64,
    /// As [`crate::Transition::relax_ns`].
    pub relax_ns: u64,
}

impl Times {
    /// How long the core is halted between one level and another: once for each level up, once
    /// for all on the way down.
    #[inline]
    pub fn halts_ns(&self, from: u8, to: u8) -> u64 {
        u64::from(to.saturating_sub(from).max(1)) * self.halt_ns
    }
}

/// What a core does about its licence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has a level, and holds it or does not need it any more.
    Steady,
    /// It asked for a higher level and waits for the grant.
    Throttled,
    /// Its clock changes, it is halted.
    Halted,
}

/// The licence of one core. Times are nanoseconds on the caller's clock.
#[derive(Clone, Debug)]
pub struct CoreLicense {
    phase: Phase,
    granted: u8,
    target: u8,
    demand: u8,
    /// End of the phase, or the next look at the hold; `u64::MAX` if nothing is due.
    deadline_ns: u64,
    /// `last_ns[k]`: when the demand was last at least k, for 0 < k <= granted; while it is, older.
    last_ns: [u64; MAX_LEVELS],
    /// Hold in place of `Times::relax_ns`; `u64::MAX`: for ever.
    delay_ns: Option<u64>,
    /// Where a forced change is to end; until the demand comes back.
    forced: Option<u8>,
}

impl Default for CoreLicense {
    fn default() -> Self {
        CoreLicense {
            phase: Phase::Steady,
            granted: 0,
            target: 0,
            demand: 0,
            deadline_ns: u64::MAX,
            last_ns: [0; MAX_LEVELS],
            delay_ns: None,
            forced: None,
        }
    }
}

impl CoreLicense {
    /// The level that is granted: its clock is in force.
    #[inline]
    pub fn level(&self) -> u8 {
        self.granted
    }

    /// The phase.
    #[inline]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The level that the core waits for, its own if it does not wait.
    pub fn target(&self) -> u8 {
        if self.phase == Phase::Steady { self.granted } else { self.target }
    }

    /// What the siblings ask for.
    #[inline]
    pub fn demand(&self) -> u8 {
        self.demand
    }

    /// When [`CoreLicense::expire`] wants to be called; `u64::MAX` if never. May be earlier than
    /// anything changes: a look that finds the level still held.
    #[inline]
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// When the demand was last at least `level`; while it is, older. Means nothing for levels
    /// above the granted one and for level 0.
    #[inline]
    pub fn last_ns(&self, level: u8) -> u64 {
        self.last_ns[level as usize]
    }

    /// Whether code of this level runs at the throttled rate now.
    #[inline]
    pub fn is_throttled(&self, level: u8) -> bool {
        self.phase == Phase::Throttled && level > self.granted
    }

    /// The siblings ask for `demand` from now on. True if the phase changed.
    #[inline]
    pub fn set_demand(&mut self, demand: u8, now_ns: u64, times: &Times) -> bool {
        let old = self.demand;
        self.demand = demand;
        if demand < old {
            for last_ns in &mut self.last_ns[demand as usize + 1..=old as usize] {
                *last_ns = now_ns;
            }
        }
        if demand > old && demand >= self.target() {
            self.forced = None;
        }
        match self.phase {
            Phase::Steady if demand > self.granted => {
                self.request(now_ns, times);
                true
            }
            Phase::Steady if demand < self.granted => {
                self.arm_hold(now_ns, times);
                false
            }
            Phase::Throttled => {
                self.target = self.target.max(demand);
                false
            }
            _ => false,
        }
    }

    /// The deadline has come. True if the phase or the level changed.
    pub fn expire(&mut self, now_ns: u64, times: &Times) -> bool {
        match self.phase {
            Phase::Steady => self.look_at_hold(now_ns, times),
            Phase::Throttled => self.halt(now_ns, times),
            Phase::Halted => self.grant(now_ns, times),
        }
    }

    /// How long a level is held after its last code.
    #[inline]
    fn hold_ns(&self, times: &Times) -> u64 {
        self.delay_ns.unwrap_or(times.relax_ns)
    }

    /// As it was set; `None`: as the hardware does by itself.
    pub fn delay_ns(&self) -> Option<u64> {
        self.delay_ns
    }

    /// Sets how long levels are held from now on; `u64::MAX` for ever, `None` as the hardware does
    /// by itself.
    pub fn set_delay(&mut self, delay_ns: Option<u64>, now_ns: u64, times: &Times) {
        self.delay_ns = delay_ns;
        if self.phase == Phase::Steady {
            self.arm_hold(now_ns, times);
        }
    }

    /// Gives up every level above `to` as soon as possible; see the head of this file. True if the
    /// phase changed.
    pub fn force(&mut self, to: u8, now_ns: u64, times: &Times) -> bool {
        // Where nothing is to be given up it must not be left over for the next hold.
        self.forced = (self.target() > self.demand).then_some(to);
        self.release(to, now_ns, times)
    }

    /// Gives a level up at once, whatever its hold: how a policy of `dvfs` raises the clock. It
    /// ends at `to`, not below the demand. True if the phase changed; not while a change is in
    /// progress.
    pub fn release(&mut self, to: u8, now_ns: u64, times: &Times) -> bool {
        let to = to.max(self.demand);
        if self.phase != Phase::Steady || to >= self.granted {
            return false;
        }
        self.target = to;
        self.halt(now_ns, times)
    }

    fn request(&mut self, now_ns: u64, times: &Times) {
        self.phase = Phase::Throttled;
        self.target = self.demand;
        self.deadline_ns = now_ns + times.throttle_ns;
    }

    fn halt(&mut self, now_ns: u64, times: &Times) -> bool {
        self.phase = Phase::Halted;
        self.deadline_ns = now_ns + times.halts_ns(self.granted, self.target);
        true
    }

    fn grant(&mut self, now_ns: u64, times: &Times) -> bool {
        self.phase = Phase::Steady;
        self.granted = self.target;
        if self.demand > self.granted {
            self.request(now_ns, times);
        } else {
            self.arm_hold(now_ns, times);
        }
        true
    }

    /// The next look: when the granted level's hold ends, if its code does not run any more. It may
    /// have ended during the halt that led here.
    fn arm_hold(&mut self, now_ns: u64, times: &Times) {
        self.deadline_ns = if self.demand >= self.granted {
            u64::MAX
        } else if self.forced_to().is_some() {
            now_ns
        } else {
            let last_ns = self.last_ns[self.granted as usize];
            now_ns.max(last_ns.saturating_add(self.hold_ns(times)))
        };
    }

    /// Where a forced change leads, if it leads anywhere now.
    fn forced_to(&self) -> Option<u8> {
        self.forced.map(|to| to.max(self.demand)).filter(|&to| to < self.granted)
    }

    fn look_at_hold(&mut self, now_ns: u64, times: &Times) -> bool {
        let hold_ns = self.hold_ns(times);
        let ends_ns = |level: u8| self.last_ns[level as usize].saturating_add(hold_ns);
        let held = |level: u8| level <= self.demand || now_ns < ends_ns(level);
        let by_time = || (1..=self.granted).rev().find(|&level| held(level)).unwrap_or(0);
        let keeps = self.forced_to().unwrap_or_else(by_time);
        if keeps == self.granted {
            self.arm_hold(now_ns, times);
            return false;
        }
        self.target = keeps;
        self.halt(now_ns, times)
    }
}

#[cfg(test)]
#[path = "license_tests.rs"]
mod tests;
