//! temp
use sched::{config::*, layout, scx::*};
fn main() {
    if std::env::var("V").is_ok() { libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, |_, s| eprint!("{s}")))); }
    let topo = hw::topology(&hw::Live).unwrap();
    let cfg = Config::default();
    let mut s = match Scheduler::load(&topo, &cfg, None, Fault::None) { Ok(s) => s, Err(e) => { eprintln!("{e}"); std::process::exit(2) } };
    eprintln!("loaded");
    let cores = layout::wide_cores(&topo, &WideCpus::Cores(1)).unwrap();
    let cl = layout::classes(&topo, &cores, false);
    s.attach(&cl).unwrap_or_else(|e| { eprintln!("{e}"); std::process::exit(3) });
    eprintln!("attached {:?} {:?}", hw::sched_ext::state(), hw::sched_ext::running());
    std::thread::sleep(std::time::Duration::from_secs(3));
    for (i, c) in s.counters(4).iter().enumerate() { eprintln!("{i} {c:?}"); }
    eprintln!("{:?}", s.set_classes(&layout::classes(&topo, &layout::wide_cores(&topo, &WideCpus::Cores(2)).unwrap(), false)));
    std::thread::sleep(std::time::Duration::from_secs(1));
    eprintln!("ended {:?}", s.ended());
    eprintln!("{:?}", s.detach());
    std::thread::sleep(std::time::Duration::from_millis(200));
    eprintln!("{:?}", s.ended());
}
