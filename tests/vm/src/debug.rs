//! temp
use crate::{lane::*, load::*, samples::*};
use std::time::Duration;
pub fn run(args: &[&str]) -> anyhow::Result<()> {
    crate::guest::calibrate();
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3", "--mark", &crate::probe_site::mark()])?;
    let roles: Vec<(Role, usize)> = match args[0] {
        "mixed" => vec![(Role::WideHog, 4), (Role::ScalarHog, 4)],
        "wide" => vec![(Role::WideHog, 4)],
        "ctx" => { set(&["remigrate=context-switch"])?; vec![(Role::Mixed(Source::Hint, Ending::ContextSwitch), 8)] }
        "ctx1" => { set(&["remigrate=context-switch"])?; vec![(Role::Mixed(Source::Hint, Ending::ContextSwitch), 1)] }
        "exp" => vec![(Role::Mixed(Source::Hint, Ending::Explicit), 8)],
        _ => vec![(Role::ScalarHog, 4)],
    };
    for _ in 0..3 {
        let samples = Samples::shared();
        let b = read("/proc/stat");
        crate::load::run(samples, Duration::from_millis(500), Duration::from_secs(2), &roles)?;
        let a = read("/proc/stat");
        println!("{}", b.lines().take(5).collect::<Vec<_>>().join("\n")); println!("{}", a.lines().take(5).collect::<Vec<_>>().join("\n"));
        println!("{} amb {:?}", samples.text(), samples.ambiguous);
        println!("{}", turbolane(&["stats"])?);
    }
    println!("{}", turbolane(&["ctl", "status"])?);
    println!("{:?}", lane.stop()?);
    Ok(())
}
