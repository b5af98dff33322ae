// SPDX-License-Identifier: MIT OR Apache-2.0
//! Published and simulated figures: a simulation that behaves exactly as the papers measured is
//! reported to reproduce them, one that does not is caught, and nothing counts twice or for free.

use std::collections::BTreeMap;

use papers::comparison::{Measure, Reproduction, Simulated, Variation};
use papers::published::{Config, Paper, Use};

/// Values by configuration and by row.
#[derive(Clone, Default)]
struct Table {
    measures: BTreeMap<(Config, &'static str), f64>,
    figures: BTreeMap<String, f64>,
    /// By row: the change, and what the experiment yields with it.
    what_ifs: BTreeMap<String, (String, Table)>,
    turbolane: Option<Box<Table>>,
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

    fn what_if(&self, id: &str) -> Option<Variation<'_>> {
        let (change, table) = self.what_ifs.get(id)?;
        Some(Variation { change, simulated: Box::new(table.clone()) })
    }

    fn turbolane(&self) -> Option<Box<dyn Simulated + '_>> {
        Some(Box::new(Table::clone(self.turbolane.as_ref()?)))
    }
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

fn row<'a>(result: &'a Reproduction, id: &str) -> &'a papers::comparison::RowResult {
    let mut rows = result.papers.iter().flat_map(|paper| &paper.rows);
    rows.find(|row| row.published.id == id).unwrap_or_else(|| panic!("no row {id}"))
}

/// Losses, and the share of them removed, come out of throughputs as the paper computes them.
#[test]
fn a_faithful_simulation_reproduces_losses() {
    let result = Reproduction::new(&[paper("SFMA")], &sfma(), 1);
    for id in ["sfma-nginx-avx2-loss", "sfma-nginx-avx512-loss-mitigated"] {
        let row = row(&result, id);
        assert!(row.error.unwrap().abs() < 1e-9, "{id}: {row:?}");
        assert_eq!(row.within, Some(true));
    }
    let removed = row(&result, "sfma-nginx-loss-removed").simulated.unwrap();
    assert!((removed - 71.43).abs() < 0.01, "{removed}");
    let held = result.papers[0].orders.iter().filter(|order| order.holds == Some(true)).count();
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
    let result = Reproduction::new(&[paper("THESIS")], &table, 1);
    let ours = row(&result, "thesis-t53-static");
    assert!((ours.simulated.unwrap() - 0.99 * 125.82).abs() < 1e-9, "{ours:?}");
    assert_eq!(ours.within, Some(true));
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
    let result = Reproduction::new(&[paper("SYSTOR")], &table, 1);
    assert!(
        (row(&result, "systor-parsec-slowdown-mitigated").simulated.unwrap() - 3.7).abs() < 1e-9
    );
    let removed = row(&result, "systor-parsec-loss-removed").simulated.unwrap();
    assert!((removed - 69.9).abs() < 0.1, "{removed}");
    let order =
        &result.papers[0].orders.iter().find(|o| o.published.id == "systor-order-parsec-x265");
    assert_eq!(order.unwrap().holds, Some(true), "less CPU time is better");
}

/// A simulation that is off is told so: rows are missed, rankings violated. A changed experiment
/// takes a miss off the list of open ones only if it comes nearer, and makes no hit of it.
#[test]
fn an_unfaithful_simulation_is_caught() {
    let mut table = sfma();
    let worse = config("xeon-gold-6130", "nginx-brotli", "avx512", "explicit");
    table.measures.insert((worse.clone(), "throughput"), 6_000.0);
    let before = Reproduction::new(&[paper("SFMA")], &table, 1);
    assert_eq!(row(&before, "sfma-nginx-avx512-loss-mitigated").within, Some(false));
    assert_eq!(before.score.order_violations, 1, "mitigated is below unmodified");
    assert!(before.score.unexplained >= 2, "{:?}", before.score);
    let text = before.text(120);
    assert!(text.contains("MISSED") && text.contains("VIOLATED"), "{text}");

    let if_it_were = |throughput: f64| {
        let mut table = table.clone();
        let mut changed = sfma();
        changed.measures.insert((worse.clone(), "throughput"), throughput);
        let what_if = ("the lane were larger".into(), changed);
        table.what_ifs.insert("sfma-nginx-avx512-loss-mitigated".into(), what_if);
        Reproduction::new(&[paper("SFMA")], &table, 1)
    };
    let nearer = if_it_were(6_300.0);
    assert_eq!(nearer.score.unexplained, before.score.unexplained - 1);
    assert_eq!(nearer.score.within, before.score.within);
    let text = nearer.text(200);
    assert!(text.contains("if the lane were larger: 10"), "{text}");
    let farther = if_it_were(5_900.0);
    assert_eq!(farther.score.unexplained, before.score.unexplained);
    assert!(farther.text(200).contains("not explained"), "{}", farther.text(200));
}

/// Turbolane's own value stands beside a mitigated row, and changes no verdict.
#[test]
fn turbolane_stands_beside() {
    let mut table = sfma();
    let mut lane = sfma();
    let mitigated = config("xeon-gold-6130", "nginx-brotli", "avx512", "explicit");
    lane.measures.insert((mitigated, "throughput"), 6_930.0);
    table.turbolane = Some(Box::new(lane));
    let result = Reproduction::new(&[paper("SFMA")], &table, 1);
    let ours = row(&result, "sfma-nginx-avx512-loss-mitigated");
    assert!((ours.turbolane.unwrap() - 1.0).abs() < 1e-9, "{ours:?}");
    assert!((ours.simulated.unwrap() - 3.2).abs() < 1e-9);
    assert_eq!(row(&result, "sfma-nginx-avx512-loss").turbolane, None, "not mitigated");
    assert_eq!(result.score, Reproduction::new(&[paper("SFMA")], &sfma(), 1).score);
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
        Reproduction::new(&[paper("DIM")], &table, 1)
    };
    let (near, far) = (with(1_040.0), with(1_100.0));
    assert_eq!(row(&near, "dim-recorded-hints").within, Some(true));
    assert_eq!(row(&far, "dim-recorded-hints").within, Some(false));
    for (result, verdict, unexplained) in [(&near, "repeated", 0), (&far, "MISSED", 1)] {
        assert_eq!((result.score.compared, result.score.unexplained), (0, unexplained));
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
    let papers = ["SFMA", "SYSTOR", "THESIS", "DIM"].map(paper);
    let result = Reproduction::new(&papers, &Table::default(), 1);
    let predicting =
        papers.iter().flat_map(|paper| &paper.rows).filter(|row| row.purpose == Use::Predicts);
    assert_eq!(result.score.predicted as usize, predicting.count());
    assert_eq!((result.score.compared, result.score.within), (0, 0));
    assert_eq!(result.score.within_tolerance_pct, Some(0.0));
    assert_eq!((result.score.orders_compared, result.score.order_violations), (0, 0));
    assert!(result.text(100).contains("0 of "), "{}", result.text(100));
}

/// Context is never compared, even if somebody has a value for it; NaN is no value.
#[test]
fn context_and_nonsense_do_not_count() {
    let mut table = Table::default();
    table.figures.insert("sfma-nginx-ipc".into(), 1.007);
    table.figures.insert("sfma-type-change-cost".into(), f64::NAN);
    let result = Reproduction::new(&[paper("SFMA")], &table, 1);
    assert_eq!(row(&result, "sfma-nginx-ipc").within, None);
    assert_eq!(row(&result, "sfma-type-change-cost").within, None);
    assert_eq!(result.score.compared, 0);
}

/// A figure by id is taken as it is, and a published range is met inside.
#[test]
fn figures_by_id() {
    let mut table = Table::default();
    table.figures.insert("sfma-type-change-cost".into(), 460.0);
    let result = Reproduction::new(&[paper("SFMA")], &table, 1);
    let cost = row(&result, "sfma-type-change-cost");
    assert_eq!((cost.error, cost.within), (Some(0.0), Some(true)));
    let text = result.text(120);
    assert!(text.contains("400-500 ns") && text.contains("460 ns"), "{text}");
}

/// The document reads back as it was written, `use` included.
#[test]
fn json_round_trip() {
    let result = Reproduction::new(&[paper("SFMA")], &sfma(), 7);
    let line = report::json_line(&result);
    assert!(line.starts_with("{\"schema\":1,\"seed\":7,"), "{}", &line[..40]);
    assert!(line.contains("\"use\":\"predicts\""));
    assert!(serde_json::from_str::<Reproduction>(&line).unwrap() == result);
}
