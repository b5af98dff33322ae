// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `turbolane status` reports: the service, and the lane that runs, whoever started it.

use serde::{Deserialize, Serialize};

use crate::lane::LaneStatus;
use crate::text::wrap;

/// Whether wide code is separated now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// A lane runs and has wide CPUs, or is ready to use them.
    Running,
    /// A lane runs, and leaves placement alone since separating would not pay.
    StandingBy,
    /// No lane runs.
    Stopped,
    /// The service ended with an error, or its restarts are used up.
    Failed,
}

/// The service in systemd's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Unit {
    /// `enabled`, `disabled`; empty if there is no unit.
    pub enabled: String,
    /// `active`, `activating`, `inactive`, `failed`.
    pub active: String,
    /// How the last run ended: `success`, `exit-code`, `watchdog`, ...
    pub result: String,
    /// Restarts after failures since the service was started.
    pub restarts: u64,
    /// Its process; `None` if it does not run.
    pub pid: Option<u32>,
}

/// The service and the lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServiceStatus {
    /// In one word.
    pub state: State,
    /// The reason, in words.
    pub reason: String,
    /// The service; `None` on a machine without systemd.
    pub unit: Option<Unit>,
    /// The lane that runs; `None` if none runs, or if this user may not ask it.
    pub lane: Option<LaneStatus>,
}

impl State {
    /// Whether a lane runs.
    pub fn is_running(self) -> bool {
        matches!(self, State::Running | State::StandingBy)
    }

    fn words(self) -> &'static str {
        match self {
            State::Running => "running",
            State::StandingBy => "standing by",
            State::Stopped => "stopped",
            State::Failed => "failed",
        }
    }
}

impl ServiceStatus {
    /// The status as text of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let mut text = wrap("state    ", self.state.words(), width);
        text += &wrap("reason   ", &self.reason, width);
        let service = match &self.unit {
            None => "none: this machine does not run systemd".to_string(),
            Some(unit) if unit.enabled.is_empty() => "not installed".to_string(),
            Some(unit) => {
                let restarts = match unit.restarts {
                    0 => String::new(),
                    1 => ", 1 restart".to_string(),
                    more => format!(", {more} restarts"),
                };
                format!("{}, {}{restarts}", unit.enabled, unit.active)
            }
        };
        text += &wrap("service  ", &service, width);
        if let Some(lane) = &self.lane {
            text.push('\n');
            text += &lane.text(width);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(enabled: &str, active: &str, restarts: u64) -> Option<Unit> {
        let (enabled, active, result) = (enabled.into(), active.into(), "success".into());
        Some(Unit { enabled, active, result, restarts, pid: None })
    }

    /// The text has the state, its reason and the service, each on its line.
    #[test]
    fn the_state_is_in_the_first_line() {
        let status = |state, unit| ServiceStatus { state, reason: "why".into(), unit, lane: None };
        assert_eq!(
            status(State::Failed, unit("enabled", "failed", 5)).text(80),
            "state    failed\nreason   why\nservice  enabled, failed, 5 restarts\n"
        );
        let none = status(State::Stopped, None).text(80);
        assert!(none.ends_with("service  none: this machine does not run systemd\n"), "{none}");
        let absent = status(State::Stopped, unit("", "inactive", 0)).text(80);
        assert!(absent.ends_with("service  not installed\n"), "{absent}");
    }

    /// The JSON has stable words, and is read as it was written.
    #[test]
    fn json_round_trip() {
        let state = State::StandingBy;
        let status = ServiceStatus {
            state,
            reason: "r".into(),
            unit: unit("enabled", "active", 0),
            lane: None,
        };
        let line = crate::json_line(&crate::Document::new(status.clone()));
        assert!(
            line.starts_with(r#"{"schema":1,"state":"standing-by","reason":"r","unit":{"#),
            "{line}"
        );
        let read: crate::Document<ServiceStatus> = serde_json::from_str(&line).unwrap();
        assert_eq!(read.body, status);
    }
}
