// SPDX-License-Identifier: MIT OR Apache-2.0
//! Is it worth it: the verdict on a sampled load. Pure.
//!
//! A gain counts from [`NOISE_PCT`] on: `turbolane verify` finds smaller ones only with many runs.
//! Where the range of the prediction lies on both sides of that, the simulator does not decide, and
//! a measurement must.

use report::advise::{Narrower, Prediction, ThanLane, Verdict, Worth};

use super::load::Load;
use super::narrow::{NOISE_PCT, is_to_be_done};

/// Wide code beyond this share leaves nothing to keep apart from it.
const ALL_WIDE_FRAC: f64 = 0.95;
/// Fewer samples say nothing about a share.
const LEAST_SAMPLES: u64 = 10;

/// What is known of the load.
pub(super) struct Seen<'a> {
    /// Samples of busy CPUs.
    pub busy: u64,
    /// Samples in wide code whose level lasts.
    pub wide: u64,
    pub has_victims: bool,
    pub load: Option<&'a Load>,
    pub prediction: Option<&'a Prediction>,
    /// A command that keeps the code apart exists.
    pub can_run: bool,
}

const SAMPLE_LONGER: &str = "sample longer (--for 60s), while the load runs";

pub(super) fn verdict(seen: &Seen<'_>) -> Verdict {
    let no = |why: String, next: &str| Verdict::new(Worth::No, why, next);
    if seen.busy == 0 {
        let why = "the CPUs idled all the time, so nothing was sampled";
        return Verdict::new(Worth::Unknown, why, SAMPLE_LONGER);
    }
    if seen.wide == 0 {
        // rule of three: with none of n samples, the share is below 3/n in 95 of 100 cases
        let most_pct = (300.0 / seen.busy as f64).max(0.01);
        let why = format!(
            "no wide code was executed that lowers the clock: none of {} samples, so less than {most_pct:.2} % of the time",
            seen.busy
        );
        return no(why, if most_pct > 1.0 { SAMPLE_LONGER } else { "" });
    }
    if seen.wide < LEAST_SAMPLES {
        let why = format!("{} samples in wide code are too few for a prediction", seen.wide);
        return Verdict::new(Worth::Unknown, why, SAMPLE_LONGER);
    }
    if seen.load.is_some_and(|load| is_all_wide(load, seen.has_victims)) {
        return no("all that runs is wide code: there is nothing to keep apart from it".into(), "");
    }
    match seen.prediction {
        Some(prediction) => by_gain(prediction, seen.can_run),
        None => {
            let why = "the machine has one core, so wide and scalar code share it";
            no(why.into(), "use a machine with two cores or more")
        }
    }
}

/// Whether nothing but wide code runs, so that no other code is slowed by it.
pub(super) fn is_all_wide(load: &Load, has_victims: bool) -> bool {
    load.wide_frac >= ALL_WIDE_FRAC && !has_victims
}

fn by_gain(prediction: &Prediction, can_run: bool) -> Verdict {
    let &Prediction { gain_pct, least_pct, most_pct, .. } = prediction;
    let figure = format!(
        "{} {gain_pct:+.1} % ({least_pct:+.1}..{most_pct:+.1}, simulated)",
        prediction.figure
    );
    // a lane that gains is worth it also if it cannot run here: the line DO says what is missing
    let is_first = |narrower: &&Narrower| {
        is_to_be_done(narrower, can_run)
            && (narrower.than_lane == ThanLane::Better || least_pct < NOISE_PCT)
    };
    if let Some(narrower) = prediction.narrower.as_ref().filter(is_first) {
        let lane = if can_run { "with the lane" } else { "with the lane, which cannot run here" };
        let (subject, gain) = (narrower.subject(), narrower.gain(&prediction.figure));
        let why = format!("{subject}: {gain}, simulated; {lane}: {figure}");
        return Verdict::new(Worth::Yes, why, "see the line DO");
    }
    if most_pct < NOISE_PCT {
        let why = format!("{figure}: below {NOISE_PCT} % it is noise");
        return Verdict::new(Worth::No, why, "");
    }
    let next = match can_run {
        true => "prove it: the line PROVE",
        false => "see the line DO for what is missing here",
    };
    if least_pct >= NOISE_PCT {
        return Verdict::new(Worth::Yes, figure, next);
    }
    let why = format!("{figure}: the samples cannot show whether there is a gain");
    Verdict::new(Worth::Unknown, why, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prediction(least_pct: f64, gain_pct: f64, most_pct: f64) -> Prediction {
        Prediction {
            wide_cores: 1,
            figure: "throughput".into(),
            gain_pct,
            least_pct,
            most_pct,
            reduced_least_pct: 0.0,
            reduced_most_pct: 0.0,
            runs: 1,
            sections_ns: Vec::new(),
            sections_by: String::new(),
            narrower: None,
        }
    }

    fn seen(wide: u64, prediction: Option<&Prediction>) -> Seen<'_> {
        Seen { busy: 3000, wide, has_victims: true, load: None, prediction, can_run: true }
    }

    /// Gains are worth it above the noise only, and a range over it decides nothing.
    #[test]
    fn gains_decide() {
        let worth =
            |least, gain, most| verdict(&seen(100, Some(&prediction(least, gain, most)))).worth;
        assert_eq!(worth(5.0, 7.0, 9.0), Worth::Yes);
        assert_eq!(worth(-3.0, 0.1, 0.9), Worth::No);
        assert_eq!(worth(0.2, 4.0, 9.0), Worth::Unknown);
    }

    fn narrower(least_pct: f64, than_lane: ThanLane) -> Narrower {
        Narrower {
            without: "AVX-512".into(),
            files: vec!["/usr/lib/libcrypto.so.3".into()],
            gain_pct: least_pct + 2.0,
            least_pct,
            most_pct: least_pct + 4.0,
            least_cycles_ratio: 1.0,
            most_cycles_ratio: 2.0,
            basis: String::new(),
            license_levels: vec![0],
            runs: 2,
            than_lane,
            switch: vec!["A=B".into()],
        }
    }

    /// Narrower code is the answer if it is better, or if the lane cannot run and may gain nothing;
    /// a lane that gains stays the answer if it cannot run here.
    #[test]
    fn narrower_code_decides_where_it_is_better() {
        let answer = |lane: [f64; 3], narrower: Narrower, can_run| {
            let [least, gain, most] = lane;
            let with = Prediction { narrower: Some(narrower), ..prediction(least, gain, most) };
            let found = verdict(&Seen { can_run, ..seen(100, Some(&with)) });
            (found.worth, found.why.starts_with("without AVX-512"))
        };
        let lane = [5.0, 7.0, 9.0];
        assert_eq!(answer(lane, narrower(11.0, ThanLane::Better), true), (Worth::Yes, true));
        assert_eq!(answer(lane, narrower(4.0, ThanLane::Undecided), true), (Worth::Yes, false));
        assert_eq!(answer(lane, narrower(4.0, ThanLane::Undecided), false), (Worth::Yes, false));
        let lane = [0.2, 4.0, 9.0];
        assert_eq!(answer(lane, narrower(4.0, ThanLane::Undecided), true), (Worth::Unknown, false));
        assert_eq!(answer(lane, narrower(4.0, ThanLane::Undecided), false), (Worth::Yes, true));
        assert_eq!(answer(lane, narrower(0.5, ThanLane::Undecided), false).0, Worth::Unknown);
    }

    /// Without wide samples the answer is no, with the share that may have been missed; with few it
    /// is open.
    #[test]
    fn samples_decide() {
        let none = verdict(&seen(0, None));
        assert_eq!(none.worth, Worth::No);
        assert!(none.why.contains("less than 0.10 %"), "{none:?}");
        assert_eq!(verdict(&seen(9, None)).worth, Worth::Unknown);
        assert_eq!(verdict(&Seen { busy: 0, ..seen(0, None) }).worth, Worth::Unknown);
        assert!(verdict(&seen(10, None)).why.contains("one core"));
    }
}
