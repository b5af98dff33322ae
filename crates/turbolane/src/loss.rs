// SPDX-License-Identifier: MIT OR Apache-2.0
//! The share of its clock that a core loses by wide code: what a section that is handed to another
//! core saves.
//!
//! It depends on the CPU and the level, and `turbolane probe` measures it. So the environment may
//! name a CPU file (its own, or one of `data/cpus`). Without one, the smallest known share is used
//! for all: it errs towards running a section where it is.
//!
//! Limit: the clocks of a file with all cores active count, for where sections are handed over,
//! cores are busy. A file that was probed with few active cores has those only, and is taken at its
//! word.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;

use cpumodel::{CpuModel, Platform};

/// Names the CPU file; ignored in programs that run with more rights than their user has.
const MACHINE_FILE_ENV: &CStr = c"TURBOLANE_MACHINE_FILE";

/// Without a file. Xeon Gold 6130, all cores, from level 0 to 1 (data/cpus/xeon-gold-6130.toml: 2.8
/// to 2.4 GHz). Other steps and CPUs lose more (a Sapphire Rapids 2.99 to 2.49 GHz).
const LOST_FRAC: f64 = 1.0 / 7.0;

/// Of code of this level. A file that cannot be read or used is none.
pub(crate) fn lost_frac(level: u32) -> f64 {
    let file = environment::secure(MACHINE_FILE_ENV, |path| {
        path.and_then(|path| std::fs::read_to_string(OsStr::from_bytes(path)).ok())
    });
    file.and_then(|text| of_file(&text, level)).unwrap_or(LOST_FRAC)
}

/// The same by a file's text; 0 if no level lowers the clock. A level that the CPU does not have is
/// its highest.
fn of_file(text: &str, level: u32) -> Option<f64> {
    let platform = Platform::new(&CpuModel::from_toml(text).ok()?);
    let level = (level as usize).min(platform.nr_levels() - 1) as u8;
    let khz = |level| f64::from(platform.clock_khz(level, platform.nr_cores));
    Some(1.0 - khz(level) / khz(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file that the probe wrote for docs/experiments: 2.50 GHz, 2.08 with wide code, whatever
    /// its level.
    const PROBED: &str = include_str!("../../../docs/experiments/wide-bursts-machine.toml");

    /// The share is that of the file's clocks, and levels beyond its highest are that.
    #[test]
    fn a_probed_file_tells_the_share() {
        for level in 1..=3 {
            let lost = of_file(PROBED, level).unwrap();
            assert!((lost - (1.0 - 2.08 / 2.5)).abs() < 1e-12, "level {level}: {lost}");
        }
    }

    /// The share without a file is that of the CPU it is said to be of; higher levels lose more.
    #[test]
    fn the_default_is_the_gold_6130s() {
        let file = include_str!("../../../data/cpus/xeon-gold-6130.toml");
        let lost = of_file(file, 1).unwrap();
        assert!((lost - LOST_FRAC).abs() < 1e-12, "{lost}");
        assert!(of_file(file, 2).unwrap() > lost);
    }

    /// Not a test but the program of the next one: prints the share.
    #[test]
    fn other_program() {
        if std::env::var_os("TURBOLANE_TEST_LOSS").is_some() {
            println!("share: {}", lost_frac(1));
        }
    }

    /// A file that the environment names is read; one that is not there is none. (That a
    /// set-user-ID program reads none is the crate `environment`'s doing, which tests it.)
    #[test]
    fn the_environment_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("machine.toml");
        let share = || -> f64 {
            let output = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "loss::tests::other_program", "--nocapture"])
                .env("TURBOLANE_TEST_LOSS", "1")
                .env("TURBOLANE_MACHINE_FILE", &file)
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            text.split("share: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap()
        };
        assert_eq!(share(), LOST_FRAC, "none");
        std::fs::write(&file, PROBED).unwrap();
        assert_ne!(share(), LOST_FRAC, "the file's");
    }

    /// What is no CPU file says nothing; one whose levels run at one clock says that nothing is
    /// lost.
    #[test]
    fn other_files_tell_nothing() {
        assert_eq!(of_file("", 1), None);
        assert_eq!(of_file("schema = 1\nid = 3", 1), None);
        assert_eq!(of_file(&PROBED.replace("2080000", "2500000"), 2), Some(0.0));
    }
}
