// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run in any mode: what `turbolane run` starts, queries and stops.
//!
//! Requests come from the control socket's thread, one at a time. What a request has to read from
//! files (marks), it reads before it locks the lane; so neither [`Lane::poll`] nor the end of the
//! run waits for a file. A stop takes the scheduler or the masks out of the lane: a request that is
//! still being answered finds nothing, and keeps nothing alive.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cpumodel::CpuSet;
use report::ctl::{Reply, Request, SOCKET};
use report::lane::{LaneStats, LaneStatus, LaneTasks};
use report::problem::Problem;
use report::settings::Setting;

use crate::affinity::{self, AffinityLane};
use crate::config::{Config, Mark, Mode};
use crate::control::ControlServer;
use crate::error::{Error, Result};
use crate::hints::{HintServer, OnRegister, cannot_serve};
use crate::instance::Instance;
use crate::lock::lock;
use crate::obstacles::choose_mode;
use crate::parse::ParseError;
use crate::scx::{Ended, Fault};
use crate::scx_lane::{MarkRules, Polled, ScxLane};
use crate::settings::{self, SETTINGS};

/// Core specialisation in force. Dropping it gives the machine back.
pub struct Lane {
    // Servers first: they stop before what they serve.
    _control: ControlServer,
    hints: HintServer,
    inner: Owner,
    _instance: Instance,
}

/// Ends the run when it is dropped, whoever else still has the lane at hand.
struct Owner(Arc<Mutex<Inner>>);

impl Drop for Owner {
    fn drop(&mut self) {
        lock(&self.0).way = None;
    }
}

/// One of the two methods of separating scalar and wide code.
enum Way {
    Scx(Box<ScxLane>),
    Affinity(Box<AffinityLane>),
}

struct Inner {
    /// `None` once the run has ended.
    way: Option<Way>,
    started: Instant,
}

impl Lane {
    /// Check the machine and the settings, then take over. On an error nothing has changed.
    pub fn start(config: Config, fault: Fault) -> Result<Self> {
        let kernel = hw::kernel::read_kernel(&hw::Live);
        let rights = hw::kernel::read_rights(&hw::Live);
        let mode = choose_mode(config.mode, &kernel, &rights)?.mode;
        let config = Config { mode, ..config };
        let instance = Instance::acquire()?;
        let (way, hints) = match mode {
            Mode::Affinity => start_affinity(config)?,
            _ => start_scx(config, fault)?,
        };
        let inner = Inner { way: Some(way), started: Instant::now() };
        let inner = Owner(Arc::new(Mutex::new(inner)));
        let asked = Arc::downgrade(&inner.0);
        let control = ControlServer::start(Path::new(SOCKET), move |request| {
            asked.upgrade().map_or_else(has_ended, |inner| answer(&inner, request))
        })
        .map_err(|e| Error::failed(format!("cannot serve {SOCKET}"), e))?;
        Ok(Lane { _control: control, hints, inner, _instance: instance })
    }

    /// Answer a request as the control socket would.
    pub fn ask(&self, request: Request) -> Reply {
        answer(&self.inner.0, request)
    }

    /// What was counted since the start.
    pub fn stats(&self) -> LaneStats {
        lock(&self.inner.0).stats()
    }

    /// To be called every [`crate::autosize::PERIOD`] or so. Returns how the scheduler ended if
    /// it is gone.
    pub fn poll(&self) -> Result<Option<Ended>> {
        let mut inner = lock(&self.inner.0);
        let Some(Way::Scx(lane)) = &mut inner.way else { return Ok(None) };
        match lane.poll()? {
            Polled::Running => {}
            Polled::Restarted => {
                self.hints.hand_over(on_register(lane)?);
                lane.publish()?;
            }
            Polled::Ended(ended) => return Ok(Some(ended)),
        }
        Ok(None)
    }

    /// The calling thread, and what it forks from now on, is scalar until it proves wide.
    pub fn classify_this_thread_scalar(&self) -> Result<()> {
        match &lock(&self.inner.0).way {
            Some(Way::Scx(lane)) => lane.classify_scalar(hw::task::own_tid()),
            Some(Way::Affinity(_)) | None => Ok(()),
        }
    }

    /// Give the machine back; says how the scheduler ended.
    pub fn stop(self) -> Option<Ended> {
        match &mut lock(&self.inner.0).way {
            Some(Way::Scx(lane)) => lane.stop(),
            Some(Way::Affinity(_)) | None => None,
        }
    }
}

fn start_scx(config: Config, fault: Fault) -> Result<(Way, HintServer)> {
    let lane = ScxLane::start(config, fault)?;
    lane.publish()?;
    let path = Path::new(turbolane_hint::protocol::SOCKET);
    let (board, maps) = (lane.hint_maps()?.board, lane.hint_maps()?);
    let new_areas = Box::new(move |numbers: &[u32]| maps.new_areas(numbers));
    let server =
        HintServer::start(path, board, new_areas, on_register(&lane)?).map_err(cannot_serve)?;
    Ok((Way::Scx(Box::new(lane)), server))
}

/// Reports each thread that gets a slot to the scheduler.
fn on_register(lane: &ScxLane) -> Result<OnRegister> {
    let slots = lane.slot_setter()?;
    Ok(Box::new(move |registration| {
        slots.set(registration.tid, registration.tgid, registration.slot)
    }))
}

fn start_affinity(config: Config) -> Result<(Way, HintServer)> {
    let (lane, server) = AffinityLane::start(config)?;
    Ok((Way::Affinity(Box::new(lane)), server))
}

/// Answers a request. Marks are looked up in their files first, without the lock.
fn answer(inner: &Mutex<Inner>, request: Request) -> Reply {
    match request {
        Request::MarkAdd { mark } => change_mark(inner, &mark, true),
        Request::MarkRemove { mark } => change_mark(inner, &mark, false),
        other => lock(inner).answer(other),
    }
}

fn change_mark(inner: &Mutex<Inner>, text: &str, add: bool) -> Reply {
    let mark: Mark = match text.parse() {
        Ok(mark) => mark,
        Err(refusal) => return Reply::Error(problem(refusal)),
    };
    let rules = lock(inner).mark_rules();
    let done = rules.and_then(|(rules, placed)| match add {
        true => {
            let resolved = rules.resolve(&mark)?;
            lock(inner).scx()?.add_mark(mark, &resolved)
        }
        false => {
            let gone = rules.same_site(&mark, placed)?;
            lock(inner).scx()?.remove_mark(&mark, &gone)
        }
    });
    match done {
        Ok(()) => lock(inner).answer(Request::Status),
        Err(error) => Reply::Error(error.into_problem()),
    }
}

/// To a request that comes while the run ends.
fn has_ended() -> Reply {
    Reply::Error(ended_problem())
}

fn ended_problem() -> Problem {
    Problem::new(
        "the scheduler gives no answer any more",
        "its run is ending",
        "start it again: sudo turbolane run",
    )
}

impl Inner {
    fn config(&self) -> Option<&Config> {
        match self.way.as_ref()? {
            Way::Scx(lane) => Some(lane.config()),
            Way::Affinity(lane) => Some(lane.config()),
        }
    }

    /// The scheduler, which alone watches marks.
    fn scx(&mut self) -> Result<&mut ScxLane> {
        match &mut self.way {
            Some(Way::Scx(lane)) => Ok(lane),
            Some(Way::Affinity(_)) => Err(affinity::cannot_mark()),
            None => Err(Error::BadInput(ended_problem())),
        }
    }

    /// How marks are looked up, and the marks that are there.
    fn mark_rules(&mut self) -> Result<(MarkRules, Vec<Mark>)> {
        let lane = self.scx()?;
        Ok((lane.mark_rules(), lane.config().marks.clone()))
    }

    fn answer(&mut self, request: Request) -> Reply {
        match request {
            _ if self.way.is_none() => has_ended(),
            Request::Get { keys } => self.get(&keys),
            Request::Set { changes } => {
                let pairs: Vec<(&str, &str)> =
                    changes.iter().map(|c| (c.key.as_str(), c.value.as_str())).collect();
                match self.set(&pairs) {
                    Ok(()) => self.get(&changes.iter().map(|c| c.key.clone()).collect::<Vec<_>>()),
                    Err(problem) => Reply::Error(problem),
                }
            }
            Request::Status | Request::MarkAdd { .. } | Request::MarkRemove { .. } => {
                Reply::Status(self.status())
            }
            Request::Stats => Reply::Stats(Box::new(self.stats())),
            Request::Tasks { since_ns } => self.tasks(since_ns),
        }
    }

    fn get(&self, keys: &[String]) -> Reply {
        let Some(config) = self.config() else { return has_ended() };
        let mut shown = Vec::new();
        for setting in SETTINGS {
            if keys.is_empty() || keys.iter().any(|key| key == setting.key) {
                shown.push(Setting {
                    key: setting.key.into(),
                    value: setting.get(config),
                    meaning: setting.meaning.into(),
                    live: setting.live,
                });
            }
        }
        match keys.iter().find_map(|key| settings::setting(key).err()) {
            Some(refusal) => Reply::Error(problem(refusal)),
            None => Reply::Settings(shown),
        }
    }

    fn set(&mut self, changes: &[(&str, &str)]) -> std::result::Result<(), Problem> {
        let config = self.config().ok_or_else(ended_problem)?;
        let config = settings::changed(config, changes.iter().copied()).map_err(problem)?;
        let done = match &mut self.way {
            Some(Way::Scx(lane)) => lane.reconfigure(config).and_then(|()| lane.publish()),
            Some(Way::Affinity(lane)) => lane.reconfigure(config),
            None => return Err(ended_problem()),
        };
        done.map_err(Error::into_problem)
    }

    fn status(&self) -> LaneStatus {
        let standby = match &self.way {
            Some(Way::Scx(lane)) => lane.standby(),
            Some(Way::Affinity(_)) | None => None,
        };
        let (mode, (wide, scalar), cpus) = match &self.way {
            Some(Way::Scx(lane)) => ("scx", lane.cpus(), lane.cpu_times()),
            Some(Way::Affinity(lane)) => ("affinity", lane.cpus(), Vec::new()),
            None => ("ended", (CpuSet::EMPTY, CpuSet::EMPTY), Vec::new()),
        };
        LaneStatus {
            pid: std::process::id(),
            mode: mode.into(),
            uptime_ns: self.uptime_ns(),
            wide_cpus: wide.to_string(),
            scalar_cpus: scalar.to_string(),
            standby,
            marks: self.config().into_iter().flat_map(|c| &c.marks).map(Mark::to_string).collect(),
            cpus,
        }
    }

    fn tasks(&self, since_ns: u64) -> Reply {
        match &self.way {
            Some(Way::Scx(lane)) => lane
                .tasks(since_ns)
                .map_or_else(|error| Reply::Error(error.into_problem()), Reply::Tasks),
            Some(Way::Affinity(_)) | None => Reply::Tasks(LaneTasks::default()),
        }
    }

    fn stats(&self) -> LaneStats {
        match &self.way {
            None => LaneStats::default(),
            Some(Way::Scx(lane)) => lane.stats(self.uptime_ns()),
            Some(Way::Affinity(lane)) => LaneStats {
                interval_ns: Some(self.uptime_ns()),
                wide_cpus: Some(lane.cpus().0.len() as u64),
                ..LaneStats::default()
            },
        }
    }

    fn uptime_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

fn problem(refusal: ParseError) -> Problem {
    Problem::new("the request is refused", &refusal.why, &refusal.next)
}
