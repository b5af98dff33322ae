// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long work takes while the clock rises.
//!
//! ```text
//!   clock      to  |              ________        the picture of TURBO 6 and 8: "t_ramp"
//!                  |           /
//!             from |________/
//!                  +-------|----|-------- time
//!                       delay  ramp
//! ```
//!
//! The clock is a straight line between the two, so it reaches the mean of both halfway. TURBO
//! names the ramp's length and draws it; a clock that stays low for all of it and then jumps would
//! be the other reading, and [`Rise::jumps`] is that one.

/// A rise of a core's clock; times in ns from the beginning of the work, clocks in cycles per ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rise {
    /// Clock before.
    pub from: f64,
    /// Clock after.
    pub to: f64,
    /// Until it begins.
    pub delay_ns: f64,
    /// From then until it is over.
    pub ramp_ns: f64,
    /// The clock stays low until the end of the ramp.
    pub jumps: bool,
}

impl Rise {
    /// Work at one clock.
    pub fn none(clock: f64) -> Rise {
        Rise { from: clock, to: clock, delay_ns: 0.0, ramp_ns: 0.0, jumps: false }
    }

    /// Time for so many cycles.
    pub fn time_ns(&self, cycles: f64) -> f64 {
        let delay_ns = if self.jumps { self.delay_ns + self.ramp_ns } else { self.delay_ns };
        let before = delay_ns * self.from;
        if cycles <= before {
            return cycles / self.from;
        }
        let (left, ramp_ns) = (cycles - before, if self.jumps { 0.0 } else { self.ramp_ns });
        let during = ramp_ns * (self.from + self.to) / 2.0;
        if left >= during {
            return delay_ns + ramp_ns + (left - during) / self.to;
        }
        // left = from t + (to - from) t^2 / (2 ramp)
        let slope = (self.to - self.from) / ramp_ns;
        delay_ns + ((self.from * self.from + 2.0 * slope * left).sqrt() - self.from) / slope
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_before_during_and_after_the_ramp() {
        let rise = Rise { from: 1.0, to: 3.0, delay_ns: 10.0, ramp_ns: 100.0, jumps: false };
        assert_eq!(rise.time_ns(5.0), 5.0);
        assert_eq!(rise.time_ns(10.0 + 200.0), 110.0);
        assert_eq!(rise.time_ns(10.0 + 200.0 + 30.0), 120.0);
        // half of the ramp's time is a quarter of its gain: 50 * (1 + 2) / 2
        assert!((rise.time_ns(10.0 + 75.0) - 60.0).abs() < 1e-9);
        let jump = Rise { jumps: true, ..rise };
        assert_eq!(jump.time_ns(110.0), 110.0);
        assert_eq!(jump.time_ns(140.0), 120.0);
        assert_eq!(Rise::none(2.0).time_ns(50.0), 25.0);
    }
}
