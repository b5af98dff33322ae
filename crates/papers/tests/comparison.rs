// SPDX-License-Identifier: MIT OR Apache-2.0
//! Published and simulated figures: a simulation that behaves exactly as the papers measured is
//! reported to reproduce them, one that does not is caught, and nothing counts twice or for free.

use std::collections::BTreeMap;

use papers::comparison::{
    Changed, Experiments, Measure, Reproduction, RowResult, Runs, Simulated, Strict, Verdict,
    WhatIfRuns, broken,
};
use papers::published::{Config, Paper, Use};

/// Values by configuration and by row.
#[derive(Clone, Default)]
struct Table {
    measures: BTreeMap<(Config, &'static str), f64>,
    figures: BTreeMap<String, f64>,
}

fn key(measure: Measure) -> &'static str {
    match measure {
        Measure::Throughput => "throughput",
        Measure::CpuTime => "cpu-time",
        Measure::Clock => "clock",
        Measure::LatencyMax => "latency-max",
        Measure::LatencyMean => "latency-mean",
    }
}

impl Simulated for Table {
    fn measure(&self, config: &Config, measure: Measure) -> Option<f64> {
        self.measures.get(&(config.clone(), key(measure))).copied()
    }

    fn figure(&self, id: &str) -> Option<f64> {
        self.figures.get(id).copied()
    }
}

/// A model that yields a table for each seed.
#[derive(Clone, Default)]
struct Model {
    seeds: Vec<Table>,
    turbolane: Option<Table>,
    elsewhere: Vec<(&'static str, Table)>,
    /// By row: what the experiment yields with a change, and what the change breaks.
    what_ifs: BTreeMap<String, (Table, Vec<String>)>,
}

impl From<Table> for Model {
    fn from(table: Table) -> Model {
        Model { seeds: vec![table], ..Model::default() }
    }
}

fn runs<'a>(tables: impl IntoIterator<Item = &'a Table>) -> Runs<'static> {
    tables.into_iter().map(|table| Box::new(table.clone()) as Box<dyn Simulated>).collect()
}

impl Experiments for Model {
    fn model(&self) -> Runs<'_> {
        runs(&self.seeds)
    }

    fn turbolane(&self) -> Runs<'_> {
        runs(&self.turbolane)
    }

    fn elsewhere(&self) -> Vec<Changed<'_>> {
        let changed = |(name, table): &(&str, Table)| Changed {
            change: name.to_string(),
            runs: runs([table]),
        };
        self.elsewhere.iter().map(changed).collect()
    }

    fn what_if(&self, id: &str) -> Option<WhatIfRuns<'_>> {
        let (table, breaks) = self.what_ifs.get(id)?;
        Some(WhatIfRuns { change: "the lane were larger".into(), breaks, runs: runs([table]) })
    }
}

fn compared(paper: &Paper, model: impl Into<Model>) -> Reproduction {
    let model = model.into();
    Reproduction::new(&[(paper, &model)], model.seeds.len() as u64, Vec::new())
}

fn paper(name: &str) -> Paper {
    Paper::built_in(name).unwrap().unwrap()
}

fn config(machine: &str, workload: &str, variant: &str, policy: &str) -> Config {
    let own = |text: &str| text.to_string();
    Config {
        machine: own(machine),
        workload: own(workload),
        variant: own(variant),
        policy: own(policy),
    }
}

/// A web server with the losses of SFMA 4.1, in units of our own.
fn sfma() -> Table {
    let mut table = Table::default();
    let losses = [
        ("none", "unmodified", 0.0),
        ("avx2", "unmodified", 4.2),
        ("avx512", "unmodified", 11.2),
        ("avx2", "explicit", 1.1),
        ("avx512", "explicit", 3.2),
    ];
    for (variant, policy, loss) in losses {
        let config = config("xeon-gold-6130", "nginx-brotli", variant, policy);
        table.measures.insert((config, "throughput"), 7_000.0 * (1.0 - loss / 100.0));
    }
    table
}

fn row<'a>(result: &'a Reproduction, id: &str) -> &'a RowResult {
    let mut rows = result.papers.iter().flat_map(|paper| &paper.rows);
    rows.find(|row| row.published.id == id).unwrap_or_else(|| panic!("no row {id}"))
}

/// Losses, and the share of them removed, come out of throughputs as the paper computes them.
#[test]
fn a_faithful_simulation_reproduces_losses() {
    let result = compared(&paper("SFMA"), sfma());
    for id in ["sfma-nginx-avx2-loss", "sfma-nginx-avx512-loss-mitigated"] {
        let row = row(&result, id);
        assert!(row.error.unwrap().abs() < 1e-9, "{id}: {row:?}");
        assert_eq!(row.verdict, Some(Verdict::Met));
    }
    let removed = row(&result, "sfma-nginx-loss-removed").simulated.unwrap();
    assert!((removed - 71.43).abs() < 0.01, "{removed}");
    let held =
        result.papers[0].orders.iter().filter(|order| order.verdict == Some(Verdict::Met)).count();
    assert_eq!(held, 4, "brotli, mitigated twice, both");
    assert_eq!(result.score.order_violations, 0);
}

/// A throughput in MB/s is compared on the scale of its baseline, which itself is not counted.
#[test]
fn throughput_is_on_the_scale_of_the_baseline() {
    let mut table = Table::default();
    let server = |variant, policy| config("core-i9-7940x", "nginx-brotli", variant, policy);
    table.measures.insert((server("none", "unmodified"), "throughput"), 1_000.0);
    table.measures.insert((server("avx512", "trap-return-2"), "throughput"), 990.0);
    let result = compared(&paper("THESIS"), table);
    let ours = row(&result, "thesis-t53-static");
    assert!((ours.simulated.unwrap() - 0.99 * 125.82).abs() < 1e-9, "{ours:?}");
    assert_eq!(ours.verdict, Some(Verdict::Met));
    assert_eq!(row(&result, "thesis-t53-none").simulated, None, "it fixes the scale");
}

/// CPU time grows where throughput falls, and a share removed uses what the paper measured.
#[test]
fn cpu_time_is_its_own_measure() {
    let mut table = Table::default();
    let parsec = |variant, policy| config("xeon-gold-6130", "parsec-x265", variant, policy);
    for (variant, policy, cpu_time) in [
        ("none", "unmodified", 100.0),
        ("avx512", "unmodified", 112.3),
        ("avx512", "trap-syscall-half", 103.7),
    ] {
        table.measures.insert((parsec(variant, policy), "cpu-time"), cpu_time);
    }
    let result = compared(&paper("SYSTOR"), table);
    assert!(
        (row(&result, "systor-parsec-slowdown-mitigated").simulated.unwrap() - 3.7).abs() < 1e-9
    );
    let removed = row(&result, "systor-parsec-loss-removed").simulated.unwrap();
    assert!((removed - 69.9).abs() < 0.1, "{removed}");
    let order =
        &result.papers[0].orders.iter().find(|o| o.published.id == "systor-order-parsec-x265");
    assert_eq!(order.unwrap().verdict, Some(Verdict::Met), "less CPU time is better");
}

fn mitigated() -> (Config, &'static str) {
    (config("xeon-gold-6130", "nginx-brotli", "avx512", "explicit"), "throughput")
}

/// A simulation that is off is told so: rows are missed, rankings violated, and each of them is
/// named. A changed experiment takes a miss off the list only if it closes half of the gap and
/// breaks nothing, and makes no hit of it.
#[test]
fn an_unfaithful_simulation_is_caught() {
    const MISS: &str = "sfma-nginx-avx512-loss-mitigated";
    let mut table = sfma();
    table.measures.insert(mitigated(), 6_000.0);
    let before = compared(&paper("SFMA"), table.clone());
    assert_eq!(row(&before, MISS).verdict, Some(Verdict::Missed));
    assert_eq!(before.score.order_violations, 1, "mitigated is below unmodified");
    let named = |result: &Reproduction| result.unexplained.iter().any(|id| id == MISS);
    assert!(named(&before) && before.text(120).contains(MISS), "{:?}", before.unexplained);
    assert_eq!(before.unexplained.len() as u32, before.score.unexplained);
    let text = before.text(120);
    assert!(text.contains("MISSED") && text.contains("VIOLATED"), "{text}");

    let if_it_were = |throughput: f64, breaks: &[&str]| {
        let mut changed = sfma();
        changed.measures.insert(mitigated(), throughput);
        let breaks = breaks.iter().map(|id| id.to_string()).collect();
        let mut model = Model::from(table.clone());
        model.what_ifs.insert(MISS.into(), (changed, breaks));
        compared(&paper("SFMA"), model)
    };
    // published is a loss of 3.2 %, ours 14.3
    let near = if_it_were(6_500.0, &[]);
    assert_eq!(near.score.unexplained, before.score.unexplained - 1);
    assert!(!named(&near));
    assert_eq!(near.score.within, before.score.within);
    assert!(near.text(250).contains("if the lane were larger: 7"), "{}", near.text(250));
    for not_enough in [if_it_were(6_100.0, &[]), if_it_were(5_900.0, &[])] {
        assert!(named(&not_enough) && not_enough.text(250).contains("not explained"));
    }
    let contradicted = if_it_were(6_500.0, &["sfma-nginx-avx512-loss"]);
    assert!(named(&contradicted));
    let text = contradicted.text(300);
    assert!(text.contains("\"if the lane were larger\" breaks sfma-nginx-avx512-loss"), "{text}");
}

/// A change breaks a calibrating row that leaves its tolerance with it, or goes farther outside;
/// the cause of a miss may not break a hit or a ranking either.
#[test]
fn a_change_that_breaks_calibration_is_found() {
    let paper = paper("SFMA");
    let with = |loss: f64, lane: f64| {
        let mut table = sfma();
        let unmodified = config("xeon-gold-6130", "nginx-brotli", "avx512", "unmodified");
        table.measures.insert((unmodified, "throughput"), 7_000.0 * (1.0 - loss / 100.0));
        table.measures.insert(mitigated(), 7_000.0 * (1.0 - lane / 100.0));
        table
    };
    let breaks = |model: &Table, changed: &Table, strict| {
        broken(&paper, &runs([model]), &runs([changed]), strict)
    };
    let calibrated = "sfma-nginx-avx512-loss".to_string();
    let half_the_work = with(18.1, 3.2);
    assert!(breaks(&sfma(), &half_the_work, Strict::Calibration).contains(&calibrated));
    assert!(breaks(&sfma(), &with(12.0, 3.2), Strict::Calibration).is_empty());
    assert_eq!(breaks(&half_the_work, &with(19.0, 3.2), Strict::Calibration), [calibrated]);
    assert!(breaks(&half_the_work, &with(17.0, 3.2), Strict::Calibration).is_empty());
    let larger_lane = with(11.2, 13.0);
    assert!(breaks(&sfma(), &larger_lane, Strict::Calibration).is_empty());
    let all = breaks(&sfma(), &larger_lane, Strict::All);
    for id in ["sfma-nginx-avx512-loss-mitigated", "sfma-order-mitigated"] {
        assert!(all.iter().any(|broken| broken == id), "{id}: {all:?}");
    }
}

/// The value is the mean over the seeds, and its standard deviation is printed.
#[test]
fn seeds_are_averaged() {
    let seeds = [440.0, 460.0, 480.0].map(|cost| {
        let mut table = Table::default();
        table.figures.insert("sfma-type-change-cost".into(), cost);
        table
    });
    let result = compared(&paper("SFMA"), Model { seeds: seeds.into(), ..Model::default() });
    let cost = row(&result, "sfma-type-change-cost");
    assert_eq!((cost.simulated, cost.stddev, result.seeds), (Some(460.0), Some(20.0), 3));
    assert!(result.text(120).contains("460 +-20 ns"), "{}", result.text(120));
}

/// A near-free constant makes a range of a figure: a hit if all of it is within the tolerance, a
/// miss if none of it is, and nothing otherwise. A ranking that it overturns is undecided.
#[test]
fn a_range_decides_only_as_a_whole() {
    let at = |loss: f64, elsewhere: f64| {
        let table = |loss: f64| {
            let mut table = sfma();
            table.measures.insert(mitigated(), 7_000.0 * (1.0 - loss / 100.0));
            table
        };
        let mut model = Model::from(table(loss));
        model.elsewhere.push(("cores = 1", table(elsewhere)));
        compared(&paper("SFMA"), model)
    };
    let verdict = |result: &Reproduction| row(result, "sfma-nginx-avx512-loss-mitigated").verdict;
    assert_eq!(verdict(&at(3.0, 4.0)), Some(Verdict::Met));
    assert_eq!(verdict(&at(6.0, 9.0)), Some(Verdict::Missed));
    // it need not be met anywhere: the published figure is between the two
    assert_eq!(verdict(&at(0.5, 9.0)), Some(Verdict::Undecided));
    let hit_by_choice = at(3.2, 12.0);
    assert_eq!(verdict(&hit_by_choice), Some(Verdict::Undecided));
    let (chosen, fixed) = (hit_by_choice.score, at(3.2, 3.3).score);
    assert!(chosen.within < fixed.within && chosen.undecided > fixed.undecided);
    assert!(chosen.orders_undecided > fixed.orders_undecided);
    assert_eq!(chosen.unexplained, fixed.unexplained, "neither a hit nor a miss");
    let text = hit_by_choice.text(250);
    assert!(text.contains("3.20..12") && text.contains("12 % with cores = 1"), "{text}");
}

/// What follows from the model's inputs is compared and marked. A hit of it is not counted; a miss
/// is, and wants to be explained.
#[test]
fn what_follows_counts_only_if_it_is_missed() {
    let with = |gain: f64| {
        let mut table = Table::default();
        table.figures.insert("thesis-amdahl".into(), gain);
        compared(&paper("THESIS"), table)
    };
    let (hit, miss) = (with(0.6), with(9.0));
    assert_eq!((hit.score.follow, hit.score.within, hit.score.missed), (1, 0, 0));
    assert_eq!((miss.score.follow, miss.score.within, miss.score.missed), (0, 0, 1));
    assert_eq!(miss.score.predicted, hit.score.predicted + 1);
    assert_eq!(miss.unexplained, ["thesis-amdahl"]);
    assert!(hit.text(250).contains("follows from thesis-wide-share"), "{}", hit.text(250));
}

/// Turbolane's own value stands beside a mitigated row, and changes no verdict.
#[test]
fn turbolane_stands_beside() {
    let mut lane = sfma();
    lane.measures.insert(mitigated(), 6_930.0);
    let model = Model { turbolane: Some(lane), ..Model::from(sfma()) };
    let result = compared(&paper("SFMA"), model);
    let ours = row(&result, "sfma-nginx-avx512-loss-mitigated");
    assert!((ours.turbolane.unwrap() - 1.0).abs() < 1e-9, "{ours:?}");
    assert!((ours.simulated.unwrap() - 3.2).abs() < 1e-9);
    assert_eq!(row(&result, "sfma-nginx-avx512-loss").turbolane, None, "not mitigated");
    assert_eq!(result.score, compared(&paper("SFMA"), sfma()).score);
}

/// A figure that is repeated by other means is compared and shown with its means, and not counted
/// again; a miss of it wants to be explained all the same.
#[test]
fn repeated_figures_count_once() {
    let rate = |policy: &str, of: f64| {
        (config("core-i9-7940x", "nginx-openssl-recorded", "avx512", policy), of)
    };
    let with = |hints: f64| {
        let mut table = Table::default();
        for (config, of) in [rate("unmodified", 1_000.0), rate("hints", hints)] {
            table.measures.insert((config, "throughput"), of);
        }
        compared(&paper("DIM"), table)
    };
    let (near, far) = (with(1_040.0), with(1_100.0));
    assert_eq!(row(&near, "dim-recorded-hints").verdict, Some(Verdict::Met));
    assert_eq!(row(&far, "dim-recorded-hints").verdict, Some(Verdict::Missed));
    for (result, verdict, unexplained) in [(&near, "repeated", 0), (&far, "MISSED", 1)] {
        assert_eq!((result.score.within, result.score.missed), (0, 0));
        assert_eq!(result.score.unexplained, unexplained);
        let text = result.text(300);
        let repeated = |line: &&str| {
            line.contains("hints of the application") && line.contains("nginx recorded here")
        };
        assert!(text.lines().find(repeated).unwrap().contains(verdict), "{text}");
    }
}

/// What was not simulated is open: neither a hit nor out of the count.
#[test]
fn nothing_simulated_is_nothing_reproduced() {
    for name in ["SFMA", "SYSTOR", "THESIS", "DIM"] {
        let paper = paper(name);
        let result = compared(&paper, Table::default());
        let counting =
            |row: &&papers::published::Row| matches!(row.purpose, Use::Predicts | Use::Follows);
        assert_eq!(result.score.predicted as usize, paper.rows.iter().filter(counting).count());
        assert_eq!((result.score.within, result.score.missed, result.score.undecided), (0, 0, 0));
        assert_eq!(result.score.within_tolerance_pct, Some(0.0));
        assert_eq!((result.score.orders_held, result.score.order_violations), (0, 0));
        assert!(result.text(100).contains("0 of "), "{}", result.text(100));
    }
}

/// Context is never compared, even if somebody has a value for it; NaN is no value.
#[test]
fn context_and_nonsense_do_not_count() {
    let mut table = Table::default();
    table.figures.insert("sfma-nginx-ipc".into(), 1.007);
    table.figures.insert("sfma-type-change-cost".into(), f64::NAN);
    let result = compared(&paper("SFMA"), table);
    assert_eq!(row(&result, "sfma-nginx-ipc").verdict, None);
    assert_eq!(row(&result, "sfma-type-change-cost").verdict, None);
    assert_eq!((result.score.within, result.score.missed), (0, 0));
}

/// A figure by id is taken as it is, and a published range is met inside.
#[test]
fn figures_by_id() {
    let mut table = Table::default();
    table.figures.insert("sfma-type-change-cost".into(), 460.0);
    let result = compared(&paper("SFMA"), table);
    let cost = row(&result, "sfma-type-change-cost");
    assert_eq!((cost.error, cost.verdict), (Some(0.0), Some(Verdict::Met)));
    let text = result.text(120);
    assert!(text.contains("400-500 ns") && text.contains("460 ns"), "{text}");
}

/// The document reads back as it was written, `use` included.
#[test]
fn json_round_trip() {
    let result = compared(&paper("SFMA"), sfma());
    let line = report::json_line(&result);
    assert!(line.starts_with("{\"schema\":1,\"seeds\":1,"), "{}", &line[..40]);
    assert!(line.contains("\"use\":\"predicts\""));
    assert!(serde_json::from_str::<Reproduction>(&line).unwrap() == result);
}
