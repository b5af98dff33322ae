// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run in any mode: what `turbolane run` starts, queries and stops.
//!
//! Requests come from the control socket's thread, one at a time. What a request has to read from
//! files (marks), it reads before it locks the lane; so neither [`Lane::poll`] nor the end of the
//! run waits for a file. A stop takes the scheduler or the masks out of the lane: a request that is
//! still being answered finds nothing, and keeps nothing alive.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cpumodel::CpuSet;
use report::ctl::{Reply, Request, SOCKET};
use report::lane::{LaneStats, LaneStatus, LaneTasks};
use report::problem::Problem;
use report::settings::Setting;
use report::take_over::{HandedOver, Predecessor};

use crate::affinity::{self, AffinityLane};
use crate::config::{Config, Mark, Mode};
use crate::control::ControlServer;
use crate::error::{Error, Result};
use crate::hints::HintServer;
use crate::instance::Instance;
use crate::lock::lock;
use crate::marks::MarkRules;
use crate::obstacles::{choose_mode, without_ours};
use crate::parse::ParseError;
use crate::scx::{Ended, Fault, HintMaps, MarkChange};
use crate::scx_hints::{on_register, serve_hints};
use crate::scx_lane::{Polled, ScxLane, no_pause_by_masks};
use crate::settings::{self, SETTINGS};
use crate::take_over::{Connection, Retired};

mod marks;

use marks::change_mark;

/// How long the next run waits for the end of the one that it has taken over from.
const GOING_LIMIT: Duration = Duration::from_secs(30);

/// Core specialisation in force. Dropping it gives the machine back.
pub struct Lane {
    // First: it stops before what it serves.
    _control: ControlServer,
    inner: Owner,
    _instance: Instance,
}

/// Ends the run when it is dropped, whoever else still has the lane at hand.
struct Owner(Arc<Mutex<Inner>>);

impl Drop for Owner {
    fn drop(&mut self) {
        let mut inner = lock(&self.0);
        inner.hints = None;
        inner.way = None;
        inner.retired = None;
    }
}

/// One of the two methods of separating scalar and wide code.
enum Way {
    Scx(Box<ScxLane>),
    Affinity(Box<AffinityLane>),
}

struct Inner {
    /// Stops before what it serves.
    hints: Option<HintServer>,
    /// `None` once the run has ended.
    way: Option<Way>,
    /// What another process takes over from.
    retired: Option<Retired>,
    /// Whether another process may take over.
    may_hand_over: bool,
    start_successor: Option<StartSuccessor>,
    started: Instant,
}

/// Starts the installed version, with `--take-over`; returns its process.
pub type StartSuccessor = Box<dyn Fn() -> io::Result<u32> + Send>;

/// What [`Lane::poll`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The scheduler has ended, and with it the run.
    Ended(Ended),
    /// This process has taken over: the run is over.
    TakenOver(u32),
    /// This process was to take over, and has failed; the run goes on.
    TakenBack(u32),
    /// Files of marks were replaced.
    Marks(Vec<MarkChange>),
}

/// How a run took over from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenFrom {
    /// The process that ran before.
    pub pid: u32,
    /// For how long the kernel's own scheduler was at work in between.
    pub gap: Duration,
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
        Self::serve(Inner::new(way, hints), || Ok(instance))
    }

    /// Like [`start`](Self::start), in place of the run that there is (see [`take_over`]). On an
    /// error before that one has gone, nothing has changed.
    ///
    /// [`take_over`]: crate::take_over
    pub fn take_over(config: Config, fault: Fault) -> Result<(Self, TakenFrom)> {
        let kernel = without_ours(hw::kernel::read_kernel(&hw::Live));
        let rights = hw::kernel::read_rights(&hw::Live);
        let mode = choose_mode(config.mode, &kernel, &rights)?.mode;
        if mode == Mode::Affinity {
            return Err(no_take_over_by_masks());
        }
        let config = Config { mode, ..config };
        let mut connection = Connection::open()?;
        let about = connection.prepare()?;
        let maps = HintMaps::of_ids(about.board, about.areas)
            .map_err(|e| Error::failed("cannot take over the memory for hints", e))?;
        let mut lane = ScxLane::prepare(config, fault, Some(&maps))?;
        let handed = connection.take_over()?;
        let attached_ns = lane.begin()?;
        if handed.owns_module {
            lane.own_module();
        }
        let hints = serve_hints(&lane, Some(&handed.slots))?;
        let inner = Inner::new(Way::Scx(Box::new(lane)), hints);
        // Whatever becomes of the reply: what counts is whether it gives the lock back.
        _ = connection.confirm();
        let gap = Duration::from_nanos(attached_ns.saturating_sub(handed.since_ns));
        let lane = Self::serve(inner, || Instance::acquire_within(GOING_LIMIT))?;
        Ok((lane, TakenFrom { pid: about.pid, gap }))
    }

    /// Answers requests from now on, as the one instance.
    fn serve(inner: Inner, instance: impl FnOnce() -> Result<Instance>) -> Result<Self> {
        let inner = Owner(Arc::new(Mutex::new(inner)));
        let instance = instance()?;
        let asked = Arc::downgrade(&inner.0);
        let control = ControlServer::start(Path::new(SOCKET), move |request| {
            asked.upgrade().map_or_else(has_ended, |inner| answer(&inner, request))
        })
        .map_err(|e| Error::failed(format!("cannot serve {SOCKET}"), e))?;
        Ok(Lane { _control: control, inner, _instance: instance })
    }

    /// Another process may take over from now on, and is started by this if someone asks for it.
    pub fn let_take_over(&self, start: Option<StartSuccessor>) {
        let mut inner = lock(&self.inner.0);
        (inner.may_hand_over, inner.start_successor) = (true, start);
    }

    /// Answer a request as the control socket would.
    pub fn ask(&self, request: Request) -> Reply {
        answer(&self.inner.0, request)
    }

    /// What was counted since the start.
    pub fn stats(&self) -> LaneStats {
        lock(&self.inner.0).stats()
    }

    /// To be called every [`crate::autosize::PERIOD`] or so.
    pub fn poll(&self) -> Result<Option<Event>> {
        let mut inner = lock(&self.inner.0);
        if let Some(retired) = &inner.retired {
            return match retired.is_over() {
                Some(true) => Ok(Some(Event::TakenOver(retired.successor.0))),
                Some(false) => inner.take_back().map(|pid| Some(Event::TakenBack(pid))),
                None => Ok(None),
            };
        }
        let Inner { way: Some(Way::Scx(lane)), hints, .. } = &mut *inner else { return Ok(None) };
        match lane.poll()? {
            Polled::Running => {
                let changes = lane.take_mark_changes();
                return Ok((!changes.is_empty()).then_some(Event::Marks(changes)));
            }
            Polled::Restarted => {
                let introduce = on_register(lane)?;
                hints.as_ref().inspect(|hints| hints.hand_over(introduce));
                lane.publish()?;
            }
            Polled::Ended(ended) => return Ok(Some(Event::Ended(ended))),
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
    let hints = serve_hints(&lane, None)?;
    Ok((Way::Scx(Box::new(lane)), hints))
}

fn start_affinity(config: Config) -> Result<(Way, HintServer)> {
    let (lane, server) = AffinityLane::start(config)?;
    Ok((Way::Affinity(Box::new(lane)), server))
}

/// Answers a request.
fn answer(inner: &Mutex<Inner>, request: Request) -> Reply {
    match request {
        Request::MarkAdd { mark } => change_mark(inner, &mark, true),
        Request::MarkRemove { mark } => change_mark(inner, &mark, false),
        other => lock(inner).answer(other),
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

fn no_take_over(why: &str) -> Error {
    Error::BadInput(Problem::new("cannot take over", why, "stop that run, then start another"))
}

fn no_take_over_by_masks() -> Error {
    no_take_over("affinity mode has no scheduler that could be handed over")
}

impl Inner {
    fn new(way: Way, hints: HintServer) -> Self {
        Inner {
            hints: Some(hints),
            way: Some(way),
            retired: None,
            may_hand_over: false,
            start_successor: None,
            started: Instant::now(),
        }
    }

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
            Request::TakenOver => self.confirmed(),
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
            Request::Pause { for_ns } => self.pause(Some(Duration::from_nanos(for_ns))),
            Request::Resume => self.pause(None),
            Request::Stats => Reply::Stats(Box::new(self.stats())),
            Request::Tasks { since_ns } => self.tasks(since_ns),
            Request::Upgrade => or_error(self.upgrade()),
            Request::PrepareTakeOver => or_error(self.predecessor()),
            Request::TakeOver { pid } => or_error(self.hand_over(pid)),
        }
    }

    /// Pauses for so long, or ends a pause; answered by the status.
    fn pause(&mut self, time: Option<Duration>) -> Reply {
        let done = match (&mut self.way, time) {
            (Some(Way::Affinity(_)), _) => Err(no_pause_by_masks()),
            (Some(Way::Scx(lane)), Some(time)) => lane.pause(time),
            (Some(Way::Scx(lane)), None) => lane.resume_for_client(),
            (None, _) => return has_ended(),
        };
        or_error(done.map(|()| Reply::Status(self.status())))
    }

    /// The scheduler, if it may be handed over.
    fn for_successor(&self) -> Result<&ScxLane> {
        match &self.way {
            Some(Way::Affinity(_)) => Err(no_take_over_by_masks()),
            Some(Way::Scx(lane)) if self.may_hand_over => Ok(lane),
            _ => Err(no_take_over("that run ends with its command")),
        }
    }

    fn upgrade(&self) -> Result<Reply> {
        self.for_successor()?;
        let start = self.start_successor.as_ref().ok_or_else(|| {
            Error::BadInput(Problem::new(
                "cannot start the installed version",
                "the running one is not a service of systemd",
                "take over yourself: sudo turbolane run --take-over",
            ))
        })?;
        let pid = start().map_err(|e| Error::failed("cannot start the installed version", e))?;
        Ok(Reply::Successor { pid })
    }

    fn predecessor(&self) -> Result<Reply> {
        let maps = self.for_successor()?.hint_maps()?;
        let [board, areas] =
            maps.ids().map_err(|e| Error::failed("cannot name the memory for hints", e))?;
        let (pid, hint_abi) = (std::process::id(), turbolane_hint::page::ABI);
        Ok(Reply::Predecessor(Predecessor { pid, hint_abi, board, areas }))
    }

    /// From here on the run is over, unless the next one fails.
    fn hand_over(&mut self, successor: u32) -> Result<Reply> {
        self.for_successor()?;
        let no_process = |_| no_take_over("the process that is to take over is not there");
        let start_ticks = hw::task::start_ticks(successor).map_err(no_process)?;
        // First: no slot is given that the next one does not know of.
        let slots = self.hints.take().map(HintServer::stop).unwrap_or_default();
        let Some(Way::Scx(mut lane)) = self.way.take() else { return Ok(has_ended()) };
        let (since_ns, owns_module) = lane.yield_machine();
        let handed = HandedOver { since_ns, owns_module, slots: slots.clone() };
        self.retired = Some(Retired {
            lane,
            slots,
            owns_module,
            successor: (successor, start_ticks),
            since: Instant::now(),
            is_confirmed: false,
        });
        Ok(Reply::HandedOver(Box::new(handed)))
    }

    fn confirmed(&mut self) -> Reply {
        let Some(retired) = &mut self.retired else { return has_ended() };
        retired.is_confirmed = true;
        Reply::Successor { pid: retired.successor.0 }
    }

    /// Takes the machine back; from whom.
    fn take_back(&mut self) -> Result<u32> {
        let retired = self.retired.take().ok_or_else(|| Error::BadInput(ended_problem()))?;
        let Retired { mut lane, slots, owns_module, successor, .. } = retired;
        lane.take_back(owns_module)?;
        self.hints = Some(serve_hints(&lane, Some(&slots))?);
        self.way = Some(Way::Scx(lane));
        Ok(successor.0)
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
        let (standby, pause_left, lost_marks, scope) = match &self.way {
            Some(Way::Scx(lane)) => {
                (lane.standby(), lane.pause_left(), lane.lost_marks(), lane.scope_rules())
            }
            Some(Way::Affinity(_)) | None => (None, None, Vec::new(), Vec::new()),
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
            pause_left_ns: pause_left.map(|left| left.as_nanos() as u64),
            marks: self.config().into_iter().flat_map(|c| &c.marks).map(Mark::to_string).collect(),
            lost_marks,
            scope,
            cpus,
        }
    }

    fn tasks(&self, since_ns: u64) -> Reply {
        match &self.way {
            Some(Way::Scx(lane)) => or_error(lane.tasks(since_ns).map(Reply::Tasks)),
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

fn or_error(reply: Result<Reply>) -> Reply {
    reply.unwrap_or_else(|error| Reply::Error(error.into_problem()))
}

fn problem(refusal: ParseError) -> Problem {
    Problem::new("the request is refused", &refusal.why, &refusal.next)
}
