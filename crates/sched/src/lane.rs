// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run, whichever way it works: what `turbolane run` starts, asks and stops.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use report::ctl::{Reply, Request, SOCKET};
use report::lane::{LaneStats, LaneStatus, LaneTasks};
use report::problem::Problem;
use report::settings::Setting;

use crate::affinity::{self, AffinityLane};
use crate::config::{Config, Mode};
use crate::control::ControlServer;
use crate::error::{Error, Result};
use crate::hints::{HintServer, OnRegister, Page, cannot_serve};
use crate::instance::Instance;
use crate::layout::nr_cpus;
use crate::obstacles::choose_mode;
use crate::parse::ParseError;
use crate::scx::{Ended, Fault};
use crate::scx_lane::{Polled, ScxLane};
use crate::settings::{self, SETTINGS};

/// Core specialisation in force. Dropping it gives the machine back.
pub struct Lane {
    // Servers first: they stop before what they serve.
    _control: ControlServer,
    hints: HintServer,
    inner: Arc<Mutex<Inner>>,
    _instance: Instance,
}

/// One of the two ways to keep scalar and wide code apart.
enum Way {
    Scx(Box<ScxLane>, Arc<Page>),
    Affinity(Box<AffinityLane>),
}

struct Inner {
    way: Way,
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
        let inner = Arc::new(Mutex::new(Inner { way, started: Instant::now() }));
        let asked = Arc::clone(&inner);
        let control =
            ControlServer::start(Path::new(SOCKET), move |request| lock(&asked).answer(request))
                .map_err(|e| Error::failed(format!("cannot serve {SOCKET}"), e))?;
        Ok(Lane { _control: control, hints, inner, _instance: instance })
    }

    /// Answer a request as the control socket would.
    pub fn ask(&self, request: Request) -> Reply {
        lock(&self.inner).answer(request)
    }

    /// What was counted since the start.
    pub fn stats(&self) -> LaneStats {
        lock(&self.inner).stats()
    }

    /// To be called every [`crate::autosize::PERIOD`] or so. Returns how the scheduler ended if
    /// it is gone.
    pub fn poll(&self) -> Result<Option<Ended>> {
        let mut inner = lock(&self.inner);
        let Way::Scx(lane, page) = &mut inner.way else { return Ok(None) };
        match lane.poll()? {
            Polled::Running => {}
            Polled::Restarted => {
                self.hints.hand_over(on_register(lane)?);
                publish(page, lane);
            }
            Polled::Ended(ended) => return Ok(Some(ended)),
        }
        Ok(None)
    }

    /// The calling thread, and what it forks from now on, is scalar until it proves wide.
    pub fn classify_this_thread_scalar(&self) -> Result<()> {
        match &lock(&self.inner).way {
            Way::Scx(lane, _) => lane.classify_scalar(hw::task::own_tid()),
            Way::Affinity(_) => Ok(()),
        }
    }

    /// Give the machine back; says how the scheduler ended.
    pub fn stop(self) -> Option<Ended> {
        match &mut lock(&self.inner).way {
            Way::Scx(lane, _) => lane.stop(),
            Way::Affinity(_) => None,
        }
    }
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn start_scx(config: Config, fault: Fault) -> Result<(Way, HintServer)> {
    let lane = ScxLane::start(config, fault)?;
    let page = Page::from_fd(lane.hint_page_fd()?)
        .map_err(|e| Error::failed("cannot map the hint page", e))?;
    let page = Arc::new(page);
    publish(&page, &lane);
    let path = Path::new(turbolane::protocol::SOCKET);
    let server =
        HintServer::start(path, Arc::clone(&page), lane.hint_page_fd()?, on_register(&lane)?)
            .map_err(cannot_serve)?;
    Ok((Way::Scx(Box::new(lane), page), server))
}

/// Makes the page valid for what the scheduler does.
fn publish(page: &Page, lane: &ScxLane) {
    page.set_rest_below(lane.config().rest_below_ns);
    page.publish(turbolane::page::MODE_SCX, nr_cpus(lane.topology()) as u32);
}

/// Tells the scheduler of each thread that gets a slot.
fn on_register(lane: &ScxLane) -> Result<OnRegister> {
    let slots = lane.slot_setter()?;
    Ok(Box::new(move |registration| slots.set(registration.tid, registration.slot)))
}

fn start_affinity(config: Config) -> Result<(Way, HintServer)> {
    let (lane, server) = AffinityLane::start(config)?;
    Ok((Way::Affinity(Box::new(lane)), server))
}

impl Inner {
    fn config(&self) -> &Config {
        match &self.way {
            Way::Scx(lane, _) => lane.config(),
            Way::Affinity(lane) => lane.config(),
        }
    }

    fn answer(&mut self, request: Request) -> Reply {
        match request {
            Request::Get { keys } => self.get(&keys),
            Request::Set { changes } => {
                let pairs: Vec<(&str, &str)> =
                    changes.iter().map(|c| (c.key.as_str(), c.value.as_str())).collect();
                match self.set(&pairs) {
                    Ok(()) => self.get(&changes.iter().map(|c| c.key.clone()).collect::<Vec<_>>()),
                    Err(problem) => Reply::Error(problem),
                }
            }
            Request::MarkAdd { mark } => self.change_mark(&mark, true),
            Request::MarkRemove { mark } => self.change_mark(&mark, false),
            Request::Status => Reply::Status(self.status()),
            Request::Stats => Reply::Stats(Box::new(self.stats())),
            Request::Tasks { since_ns } => self.tasks(since_ns),
        }
    }

    fn get(&self, keys: &[String]) -> Reply {
        let mut shown = Vec::new();
        for setting in SETTINGS {
            if keys.is_empty() || keys.iter().any(|key| key == setting.key) {
                shown.push(Setting {
                    key: setting.key.into(),
                    value: setting.get(self.config()),
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
        let config = settings::changed(self.config(), changes.iter().copied()).map_err(problem)?;
        let done = match &mut self.way {
            Way::Scx(lane, page) => {
                lane.reconfigure(config).map(|()| page.set_rest_below(lane.config().rest_below_ns))
            }
            Way::Affinity(lane) => lane.reconfigure(config),
        };
        done.map_err(Error::into_problem)
    }

    fn change_mark(&mut self, text: &str, add: bool) -> Reply {
        let mark = match text.parse() {
            Ok(mark) => mark,
            Err(refusal) => return Reply::Error(problem(refusal)),
        };
        let done = match (&mut self.way, add) {
            (Way::Scx(lane, _), true) => lane.add_mark(mark),
            (Way::Scx(lane, _), false) => lane.remove_mark(&mark),
            (Way::Affinity(_), _) => Err(affinity::cannot_mark()),
        };
        match done {
            Ok(()) => Reply::Status(self.status()),
            Err(e) => Reply::Error(e.into_problem()),
        }
    }

    fn status(&self) -> LaneStatus {
        let (mode, (wide, scalar), cpus) = match &self.way {
            Way::Scx(lane, _) => ("scx", lane.cpus(), lane.cpu_times()),
            Way::Affinity(lane) => ("affinity", lane.cpus(), Vec::new()),
        };
        LaneStatus {
            pid: std::process::id(),
            mode: mode.into(),
            uptime_ns: self.uptime_ns(),
            wide_cpus: wide.to_string(),
            scalar_cpus: scalar.to_string(),
            marks: self.config().marks.iter().map(|mark| mark.to_string()).collect(),
            cpus,
        }
    }

    fn tasks(&self, since_ns: u64) -> Reply {
        match &self.way {
            Way::Scx(lane, _) => lane
                .tasks(since_ns)
                .map_or_else(|error| Reply::Error(error.into_problem()), Reply::Tasks),
            Way::Affinity(_) => Reply::Tasks(LaneTasks::default()),
        }
    }

    fn stats(&self) -> LaneStats {
        match &self.way {
            Way::Scx(lane, _) => lane.stats(self.uptime_ns()),
            Way::Affinity(lane) => LaneStats {
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
