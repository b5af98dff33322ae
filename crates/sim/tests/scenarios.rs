// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenario files: the built-in ones run, mistakes are explained, nothing makes the reader panic.

use cpumodel::{CpuModel, Platform};
use proptest::prelude::*;
use sim::engine::Options;
use sim::policy_spec::simulate;
use sim::program::Step;
use sim::scenario::{Question, SCENARIO_FILES, Scenario};

/// Each built-in scenario is read, and works for a moment in each variant on its own machine.
#[test]
fn built_in_scenarios_run() {
    for (name, _) in SCENARIO_FILES {
        let scenario = Scenario::built_in(name).unwrap().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(scenario.name, name);
        let model = CpuModel::built_in(&scenario.machine).unwrap().unwrap();
        let platform = Platform::new(&model);
        let variants = scenario.variants().map(Some).chain([None]);
        for variant in variants {
            for policy in
                ["fair", "cfs", "muqss", "core-scheduling", "affinity:2", "lane", "lane:wide=2"]
            {
                let workload = scenario.workload(variant).unwrap().clone();
                let options = Options { duration_ns: 60_000_000, ..Default::default() };
                let spec = policy.parse().unwrap();
                let out = simulate(&platform, 1, workload, &spec, options, None).unwrap().outcome;
                let done: u64 = out.groups.iter().map(|group| group.completed).sum();
                assert!(done > 0, "{name} {variant:?} {policy}: no work was finished");
            }
        }
    }
}

/// Who judges can: sizing takes wide code and a load that does not end before it is seen,
/// mitigation a variant to compare with.
#[test]
fn judges_have_what_it_takes() {
    let lasts = |scenario: &Scenario| {
        let w = scenario.workload(Some("avx512")).unwrap();
        let mut groups = w.groups.iter().filter(|group| group.tasks > 0);
        groups.all(|group| !w.programs_of(group).any(|steps| steps.contains(&Step::End)))
    };
    let built_in = |name: &str| Scenario::built_in(name).unwrap().unwrap();
    let sizing: Vec<&str> = Scenario::that_judge(Question::Sizing).collect();
    let mitigation: Vec<&str> = Scenario::that_judge(Question::Mitigation).collect();
    assert!(sizing.len() >= 10 && mitigation.len() >= 6, "{sizing:?} {mitigation:?}");
    assert!(sizing.into_iter().all(|name| lasts(&built_in(name))));
    for name in mitigation {
        let scenario = built_in(name);
        assert!(["avx512", "none"].iter().all(|v| scenario.workload(Some(v)).is_some()), "{name}");
    }
}

/// The smallest file that runs.
const SMALL: &str = "schema = 1
name = \"small\"
about = \"a test\"
machine = \"xeon-gold-6130\"
duration_ns = 100_000_000
[code.fma]
class = \"heavy-512\"
[[group]]
name = \"g\"
tasks = 2
program = [
  { work = \"fma\", cycles = [10, 20] },
  { repeat = 3, steps = [{ sleep_ns = { mean = 5 } }] },
]
";

fn why(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from));
    Scenario::from_toml(&SMALL.replace(from, to)).unwrap_err().to_string()
}

/// Each mistake is told with its line, what it is, and what to do.
#[test]
fn mistakes_are_explained() {
    assert!(Scenario::from_toml(SMALL).is_ok());
    assert!(why("schema = 1", "schema = 9").starts_with("line 1: this schema is unknown"));
    assert!(
        why("duration_ns = 100_000_000", "duration_ns = 0").starts_with("line 5: nothing would be")
    );
    assert!(why("duration_ns", "length").contains("length"));
    assert!(why("[code.fma]", "judges = [\"size\"]\n[code.fma]").contains("`sizing`"));
    assert!(why("heavy-512", "heavy-1024").contains("choose scalar, light-256"));
    assert!(why("work = \"fma\"", "work = \"fmb\"").contains("code \"fmb\" does not exist"));
    assert!(why("work = \"fma\"", "wide = \"fma\"").contains("choose level 1, 2 or 3"));
    let announced = "wide = \"fma\", level = 2, scalar_for_ns = 5_000";
    assert!(Scenario::from_toml(&SMALL.replace("work = \"fma\"", announced)).is_ok());
    assert!(
        why("work = \"fma\"", "work = \"fma\", scalar_for_ns = 5")
            .contains("next to wide or wide_end")
    );
    assert!(why("[10, 20]", "[20, 10]").contains("reversed"));
    assert!(why(", cycles = [10, 20]", "").contains("an amount is missing"));
    assert!(why("{ mean = 5 }", "true").contains("an amount"));
    assert!(why("work = \"fma\"", "done = true, work = \"fma\"").contains("several: work, done"));
    assert!(why("tasks = 2", "tasks = 2\ncpus = \"x\"").contains("write it as 0-3,8"));
    assert!(why("tasks = 2", "tasks = 2\nweight = 0").contains("choose 1 to 10,000"));
    assert!(
        why("{ work = \"fma\", cycles = [10, 20] },", "{ fork = \"h\" },").contains("\"h\" does")
    );
    assert!(
        why("steps = [{ sleep_ns = { mean = 5 } }]", "steps = []").contains("nothing is repeated")
    );
    let no_time = why(
        "[\n  { work = \"fma\", cycles = [10, 20] },\n  { repeat = 3, steps = [{ sleep_ns = { mean = 5 } }] },\n]",
        "[{ done = true }]",
    );
    assert!(no_time.starts_with("line 8: its program never ends and takes no time"), "{no_time}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(600)
    })]

    /// Any change of a good file is read or refused with a line of the file; never a panic.
    #[test]
    fn the_reader_survives(
        file in 0..SCENARIO_FILES.len(),
        at in any::<prop::sample::Index>(),
        cut in 0usize..30,
        insert in "[\\[\\]{}=\",.a-z0-9_\\n-]{0,12}",
    ) {
        let text = SCENARIO_FILES[file].1;
        let mut from = at.index(text.len());
        while !text.is_char_boundary(from) { from -= 1; }
        let mut to = (from + cut).min(text.len());
        while !text.is_char_boundary(to) { to += 1; }
        let changed = format!("{}{insert}{}", &text[..from], &text[to..]);
        if let Err(error) = Scenario::from_toml(&changed) {
            prop_assert!(error.line <= changed.lines().count().max(1), "{error}");
        }
    }
}
