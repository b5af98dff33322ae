// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C interface, as the emulator calls it. `include/silicon.h` is made from this file, and a
//! test compares them.
//!
//! A machine is used by one thread. Numbers of CPUs and pointers come from our own emulator, which
//! is built with this crate: a wrong number is a bug and ends the process.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::clocks::Time;
use crate::machine::{Machine, Work, Written};
use crate::settings::Settings;

/// Makes a machine from settings ("CPU[,KEY=VALUE...]"). The log goes to a file of this name, or
/// nowhere if `log` is NULL. Returns NULL and says why on standard error if that is impossible.
///
/// # Safety
/// `settings` is a string, `log` a string or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn silicon_open(
    settings: *const c_char,
    cpus: u32,
    threads: u32,
    log: *const c_char,
) -> *mut Machine {
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(settings) }.to_string_lossy();
    // SAFETY: as the caller promises.
    let log = (!log.is_null()).then(|| unsafe { CStr::from_ptr(log) });
    let log = log.map(|log| Path::new(OsStr::from_bytes(log.to_bytes())));
    match open(&text, cpus, threads, log) {
        Ok(machine) => Box::into_raw(Box::new(machine)),
        Err(why) => {
            eprintln!("silicon: {why}");
            std::ptr::null_mut()
        }
    }
}

fn open(text: &str, cpus: u32, threads: u32, log: Option<&Path>) -> Result<Machine, String> {
    let settings = Settings::parse(text).map_err(|error| error.to_string())?;
    let mut machine = Machine::new(&settings, cpus, threads).map_err(|error| error.to_string())?;
    if let Some(path) = log {
        let cannot = |error| format!("cannot write {}: {error}", path.display());
        machine.log_to(path, &settings).map_err(cannot)?;
    }
    Ok(machine)
}

/// Ends the log and frees the machine.
///
/// # Safety
/// The machine comes from `silicon_open` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn silicon_close(machine: *mut Machine) {
    // SAFETY: as the caller promises.
    unsafe { Box::from_raw(machine) }.finish();
}

/// The local time of each CPU: ticks of the time stamp counter times 65536. Valid until
/// `silicon_close`; every other call may change what is there.
///
/// # Safety
/// The machine comes from `silicon_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn silicon_times(machine: *const Machine) -> *const Time {
    // SAFETY: as the caller promises.
    unsafe { &*machine }.local_times().as_ptr()
}

/// Frequency of the time stamp counter.
///
/// # Safety
/// The machine comes from `silicon_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn silicon_tsc_khz(machine: *const Machine) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { &*machine }.clocks().tsc_khz()
}

/// What one instruction adds to `silicon_work.wide`: its mnemonic in lower case, and the vector
/// length that its prefix states.
///
/// # Safety
/// The machine comes from `silicon_open`, `mnemonic` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn silicon_class(
    machine: *mut Machine,
    mnemonic: *const c_char,
    width_bits: u32,
) -> u32 {
    // SAFETY: as the caller promises.
    let mnemonic = unsafe { CStr::from_ptr(mnemonic) }.to_string_lossy();
    // SAFETY: as the caller promises.
    let machine = unsafe { &mut *machine };
    machine.classify(&mnemonic, u16::try_from(width_bits).unwrap_or(u16::MAX)).0
}

/// Whether a CPU is to be interrupted before it executes a trace of so many instructions, whose
/// `silicon_work.wide` would be this. To be asked before it is executed, if `wide` is not 0.
///
/// # Safety
/// The machine comes from `silicon_open` and has that CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn silicon_warns(
    machine: *mut Machine,
    cpu: u32,
    wide: u32,
    insns: u32,
) -> bool {
    // SAFETY: as the caller promises.
    unsafe { &mut *machine }.warns(cpu as usize, wide, insns)
}

/// A CPU executed a trace; its local time moves. True if it is to be interrupted: a performance
/// counter overflowed, or wide code has ended, and software asked for that.
///
/// # Safety
/// The machine comes from `silicon_open` and has that CPU; `work` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn silicon_ran(machine: *mut Machine, cpu: u32, work: *const Work) -> bool {
    // SAFETY: as the caller promises.
    let (machine, work) = unsafe { (&mut *machine, &*work) };
    machine.ran(cpu as usize, work)
}

/// A CPU went to sleep, at its local time.
///
/// # Safety
/// The machine comes from `silicon_open` and has that CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn silicon_sleep(machine: *mut Machine, cpu: u32) {
    // SAFETY: as the caller promises.
    unsafe { &mut *machine }.sleep(cpu as usize);
}

/// A CPU that slept wakes up at this time; later, if its core halts just then, or if it has to
/// leave a C-state first. A CPU that is reset leaves none.
///
/// # Safety
/// The machine comes from `silicon_open` and has that CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn silicon_wake(machine: *mut Machine, cpu: u32, now: Time, is_reset: bool) {
    // SAFETY: as the caller promises.
    unsafe { &mut *machine }.wake(cpu as usize, now, is_reset);
}

/// Reads a model-specific register; false if it is none of this machine's.
///
/// # Safety
/// The machine comes from `silicon_open` and has that CPU; `value` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn silicon_rdmsr(
    machine: *const Machine,
    cpu: u32,
    index: u32,
    value: *mut u64,
) -> bool {
    // SAFETY: as the caller promises.
    let found = unsafe { &*machine }.read_register(cpu as usize, index);
    if let Some(found) = found {
        // SAFETY: as the caller promises.
        unsafe { *value = found };
    }
    found.is_some()
}

/// Writes a model-specific register.
///
/// # Safety
/// The machine comes from `silicon_open` and has that CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn silicon_wrmsr(
    machine: *mut Machine,
    cpu: u32,
    index: u32,
    value: u64,
) -> Written {
    // SAFETY: as the caller promises.
    unsafe { &mut *machine }.write_register(cpu as usize, index, value)
}

/// Reads a performance counter as RDPMC does.
///
/// # Safety
/// The machine comes from `silicon_open` and has that CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn silicon_rdpmc(machine: *const Machine, cpu: u32, counter: u32) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { &*machine }.read_counter(cpu as usize, counter)
}

/// Marks this moment of a CPU in the log.
///
/// # Safety
/// The machine comes from `silicon_open` and has that CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn silicon_mark(machine: *mut Machine, cpu: u32, value: u32) {
    // SAFETY: as the caller promises.
    unsafe { &mut *machine }.mark(cpu as usize, value);
}

/// The seed of the settings, for the emulator's random numbers; 0 if the settings are no settings.
///
/// # Safety
/// `settings` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn silicon_seed(settings: *const c_char) -> u32 {
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(settings) }.to_string_lossy();
    Settings::parse(&text).map_or(0, |settings| settings.seed)
}
