// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reader of CPU files: what is built in is sound, and what is wrong is refused at its line.

use cpumodel::{
    CONTRIBUTED_CPUS, CPU_FILES, CpuModel, InsnClass, Khz, LicenseLevel, Sourced, Sureness,
    built_in_cpus,
};
use proptest::prelude::*;

const GOOD: &str = CPU_FILES[0].1;

fn models() -> impl Iterator<Item = CpuModel> {
    built_in_cpus()
        .map(|(id, _)| CpuModel::built_in(id).unwrap().unwrap_or_else(|e| panic!("{id}: {e}")))
}

/// Each contributed file is built in, and has an id of its own.
#[test]
fn contributed_files_are_built_in() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/data/cpus/contributed");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".toml").map(str::to_owned))
        .collect();
    files.sort_unstable();
    let mut known: Vec<&str> = CONTRIBUTED_CPUS.iter().map(|(id, _)| *id).collect();
    known.sort_unstable();
    assert_eq!(files, known);
    assert!(known.iter().all(|id| CPU_FILES.iter().all(|(other, _)| other != id)));
}

/// Every built-in file is readable, is found by its own id, and says how many cores it has.
#[test]
fn built_in_files_are_readable() {
    for ((id, _), model) in built_in_cpus().zip(models()) {
        assert_eq!(model.id, id);
        assert!(model.nr_cores.is_some(), "{id}: cores");
        assert!(model.rules.as_ref().unwrap().value.contains_key(&InsnClass::Heavy512), "{id}");
    }
    assert!(CpuModel::built_in("pentium-60").is_none());
}

/// Clock of a level at so many active cores; of the last bucket beyond it.
fn clock(level: &LicenseLevel, cores: u32) -> Option<Khz> {
    let table = &level.turbo.as_ref()?.value;
    table.iter().find(|bin| bin.up_to_cores >= cores).or(table.last()).map(|bin| bin.clock)
}

/// More active cores are never faster, a higher level is never faster, and no turbo clock lies
/// below its level's base clock.
#[test]
fn built_in_tables_are_monotone() {
    for model in models() {
        let nr_cores = model.nr_cores.as_ref().unwrap().value;
        for cores in 1..=nr_cores {
            let clocks: Vec<_> =
                model.levels.iter().filter_map(|level| clock(level, cores)).collect();
            assert!(
                clocks.is_sorted_by(|low, high| low >= high),
                "{}: {cores}: {clocks:?}",
                model.id
            );
            for level in &model.levels {
                assert!(clock(level, cores + 1) <= clock(level, cores), "{}: {cores}", model.id);
                if let (Some(turbo), Some(base)) = (clock(level, cores), &level.base) {
                    assert!(turbo >= base.value, "{}: {} at {cores}", model.id, level.name);
                }
            }
        }
        let last = model.levels[0].turbo.as_ref().unwrap().value.last().unwrap();
        assert!(last.up_to_cores >= nr_cores, "{}: the table ends before the part", model.id);
    }
}

/// Wider or heavier code never asks for less: the order of the classes is that of their levels.
#[test]
fn built_in_rules_grow_with_the_class() {
    for model in models() {
        let rules = model.rules.unwrap().value;
        let width = [InsnClass::Scalar, InsnClass::Light256, InsnClass::Light512];
        for pair in width.windows(2).chain([InsnClass::Heavy256, InsnClass::Heavy512].windows(2)) {
            let (narrow, wide) = (rules[&pair[0]], rules[&pair[1]]);
            assert!(narrow.single_level <= wide.single_level, "{}: {pair:?}", model.id);
            assert!(narrow.dense_level <= wide.dense_level, "{}: {pair:?}", model.id);
        }
    }
}

/// Nothing is called verified whose source says that it was guessed.
#[test]
fn sources_do_not_contradict_their_sureness() {
    for (id, text) in built_in_cpus() {
        for line in text.lines().filter(|line| line.contains("sureness = \"verified\"")) {
            for word in ["as the ", "as Skylake", "derived", "inferred", "quoting", "recalled"] {
                assert!(!line.contains(word), "{id}: {line}");
            }
        }
    }
}

/// The published table of the Gold 6130, bucket by bucket (DIM 2, Table 1), read as MHz.
#[test]
fn gold_6130_is_dim_table_1() {
    let model = CpuModel::built_in("xeon-gold-6130").unwrap().unwrap();
    let published = [
        (1..=2, [3700, 3600, 3500]),
        (3..=4, [3500, 3400, 3100]),
        (5..=8, [3400, 3100, 2400]),
        (9..=12, [3100, 2600, 2100]),
        (13..=16, [2800, 2400, 1900]),
    ];
    for (range, mhz) in published {
        for cores in range {
            for (level, mhz) in mhz.into_iter().enumerate() {
                let ours = clock(&model.levels[level], cores);
                assert_eq!(ours, Some(Khz(mhz * 1_000)), "level {level}, {cores} cores");
            }
        }
    }
}

/// All cores of a 6980P lose 37.5 % to AMX, 25 % to heavy AVX-512, 9 % to AVX2 (intel/pepc).
#[test]
fn granite_rapids_gap_is_as_recorded() {
    let model = CpuModel::built_in("xeon-6980p").unwrap().unwrap();
    let at = |level: usize| f64::from(clock(&model.levels[level], 128).unwrap().0);
    for (level, percent) in [(1, 9.4), (3, 25.0), (4, 37.5)] {
        let loss = 100.0 * (1.0 - at(level) / at(0));
        assert!((loss - percent).abs() < 0.05, "level {level}: {loss}");
    }
}

/// Replaces `from` once in a good file and returns line and text of the refusal.
fn refusal(from: &str, to: &str) -> (usize, String) {
    assert!(GOOD.contains(from), "{from}");
    let at = GOOD.find(from).unwrap();
    let line = 1 + GOOD[..at].matches('\n').count();
    let text = GOOD.replacen(from, to, 1);
    let error = CpuModel::from_toml(&text).expect_err(to);
    assert_eq!(error.line, line, "{error}");
    (error.line, error.to_string())
}

/// Each mistake is found at its own line, and the message names it.
#[test]
fn mistakes_are_refused_at_their_line_fail() {
    for (from, to, says) in [
        ("schema = 1", "schema = 2", "schema 2 is not known"),
        ("id = \"xeon", "id = \"Xeon", "is not a valid id"),
        ("nr_cores = { value = 16", "nr_cores = { value = 0", "outside of 1..=4096"),
        ("dense_per_cycle = { value = 0.5", "dense_per_cycle = { value = 0.0", "outside of 0..=8"),
        ("dense_per_cycle = {", "density = {", "unknown field `density`"),
        ("base_khz = { value = 2_100_000", "base_khz = { value = 0", "0 kHz, outside"),
        ("base_khz = { value = 2_100_000", "base_khz = { value = 2_100", "2100 kHz, outside"),
        ("clock_khz = [3_700_000, 3_5", "clock_khz = [3_400_000, 3_5", "with more active cores"),
        ("clock_khz = [3_700_000, ", "clock_khz = [", "5 core counts and 4 clocks"),
        ("up_to_cores = [2, 4", "up_to_cores = [4, 2", "do not ascend"),
        ("up_to_cores = [2, 4", "up_to_cores = [0, 4", "do not ascend"),
        ("heavy-512 = [1, 2]", "heavy-512 = [1, 3]", "there are 3 levels"),
        ("heavy-512 = [1, 2]", "heavy-512 = [2, 1]", "no less than a single instruction"),
        ("heavy-512 = [1, 2]", "heavy-511 = [1, 2]", "is not a class of instructions"),
        ("throttle_frac = { value = 0.25", "throttle_frac = { value = 25", "outside of 0..=1"),
        ("throttle_frac = { value = 0.25", "throttle_frac = { value = nan", "outside of 0..=1"),
        ("relax_ns = { value = 670_000", "relax_ns = { value = 6_700_000_000", "outside of 0..="),
        ("relax_ns = { value = 670_000", "relax_ns = { value = -1", "invalid value"),
        ("source = \"DIM 4 and 5.2\"", "source = \" \"", "the text is empty"),
        (
            "relax_ns = { value = 670_000, source = \"DIM 4 and 5.2\", ",
            "relax_ns = { value = 1, ",
            "missing field `source`",
        ),
        (
            "sureness = \"verified\" }\n\n[costs]",
            "sureness = \"sure\" }\n\n[costs]",
            "unknown variant `sure`",
        ),
    ] {
        let (_, text) = refusal(from, to);
        assert!(text.contains(says), "{to}: {text}");
    }
}

/// Levels out of order, a file without levels, rules or level 0's clocks are refused.
#[test]
fn missing_and_contradicting_tables_fail() {
    let faster =
        GOOD.replacen("clock_khz = [3_600_000, 3_400_000", "clock_khz = [3_800_000, 3_400_000", 1);
    let cut = |from: &str, to: &str| {
        let (start, end) = (GOOD.find(from).unwrap(), GOOD.find(to).unwrap());
        format!("{}{}", &GOOD[..start], &GOOD[end..])
    };
    let no_scalar = GOOD.replacen("scalar = [0, 0]\n", "", 1);
    let no_turbo = GOOD.replacen("[level.turbo]", "[[level]]\nname = \"x\"\n[level.turbo]", 1);
    for (text, says) in [
        (faster, "AVX2 is faster than non-AVX at 2 active cores"),
        (cut("[[level]]", "[rules]"), "missing field `level`"),
        (cut("[rules]", "[transition]"), "missing field `rules`"),
        (no_scalar, "scalar code has no level 0"),
        (no_turbo, "level 0 has no [level.turbo]"),
        (String::new(), "missing field `schema`"),
        ("schema = ".into(), "line 1"),
    ] {
        let error = CpuModel::from_toml(&text).expect_err(says).to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
}

/// A CPU is found by the name that CPUID gives it, but only where its file says what a level costs.
#[test]
fn cpus_are_found_by_their_brand() {
    let id = |brand: &str| CpuModel::of_brand(brand).map(|model| model.id);
    let found = |id: &str| Some(id.to_owned());
    assert_eq!(id("Intel(R) Xeon(R) Silver 4210 CPU @ 2.20GHz"), found("xeon-silver-4210"));
    assert_eq!(id("Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz"), found("xeon-gold-6130"));
    assert_eq!(id("Intel(R) Xeon(R) Platinum 8360Y CPU @ 2.40GHz"), found("xeon-platinum-8360y"));
    let rocket_lake = "11th Gen Intel(R) Core(TM) i9-11900K @ 3.50GHz";
    assert_eq!(id(rocket_lake), found("core-i9-11900k"), "it has one level");
    assert_eq!(id("Intel(R) Xeon(R) Silver 4210R CPU @ 2.40GHz"), None, "another part");
    assert_eq!(id("Intel(R) Xeon(R) Platinum 8260L CPU @ 2.40GHz"), None, "levels without clocks");
    assert_eq!(id("Intel(R) Xeon(R) Platinum 8460H"), None, "levels without clocks");
}

/// Unknown stays unknown: what a file leaves out is not there, and no number is without source.
#[test]
fn what_is_left_out_is_unknown() {
    let model = CpuModel::built_in("xeon-silver-4116").unwrap().unwrap();
    assert_eq!(model.levels[1].turbo, None);
    assert_eq!(model.transition.pcu_period_ns, None);
    assert_eq!(model.power.idle_w, None);
    let base = model.levels[2].base.as_ref().unwrap();
    let expected =
        Sourced { value: Khz(1_100_000), source: "SFMA 1".into(), sureness: Sureness::Verified };
    assert_eq!(*base, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// No text makes the reader panic, and its errors stay inside the text.
    #[test]
    fn no_text_is_too_odd(text in "(?s).{0,200}") {
        if let Err(error) = CpuModel::from_toml(&text) {
            prop_assert!(error.line >= 1 && error.line <= text.matches('\n').count() + 1);
        }
    }

    /// A good file with some of it overwritten, cut out or doubled is either refused with a line
    /// of the file or a model that keeps the rules: never a panic, never a table that gets faster.
    #[test]
    fn damaged_files_are_refused_or_sound(
        file in 0..CPU_FILES.len(),
        start in 0usize..6_000,
        length in 0usize..60,
        instead in "[0-9a-z_=\\[\\]{}\", \n.-]{0,12}",
    ) {
        let good = CPU_FILES[file].1;
        let start = start.min(good.len());
        let end = (start + length).min(good.len());
        let text = format!("{}{instead}{}", &good[..start], &good[end..]);
        match CpuModel::from_toml(&text) {
            Err(error) => prop_assert!(error.line >= 1 && error.line <= text.lines().count() + 1),
            Ok(model) => {
                for cores in 1..300 {
                    let clocks: Vec<_> =
                        model.levels.iter().filter_map(|level| clock(level, cores)).collect();
                    prop_assert!(clocks.is_sorted_by(|low, high| low >= high));
                    prop_assert!(clocks.iter().all(|clock| clock.0 > 0));
                }
            }
        }
    }
}
