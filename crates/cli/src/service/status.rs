// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane status`: whether wide code is separated now, and if not, why.

use std::process::ExitCode;

use clap::Args;
use report::ctl::{Reply, Request};
use report::lane::LaneStatus;
use report::service::{ServiceStatus, State, Unit};
use report::{Document, json_line};

use super::Root;
use super::systemd::unit;
use crate::client::{At, Client};
use crate::failure::{FOUND, Failure};
use crate::paint::{self, ColorArgs};

/// Show whether wide code is separated now and, if not, why
///
/// Exits with 0 if a lane runs, even if it stands by because separation would not pay, and with 1
/// if none runs. Details need root.
#[derive(Args)]
pub(crate) struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    root: Root,
    #[command(flatten)]
    color: ColorArgs,
}

/// What the lane itself says.
enum Lane {
    Status {
        status: Box<LaneStatus>,
        stands_by: bool,
    },
    /// The reason why there is no answer.
    Silent(String),
}

/// Prints the status.
pub(crate) fn main(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let unit = if args.root.places().has_systemd() { Some(unit()?) } else { None };
    let status = judge(unit, ask(&args.at));
    let is_running = status.state.is_running();
    args.color.show(
        args.json,
        || json_line(&Document::new(&status)),
        |width| status.text(width),
        &paint::STATES,
    )?;
    Ok(if is_running { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}

fn ask(at: &At) -> Lane {
    let answers = || -> Result<(Reply, Reply), Failure> {
        let mut client = Client::connect(at)?;
        Ok((client.ask(&Request::Status)?, client.ask(&Request::Stats)?))
    };
    match answers() {
        Ok((Reply::Status(status), Reply::Stats(stats))) => {
            Lane::Status { status: Box::new(status), stands_by: stats.standing_by == Some(1) }
        }
        Ok(_) => Lane::Silent("the scheduler is another version of turbolane".into()),
        Err(failure) => Lane::Silent(failure.why().into()),
    }
}

fn judge(unit: Option<Unit>, lane: Lane) -> ServiceStatus {
    let is_active = unit.as_ref().is_some_and(|unit| unit.active == "active");
    let (state, reason, lane) = match lane {
        Lane::Status { status, stands_by } => {
            let started_by = match unit.as_ref().and_then(|unit| unit.pid) {
                Some(pid) if pid == status.pid => "the service runs",
                _ => "a run that the service did not start holds the lane",
            };
            let state = if stands_by { State::StandingBy } else { State::Running };
            let why = status.standby.as_ref().map_or(String::new(), |why| format!(": {why}"));
            (state, format!("{started_by}{why}"), Some(status))
        }
        Lane::Silent(why) if is_active => {
            (State::Running, format!("the service runs, and does not answer: {why}"), None)
        }
        Lane::Silent(why) => {
            let (state, reason) = without_lane(unit.as_ref(), why);
            (state, reason, None)
        }
    };
    ServiceStatus { state, reason, unit, lane: lane.map(|status| *status) }
}

fn without_lane(unit: Option<&Unit>, why: String) -> (State, String) {
    match unit {
        Some(unit) if unit.active == "failed" => {
            let reason = format!(
                "the service ended ({}); journalctl -u turbolane shows why, sudo systemctl restart turbolane starts it",
                unit.result
            );
            (State::Failed, reason)
        }
        Some(unit) if unit.active == "activating" => {
            (State::Stopped, "the service is starting, or waits for its next attempt".into())
        }
        Some(unit) if unit.enabled == "enabled" => {
            (State::Stopped, "the service is enabled and was stopped".into())
        }
        _ => (State::Stopped, why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(enabled: &str, active: &str, pid: Option<u32>) -> Option<Unit> {
        let (enabled, active) = (enabled.into(), active.into());
        Some(Unit { enabled, active, result: "watchdog".into(), restarts: 0, pid })
    }

    fn lane(stands_by: bool) -> Lane {
        let status = LaneStatus {
            pid: 7,
            mode: "scx".into(),
            uptime_ns: 1,
            wide_cpus: String::new(),
            scalar_cpus: "0-3".into(),
            standby: stands_by.then(|| "not separated: no wide code".to_string()),
            pause_left_ns: None,
            marks: vec![],
            lost_marks: Vec::new(),
            scope: Vec::new(),
            cpus: vec![],
        };
        Lane::Status { status: Box::new(status), stands_by }
    }

    /// The lane decides, not the unit: a run in a terminal is reported too, and a lane that stands
    /// by is one.
    #[test]
    fn the_lane_decides() {
        let running = judge(unit("enabled", "active", Some(7)), lane(false));
        assert_eq!((running.state, running.reason.as_str()), (State::Running, "the service runs"));
        let standing_by = judge(unit("enabled", "active", Some(7)), lane(true));
        assert_eq!(standing_by.state, State::StandingBy);
        assert_eq!(standing_by.reason, "the service runs: not separated: no wide code");
        for other in [unit("enabled", "failed", None), unit("", "inactive", None), None] {
            let status = judge(other, lane(false));
            assert_eq!(status.state, State::Running);
            assert!(status.reason.contains("did not start"), "{}", status.reason);
        }
    }

    /// Without a lane the unit says why; a service that is active is not reported as stopped to a
    /// user without rights.
    #[test]
    fn the_unit_says_why_there_is_none() {
        let silent = || Lane::Silent("only root may open it".into());
        let state = |unit| judge(unit, silent()).state;
        assert_eq!(state(unit("enabled", "active", Some(7))), State::Running);
        assert_eq!(state(unit("enabled", "failed", None)), State::Failed);
        assert_eq!(state(unit("enabled", "activating", None)), State::Stopped);
        assert_eq!(state(unit("enabled", "inactive", None)), State::Stopped);
        assert_eq!(state(None), State::Stopped);
        let failed = judge(unit("enabled", "failed", None), silent()).reason;
        assert!(failed.contains("(watchdog)"), "{failed}");
    }
}
