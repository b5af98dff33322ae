// SPDX-License-Identifier: MIT OR Apache-2.0
//! A model in the machine's place: the calls that set P-states mean on it what they mean on
//! hardware, and cost what the model says.

use std::path::PathBuf;
use std::sync::Arc;

use cpumodel::PstateModel;
use locks::sys::Affinity;
use locks::{Block, Decorated, Futex, Mutex, Owner};
use pstate::{Control, Error, ManualTime, Options, Restored, Scope, Way};

fn model(id: &str) -> PstateModel {
    PstateModel::built_in(id).unwrap().unwrap()
}

fn fx() -> (Control, Arc<ManualTime>) {
    let time = Arc::new(ManualTime::default());
    (Control::simulate(&model("fx-8120"), time.clone()).unwrap(), time)
}

/// Longer than any transition.
const SETTLED_NS: u64 = 1_000_000;

/// The CPU's clock when nothing moves any more.
fn settled_khz(control: &Control, time: &ManualTime, cpu: u32) -> u32 {
    time.pass_ns(SETTLED_NS);
    control.clock_khz(cpu).unwrap()
}

/// It opens by the model's id, says what it is, starts no watchdog, and has the slides' P-states.
#[test]
fn a_model_opens_by_its_id() {
    let options = Options { root: "fx-8120".into(), way: Some(Way::Simulated) };
    let control = Control::open(&options).unwrap();
    assert_eq!(control.choice().way, Way::Simulated);
    assert!(control.choice().why.contains("FX-8120"), "{}", control.choice().why);
    assert_eq!(control.watchdog_pid(), None, "nothing to restore");
    let speeds = control.speeds(7).unwrap();
    assert_eq!(speeds.table_khz, [1_400_000, 3_100_000, 4_000_000]);
    assert_eq!(control.speeds(8).unwrap_err(), Error::NoCpu(8));
    let domain = control.clocks().domain_of(5).unwrap();
    assert_eq!((domain.cpus.to_string().as_str(), domain.scope), ("4-5", Scope::Module));
}

/// Requests are merged as on hardware: a module has one clock, and a CPU without a request counts
/// as one that requests the base.
#[test]
fn requests_are_merged_in_a_module() {
    let (control, time) = fx();
    control.slow(2).unwrap();
    assert_eq!(settled_khz(&control, &time, 2), 3_100_000, "CPU 3 has said nothing");
    control.slow(3).unwrap();
    assert_eq!(settled_khz(&control, &time, 2), 1_400_000);
    control.boost(2).unwrap();
    assert_eq!(settled_khz(&control, &time, 3), 4_000_000);
    assert_eq!(control.clock_khz(0), Ok(3_100_000));
    control.restore(2).unwrap();
    control.restore(3).unwrap();
    assert_eq!(settled_khz(&control, &time, 3), 3_100_000);
    assert!(matches!(control.request(0, 3_000_000), Err(Error::OffTable { .. })));
    assert_eq!(control.set_turbo(false), Err(Error::NoTurboSwitch));
    assert_eq!(control.close(), Restored::default());
}

/// What TURBO 9's owner pays: with the same time for the section, its core executes more the longer
/// the section is, and less than without a boost if it is short.
#[test]
fn boosting_pays_for_long_sections_only() {
    let gain = |section_ns: u64| {
        let (control, time) = fx();
        control.slow(0).unwrap();
        control.slow(1).unwrap();
        time.pass_ns(SETTLED_NS);
        let machine = control.simulated().unwrap();
        let before = machine.cycles(0).unwrap();
        control.boost(0).unwrap();
        time.pass_ns(section_ns);
        (machine.cycles(0).unwrap() - before) as f64 / (section_ns as f64 * 3.1)
    };
    assert!(gain(20_000) < 1.0, "{}", gain(20_000));
    assert!(gain(2_000_000) > 1.2, "{}", gain(2_000_000));
}

/// A boosted lock is tried on a model like on hardware: its owner's core is boosted inside, and as
/// before outside.
#[test]
fn a_boosted_lock_runs_on_a_model() {
    let (control, time) = fx();
    let control = Arc::new(control);
    // to stay on one CPU, and on one that the model has
    let allowed = Affinity::current().unwrap();
    let cpu = (0..8).find(|cpu| allowed.has(*cpu)).expect("a CPU below 8");
    Affinity::one(cpu).unwrap().apply().unwrap();
    let lock = Mutex::new(Decorated::new(Futex::new(Block), Owner::new(control.clone())), 0);
    let guard = lock.lock();
    let boosted = (0..8).filter(|&cpu| settled_khz(&control, &time, cpu) == 4_000_000).count();
    assert_eq!(boosted, 2, "the module of the owner, CPU {cpu}");
    drop(guard);
    let boosted = (0..8).filter(|&cpu| settled_khz(&control, &time, cpu) != 3_100_000).count();
    assert_eq!(boosted, 0);
}

/// A package with one clock opens and sets nothing, and says why.
#[test]
fn a_package_with_one_clock_sets_nothing_fails() {
    let control =
        Control::simulate(&model("core-i7-4770"), Arc::new(ManualTime::default())).unwrap();
    assert_eq!(control.choice().way, Way::None);
    assert!(control.choice().why.contains("have one clock"), "{}", control.choice().why);
    assert_eq!(control.boost(0), Err(Error::NoBackend));
    assert_eq!(control.clocks().domains.len(), 1);
}

/// What names no model is refused, with the names of those that are built in; a file like them is
/// one.
#[test]
fn an_unknown_model_fails() {
    let open = |root: PathBuf| Control::open(&Options { root, way: Some(Way::Simulated) });
    let error = open("fx-8350".into()).map(|_| ()).unwrap_err();
    assert_eq!((error, error.errno()), (Error::NoModel, libc::ENOENT));
    assert!(error.to_string().contains("fx-8120"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    let text = cpumodel::PSTATE_FILES[0].1.replace("4_000_000", "4_200_000");
    std::fs::write(&file, text).unwrap();
    assert_eq!(open(file).unwrap().speeds(0).unwrap().turbo_khz, 4_200_000);
}
