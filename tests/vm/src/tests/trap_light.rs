// SPDX-License-Identifier: MIT OR Apache-2.0
//! Light use, distinguished from wide code: by the instruction, by what the process did before, by
//! what its files hold.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hw::trap::{Device, Verdict};
use sched::questions::Watch;

use super::trap::all_cpus;
use crate::guest::{self, install, spin, wait_for};
use crate::trap::vectors::{heavy, light};
use crate::trap::{Trap, set};

const PROGRAM: (&str, &[u8]) =
    ("/tmp/maps_code", include_bytes!(concat!(env!("OUT_DIR"), "/maps_code")));

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// Scanning libcrypto takes that long under emulation, and it may take a tenth of the time.
const SCAN_LIMIT: Duration = Duration::from_secs(150);

/// Both.
pub fn light_and_heavy() -> Result<()> {
    by_instruction().context("by instruction")?;
    by_files().context("by files")
}

/// Light code gets a period of grace and is not steered; heavy code is; a process that was gets no
/// more than glances for light code; and user space can say what a process is.
fn by_instruction() -> Result<()> {
    let trap = Trap::on(&all_cpus(), "mode=grace wide_level=1 grace_ns=200000 hold_ns=200000")?;
    let pid = std::process::id() as i32;
    let traps = |code: fn()| -> Result<(u64, u64)> {
        let before = trap.device().task_counters(pid)?;
        for _ in 0..50 {
            spin(Duration::from_millis(6)); // longer than a tick of 4 ms
            code();
        }
        let after = trap.device().task_counters(pid)?;
        Ok((after.traps - before.traps, after.steered - before.steered))
    };
    let steered = |(traps, steered): (u64, u64)| traps >= 25 && steered == traps;
    let left = |(traps, steered): (u64, u64)| traps >= 25 && steered == 0;
    let seen = traps(light)?;
    ensure!(left(seen), "light code: {seen:?} traps, steered");
    let seen = traps(heavy)?;
    ensure!(steered(seen), "heavy code: {seen:?} traps, steered");
    let glances = trap.sum(|c| c.glances)?;
    let seen = traps(light)?;
    ensure!(left(seen), "light code of a process that proved wide: {seen:?}");
    ensure!(trap.sum(|c| c.glances)? >= glances + 25, "light code of it was given no glances");
    trap.device().learn(pid, Verdict::Light)?;
    let seen = traps(heavy)?;
    // It is left alone for longer, and so traps less often.
    ensure!(seen.0 > 0 && seen.1 == 0, "told that it is light: {seen:?} traps, steered");
    trap.device().learn(pid, Verdict::Wide)?;
    let seen = traps(light)?;
    ensure!(left(seen), "told that it is wide: {seen:?} traps, steered");
    trap.off()
}

/// In a process that is wide, heavy code soon after light code traps. By time that instructions
/// take: a busy host would bring the timer late.
pub fn glances() -> Result<()> {
    let trap = Trap::on(&all_cpus(), "mode=grace wide_level=1 grace_ns=200000 hold_ns=200000")?;
    let pid = std::process::id() as i32;
    trap.device().learn(pid, Verdict::Wide)?;
    let before = trap.device().task_counters(pid)?.steered;
    for _ in 0..50 {
        spin(Duration::from_millis(6));
        light_then_heavy();
    }
    let steered = trap.device().task_counters(pid)?.steered - before;
    ensure!(steered >= 40, "heavy code trapped in {steered} of 50 rounds");
    other_users_teach_nothing(&trap).context("another user's glances")?;
    trap.off()
}

/// The user `nobody` teaches a call site that nothing follows its light code, so that it gets the
/// longest glances there. A program of root in which heavy code follows traps all the same, the
/// first time.
fn other_users_teach_nothing(trap: &Trap) -> Result<()> {
    let mut teacher = guest::Child::fork(|| {
        // SAFETY: gives up root's rights, for good.
        if unsafe { libc::setuid(NOBODY) } != 0 {
            std::process::exit(1);
        }
        spin(Duration::from_millis(100)); // by then it is known to be wide
        for _ in 0..100 {
            light_at_one_site();
            spin(Duration::from_micros(300));
        }
    })?;
    trap.device().learn(teacher.pid, Verdict::Wide)?;
    let given = trap.sum(|c| c.glances)?;
    ensure!(teacher.wait()? == 0, "the other user's program failed");
    let given = trap.sum(|c| c.glances)? - given;
    ensure!(given >= 50, "it was given only {given} glances");
    let pid = std::process::id() as i32;
    let before = trap.device().task_counters(pid)?.steered;
    spin(Duration::from_millis(6));
    light_at_one_site();
    spin(Duration::from_micros(50));
    heavy();
    let steered = trap.device().task_counters(pid)?.steered - before;
    ensure!(steered == 1, "heavy code trapped {steered} times");
    Ok(())
}

/// The word on top of the stack at this light code is the same, whoever calls.
#[inline(never)]
fn light_at_one_site() {
    light();
}

/// Nothing but the end of a glance makes the heavy code trap: a tick comes in one of twenty rounds.
fn light_then_heavy() {
    light();
    spin(Duration::from_micros(200));
    heavy();
}

/// A process whose files hold no wide code is known to be light, until it gets more code in any
/// way; and again, if that is looked through and has none either.
fn by_files() -> Result<()> {
    install(PROGRAM.0, PROGRAM.1)?;
    let trap = Trap::on(&all_cpus(), "mode=grace wide_level=2")?;
    let device = trap.device();
    let mut program = Program::start()?;
    let mut watch = Watch::new();
    let mut becomes = |program: &Program, expected: Verdict| {
        let what = format!("the process becomes {expected:?}");
        wait_for(&what, SCAN_LIMIT, || {
            watch.look_at(program.0.id(), device);
            program.is(device, expected).unwrap_or(false)
        })
    };
    ensure!(program.is(device, Verdict::None)?, "something is known of a new process");
    becomes(&program, Verdict::Light)?;
    // What maps no code changes nothing; of what does, only files can be looked through.
    for (how, at_once, later) in [
        ("data", Verdict::Light, Verdict::Light),
        ("file", Verdict::None, Verdict::Light),
        ("anonymous", Verdict::None, Verdict::None),
        ("protect", Verdict::None, Verdict::None),
    ] {
        program.say(how)?;
        ensure!(program.is(device, at_once)?, "{how}: the process is not {at_once:?}");
        becomes(&program, later).context(how)?;
        program.say("undo")?;
        becomes(&program, Verdict::Light).context("undone")?;
    }
    // All is light above its level, and nothing below it.
    set("wide_level", "1")?;
    becomes(&program, Verdict::None).context("the C library has 512-bit stores")?;
    set("wide_level", "2")?;
    becomes(&program, Verdict::Light)?;
    // OpenSSL has AVX-512 for heavy work.
    program.say("library")?;
    ensure!(program.is(device, Verdict::None)?, "libcrypto: the process is still light");
    for _ in 0..50 {
        watch.look_at(program.0.id(), device);
        ensure!(program.is(device, Verdict::None)?, "libcrypto: the process is light again");
        std::thread::sleep(Duration::from_millis(20));
    }
    device.learn(program.0.id().cast_signed(), Verdict::Wide)?;
    watch.look_at(program.0.id(), device);
    ensure!(program.is(device, Verdict::Wide)?, "a process that proved wide is not believed");
    program.stop()?;
    trap.off()
}

/// A process that maps code when it is told to.
struct Program(Child, ChildStdin, BufReader<ChildStdout>);

impl Program {
    fn start() -> Result<Self> {
        let piped = || Stdio::piped();
        let mut child = Command::new(PROGRAM.0).stdin(piped()).stdout(piped()).spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.context("no pipes")?;
        let mut program = Program(child, input, BufReader::new(output));
        program.hear("ready")?;
        Ok(program)
    }

    fn say(&mut self, how: &str) -> Result<()> {
        writeln!(self.1, "{how}")?;
        self.hear("done").with_context(|| format!("told to map: {how}"))
    }

    fn hear(&mut self, expected: &str) -> Result<()> {
        let mut line = String::new();
        self.2.read_line(&mut line)?;
        ensure!(line.trim() == expected, "{line:?} instead of {expected:?}");
        Ok(())
    }

    fn is(&self, device: &Device, verdict: Verdict) -> Result<bool> {
        Ok(device.task_counters(self.0.id().cast_signed())?.verdict == verdict as u32)
    }

    fn stop(self) -> Result<()> {
        let Program(mut child, input, _) = self;
        drop(input);
        match child.wait()? {
            status if status.success() => Ok(()),
            status => bail!("{}: {status}", PROGRAM.0),
        }
    }
}
