// SPDX-License-Identifier: MIT OR Apache-2.0
//! The alternative to the lane: narrower code in place of the wide code, everywhere.
//!
//! **Problem.** Some libraries can be kept from using AVX-512. Then no core is slowed by it, but
//! the work itself takes longer. What is better depends on the load.
//!
//! **Idea.** The sampled load is simulated once more under the kernel's scheduling. Its wide
//! sections execute code of the level below, or of level 0 (AVX2 code raises the level only if it
//! is dense, which samples of wide code do not show), and need more cycles. How many more is
//! measured for one cipher ([`CHACHA`]), and else not known: then both ends of a range are
//! simulated ([`HALF_WIDTH`], [`OPENSSL`]), and the gain is a range. The ratio of a mixture is the
//! mean, by samples.
//!
//! **Against the lane.** Both have been simulated with the same lengths of sections. One is better
//! only if it is at each of them, by more than noise, at both ends of the range.
//!
//! **Limits.** All offenders are replaced at once. A stripped libcrypto does not name its ciphers,
//! so its code has the wide range of [`OPENSSL`]. Code for which narrower registers lack an
//! instruction can need more cycles than code of half the width; settings are known for none of
//! that. Of code of level 1 the samples do not show whether it is light AVX-512 or heavy AVX2: code
//! of half the width has level 0 in both cases, but no setting is proposed. AMX has no alternative
//! here: without it the same work takes many times as long.

use std::ops::RangeInclusive;

use report::advise::{Narrower, ThanLane};
use report::sample::Offender;

use super::load::Form;

/// The smallest gain that matters, as `turbolane verify --margin` has it.
pub(super) const NOISE_PCT: f64 = 1.0;

/// Cycles of narrower code over those of the wide code, and how that is known.
struct Ratio {
    cycles: RangeInclusive<f64>,
    basis: &'static str,
}

/// Code of half the width. As many cycles: where memory limits it, or where 512-bit instructions
/// are split in two. Twice as many: each instruction does half the work.
const HALF_WIDTH: Ratio =
    Ratio { cycles: 1.0..=2.0, basis: "not known, 1 to 2 times for code of half the width" };
/// OpenSSL's ChaCha20-Poly1305 with AVX2 over that with AVX-512. Measured on an AMD EPYC, whose
/// clock does not depend on the code: 1.47 in TLS records, 1.65 by `openssl speed`
/// (docs/experiments/web-bursts.md). On a Core i9-7940X 1.589 in time at different clocks, 1.96 in
/// cycles (THESIS 5.3, data/scenarios/thesis-nginx.toml).
const CHACHA: Ratio =
    Ratio { cycles: 1.47..=1.96, basis: "measured elsewhere for OpenSSL's ChaCha20-Poly1305" };
/// Other code of OpenSSL. Its AES-GCM without AVX-512 has a quarter of the width in OpenSSL 3.0
/// (AES-NI): four times the cycles at most. Published for a Xeon Platinum 8380: 1.12 to 2.19 times
/// the time, for 16 bytes to 16 KiB (openssl pull request 17239).
const OPENSSL: Ratio = Ratio {
    cycles: 1.0..=4.0,
    basis: "not known, 1 to 4 times for other OpenSSL code, which may fall back to a quarter of \
            the width",
};

/// How a library is kept from using AVX-512.
struct Switch {
    /// What the file's name begins with.
    file: &'static str,
    /// The environment variable.
    variable: &'static str,
}

const SWITCHES: [Switch; 4] = [
    // OPENSSL_ia32cap(3); tried in docs/experiments/web-bursts.md: F, DQ, IFMA, BW and VL are off
    Switch { file: "libcrypto.so", variable: "OPENSSL_ia32cap=:~0xc0230000" },
    // glibc's manual, "Hardware Capability Tunables"; what `run --plain-glibc` sets
    Switch {
        file: "libc.so",
        variable: "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW",
    },
    // OpenBLAS's README, "DYNAMIC_ARCH"; builds for a single CPU ignore it
    Switch { file: "libopenblas", variable: "OPENBLAS_CORETYPE=Haswell" },
    Switch { file: "libscipy_openblas", variable: "OPENBLAS_CORETYPE=Haswell" },
];

/// What narrower code there could be.
#[derive(Debug, PartialEq)]
pub(super) struct Alternative {
    without: &'static str,
    files: Vec<String>,
    ratio: RangeInclusive<f64>,
    basis: String,
    levels: Vec<u8>,
    switch: Vec<String>,
}

/// The alternative to these functions, whose code was simulated with this level.
pub(super) fn alternative(offenders: &[&Offender], level: u8) -> Option<Alternative> {
    let (without, levels) = match level {
        2 => ("AVX-512", vec![0, 1]),
        1 => ("wide registers", vec![0]),
        _ => return None,
    };
    let (ratio, basis) = ratio(offenders, level);
    let mut files: Vec<(String, u64)> = Vec::new();
    for offender in offenders {
        match files.iter_mut().find(|(file, _)| *file == offender.file) {
            Some((_, samples)) => *samples += offender.samples,
            None => files.push((offender.file.clone(), offender.samples)),
        }
    }
    files.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
    let switch = if level == 2 { switches(offenders) } else { Vec::new() };
    let files = files.into_iter().map(|(file, _)| file).collect();
    Some(Alternative { without, files, ratio, basis, levels, switch })
}

/// The mean of the ratios of all code, by samples, which count its cycles; and how they are known.
fn ratio(offenders: &[&Offender], level: u8) -> (RangeInclusive<f64>, String) {
    let (mut least, mut most, mut all) = (0.0, 0.0, 0.0);
    let mut bases: Vec<&str> = Vec::new();
    for offender in offenders {
        let Ratio { cycles, basis } = ratio_of(offender, level);
        let samples = offender.samples as f64;
        (least, most, all) =
            (least + samples * cycles.start(), most + samples * cycles.end(), all + samples);
        if !bases.contains(&basis) {
            bases.push(basis);
        }
    }
    match all > 0.0 {
        true => (least / all..=most / all, bases.join("; ")),
        false => (HALF_WIDTH.cycles, HALF_WIDTH.basis.into()),
    }
}

fn ratio_of(offender: &Offender, level: u8) -> Ratio {
    let is_openssl = file_name(offender).starts_with("libcrypto.so");
    match (level == 2 && is_openssl, is_chacha(offender)) {
        (true, true) => CHACHA,
        (true, false) => OPENSSL,
        (false, _) => HALF_WIDTH,
    }
}

/// The variables that keep all code of level 2 from running; none if there is code that no setting
/// reaches, because that would still lower the clock.
fn switches(offenders: &[&Offender]) -> Vec<String> {
    let wide = offenders.iter().filter(|offender| offender.sustained_level >= 2);
    let variables: Option<Vec<&str>> = wide.map(|offender| variable(offender)).collect();
    let mut switches: Vec<String> = Vec::new();
    for variable in variables.unwrap_or_default() {
        if !switches.iter().any(|other| other == variable) {
            switches.push(variable.to_owned());
        }
    }
    switches
}

fn file_name(offender: &Offender) -> &str {
    offender.file.rsplit('/').next().unwrap_or(&offender.file)
}

fn is_chacha(offender: &Offender) -> bool {
    let function = offender.function.to_ascii_lowercase();
    ["chacha20", "poly1305"].iter().any(|name| function.starts_with(name))
}

fn variable(offender: &Offender) -> Option<&'static str> {
    let name = file_name(offender);
    let found = SWITCHES.iter().find(|switch| name.starts_with(switch.file));
    found.map(|switch| switch.variable)
}

impl Alternative {
    /// The forms to simulate.
    pub(super) fn forms(&self) -> Vec<Form> {
        let ends = [*self.ratio.start(), *self.ratio.end()];
        let forms = self.levels.iter().flat_map(|level| ends.map(|ratio| (*level, ratio)));
        forms.collect()
    }

    /// The report: `gains_pct` has, for each length of sections, the gains of all forms, and
    /// `lane_pct` that of the lane.
    pub(super) fn judged(self, gains_pct: &[Vec<f64>], lane_pct: &[f64]) -> Narrower {
        let all: Vec<f64> = gains_pct.iter().flatten().copied().collect();
        let least = |gains: &[f64]| gains.iter().copied().fold(f64::INFINITY, f64::min);
        let most = |gains: &[f64]| gains.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let both = || gains_pct.iter().zip(lane_pct);
        let than_lane = if both().all(|(gains, lane)| least(gains) >= lane + NOISE_PCT) {
            ThanLane::Better
        } else if both().all(|(gains, lane)| most(gains) <= lane - NOISE_PCT) {
            ThanLane::Worse
        } else {
            ThanLane::Undecided
        };
        Narrower {
            without: self.without.into(),
            files: self.files,
            gain_pct: all.iter().sum::<f64>() / all.len().max(1) as f64,
            least_pct: least(&all),
            most_pct: most(&all),
            least_cycles_ratio: *self.ratio.start(),
            most_cycles_ratio: *self.ratio.end(),
            basis: self.basis,
            license_levels: self.levels,
            runs: all.len() as u32,
            than_lane,
            switch: self.switch,
        }
    }
}

/// Whether it is what is to be done: its setting is known, it gains in every simulation, and the
/// lane gains less or cannot run here.
pub(super) fn is_to_be_done(narrower: &Narrower, can_run_lane: bool) -> bool {
    !narrower.switch.is_empty()
        && narrower.least_pct >= NOISE_PCT
        && (narrower.than_lane == ThanLane::Better || !can_run_lane)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offender(file: &str, function: &str, samples: u64) -> Offender {
        Offender {
            function: function.into(),
            file: file.into(),
            file_offset: None,
            process: "p".into(),
            license_level: 2,
            sustained_level: 2,
            samples,
        }
    }

    fn of(offenders: &[Offender], level: u8) -> Option<Alternative> {
        alternative(&offenders.iter().collect::<Vec<_>>(), level)
    }

    fn assert_ratio(offenders: &[Offender], level: u8, expected: RangeInclusive<f64>) {
        let ratio = of(offenders, level).unwrap().ratio;
        let off = (ratio.start() - expected.start()).abs() + (ratio.end() - expected.end()).abs();
        assert!(off < 1e-9, "{ratio:?}, not {expected:?}");
    }

    /// Measured ratios hold for the code that was measured; a mixture has the mean by samples.
    #[test]
    fn ratios_are_of_what_was_measured() {
        let chacha = offender("/usr/lib/libcrypto.so.3", "ChaCha20_16x", 50);
        let aes = offender("/usr/lib/libcrypto.so.3", "aes_gcm_encrypt_avx512", 50);
        let memset = offender("/usr/lib/libc.so.6", "__memset_avx512_unaligned", 100);
        assert_ratio(std::slice::from_ref(&chacha), 2, CHACHA.cycles);
        assert_ratio(std::slice::from_ref(&aes), 2, 1.0..=4.0);
        assert_ratio(&[chacha.clone(), aes.clone()], 2, 1.235..=2.98);
        assert_ratio(&[chacha.clone(), aes, memset], 2, 1.1175..=2.49);
        // the same name in another file is other code, so is AVX2 code, and no name is no cipher
        assert_ratio(&[offender("/opt/app", "ChaCha20_16x", 95)], 2, HALF_WIDTH.cycles);
        assert_ratio(&[offender("/usr/lib/libcrypto.so.3", "+0x1000", 9)], 2, OPENSSL.cycles);
        assert_ratio(&[chacha], 1, HALF_WIDTH.cycles);
        assert_ratio(&[], 2, HALF_WIDTH.cycles);
    }

    /// What is known and what is not are both named, each once.
    #[test]
    fn bases_are_named() {
        let chacha = offender("/usr/lib/libcrypto.so.3", "ChaCha20_16x", 50);
        let own = offender("/opt/app/bin", "dgemm", 20);
        let found = of(&[chacha.clone(), own.clone(), chacha.clone()], 2).unwrap();
        assert_eq!(found.basis, format!("{}; {}", CHACHA.basis, HALF_WIDTH.basis));
        assert_eq!((found.levels, found.files.len()), (vec![0, 1], 2));
        assert_eq!(found.files[0], "/usr/lib/libcrypto.so.3");
    }

    /// Settings are proposed if they reach all code of level 2: the rest would lower the clock as
    /// before. Each is named once.
    #[test]
    fn settings_reach_the_code() {
        let crypto = offender("/usr/lib/libcrypto.so.3", "f", 50);
        let glibc = offender("/usr/lib/libc.so.6", "__memset_avx512_unaligned", 50);
        let own = offender("/opt/app/bin", "dgemm", 1);
        let avx2 = Offender { sustained_level: 1, ..own.clone() };
        let found = of(&[crypto.clone(), glibc.clone(), crypto.clone(), avx2], 2).unwrap();
        assert_eq!(found.switch.len(), 2, "{found:?}");
        assert!(found.switch[0].starts_with("OPENSSL_ia32cap=:~0x"));
        assert!(of(&[crypto.clone(), own], 2).unwrap().switch.is_empty());
        assert!(of(&[glibc], 1).unwrap().switch.is_empty());
        assert!(of(&[crypto], 3).is_none());
        assert!(of(&[], 2).unwrap().switch.is_empty());
    }

    fn than_lane(gains_pct: &[[f64; 2]], lane_pct: &[f64]) -> Narrower {
        let gains: Vec<Vec<f64>> = gains_pct.iter().map(|gains| gains.to_vec()).collect();
        let crypto = offender("/usr/lib/libcrypto.so.3", "f", 50);
        of(&[crypto], 2).unwrap().judged(&gains, lane_pct)
    }

    /// It is better or worse only if it is so at each length of sections, by more than noise.
    #[test]
    fn every_length_decides() {
        let better = than_lane(&[[9.0, 12.0], [3.0, 4.0]], &[5.0, 1.0]);
        assert_eq!(better.than_lane, ThanLane::Better);
        assert_eq!((better.least_pct, better.most_pct, better.gain_pct), (3.0, 12.0, 7.0));
        assert_eq!(than_lane(&[[1.0, 2.0], [3.0, 4.0]], &[5.0, 6.0]).than_lane, ThanLane::Worse);
        let undecided = [
            than_lane(&[[9.0, 12.0], [3.0, 4.0]], &[5.0, 3.5]),
            than_lane(&[[5.5, 5.6]], &[5.0]),
            than_lane(&[[4.5, 4.6]], &[5.0]),
        ];
        assert!(undecided.iter().all(|found| found.than_lane == ThanLane::Undecided));
    }

    /// It is proposed where it is better, or where the lane cannot run; never where it may lose.
    #[test]
    fn a_loss_is_never_proposed() {
        let better = than_lane(&[[9.0, 12.0]], &[5.0]);
        assert!(is_to_be_done(&better, true) && is_to_be_done(&better, false));
        let undecided = than_lane(&[[4.0, 12.0]], &[5.0]);
        assert!(!is_to_be_done(&undecided, true) && is_to_be_done(&undecided, false));
        let may_lose = than_lane(&[[-1.0, 12.0]], &[-3.0]);
        assert_eq!(may_lose.than_lane, ThanLane::Better);
        assert!(!is_to_be_done(&may_lose, true) && !is_to_be_done(&may_lose, false));
        let unknown = Narrower { switch: Vec::new(), ..better };
        assert!(!is_to_be_done(&unknown, true) && !is_to_be_done(&unknown, false));
    }
}
