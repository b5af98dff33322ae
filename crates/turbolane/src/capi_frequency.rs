// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C ABI of a session's frequency control: what CPUs can be set to, and setting it. The manual
//! pages are docs/man/tl_boost.3 and its neighbours.

use std::ffi::{c_int, c_uint};

use crate::capi_session::{Failure, guarded, put, session, tl_cpu, tl_session, tl_speeds};

/// What a CPU can be set to. Returns 0; -EBADF, -ENODEV, -ENXIO, -EFAULT.
///
/// # Safety
/// speeds is NULL or a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_speeds(
    session: *const tl_session,
    cpu: c_uint,
    speeds: *mut tl_speeds,
) -> c_int {
    guarded(|| {
        let found = self::session(session)?.control().speeds(cpu)?;
        let &pstate::Speeds { slow_khz, base_khz, turbo_khz, .. } = found;
        // SAFETY: by contract.
        unsafe { put(speeds, tl_speeds { slow_khz, base_khz, turbo_khz }) }
    })
}

/// A CPU's place in the topology, and the CPUs that share its clock. Needs no
/// frequency control. Returns 0; -EBADF; -ENXIO if it is not online; -EFAULT.
///
/// # Safety
/// info is NULL or a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_cpu(
    session: *const tl_session,
    cpu: c_uint,
    info: *mut tl_cpu,
) -> c_int {
    guarded(|| {
        let clocks = self::session(session)?.control().clocks();
        let offline = || Failure::from(pstate::Error::NoCpu(cpu));
        let place = clocks.topology.place(cpu as usize).ok_or_else(offline)?;
        let domain = clocks.domain_of(cpu as usize).ok_or_else(offline)?;
        let value = self::tl_cpu {
            package: place.package as c_uint,
            core: place.core as c_uint,
            siblings: clocks.topology.siblings_of(cpu as usize).len() as c_uint,
            domain: domain.cpus.lowest().unwrap_or(0) as c_uint,
            domain_cpus: domain.cpus.len() as c_uint,
        };
        // SAFETY: by contract.
        unsafe { put(info, value) }
    })
}

/// The current clock of a CPU, as cpufreq reports it. Returns 0; -EBADF, -ENXIO,
/// -EFAULT; -ENODEV if there is no cpufreq.
///
/// # Safety
/// khz is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_clock(
    session: *const tl_session,
    cpu: c_uint,
    khz: *mut c_uint,
) -> c_int {
    guarded(|| {
        let now_khz = self::session(session)?.control().clock_khz(cpu)?;
        // SAFETY: by contract.
        unsafe { put(khz, now_khz) }
    })
}

/// Sets the CPU to its fastest P-state. Can be called from any thread, and does not
/// allocate after the first use of the CPU. Returns 0; -EBADF, -ENODEV, -ENXIO,
/// -EIO, -EBUSY, -ECHILD; -EOPNOTSUPP with TL_WAY_SCHEDULER.
#[unsafe(no_mangle)]
pub extern "C" fn tl_boost(session: *const tl_session, cpu: c_uint) -> c_int {
    guarded(|| Ok(self::session(session)?.control().boost(cpu).map(|()| 0)?))
}

/// Sets the CPU to its slowest P-state, unless another CPU that shares the setting
/// needs more. Otherwise like tl_boost().
#[unsafe(no_mangle)]
pub extern "C" fn tl_slow(session: *const tl_session, cpu: c_uint) -> c_int {
    guarded(|| Ok(self::session(session)?.control().slow(cpu).map(|()| 0)?))
}

/// Withdraws the request for the CPU. Otherwise like tl_boost().
#[unsafe(no_mangle)]
pub extern "C" fn tl_restore(session: *const tl_session, cpu: c_uint) -> c_int {
    guarded(|| Ok(self::session(session)?.control().restore(cpu).map(|()| 0)?))
}

/// Like tl_restore(), and restores the CPU's settings, including its governor.
#[unsafe(no_mangle)]
pub extern "C" fn tl_release(session: *const tl_session, cpu: c_uint) -> c_int {
    guarded(|| Ok(self::session(session)?.control().release(cpu).map(|()| 0)?))
}

/// Sets the CPU to this frequency. Like tl_boost(); -ERANGE if it is not a P-state.
#[unsafe(no_mangle)]
pub extern "C" fn tl_request(session: *const tl_session, cpu: c_uint, khz: c_uint) -> c_int {
    guarded(|| Ok(self::session(session)?.control().request(cpu, khz).map(|()| 0)?))
}

/// Switches turbo on all CPUs: 1 on, 0 off, -1 unchanged. Returns 1 if it is on
/// afterwards, otherwise 0; -EBADF, -ENODEV, -EIO, -ECHILD.
#[unsafe(no_mangle)]
pub extern "C" fn tl_turbo(session: *const tl_session, on: c_int) -> c_int {
    guarded(|| {
        let control = self::session(session)?.control();
        if on >= 0 {
            control.set_turbo(on > 0)?;
        }
        Ok(c_int::from(control.turbo()?))
    })
}
