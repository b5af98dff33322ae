// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of the scheduler's programs that do nothing else: `SEC("syscall")`, and `SEC("iter/task")`
//! without output.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

use libbpf_rs::{Iter, ProgramMut, libbpf_sys as sys};

use crate::error::{Error, Result};

/// Run a program of the scheduler and return what it returned.
pub(super) fn run(program: &ProgramMut<'_>, args: &mut [u8]) -> Result<i32> {
    test_run(program.as_fd(), args)
        .map_err(|e| Error::failed("cannot run a program of the scheduler", e))
}

/// Run a `SEC("syscall")` program and return what it returned.
pub(crate) fn test_run(program: BorrowedFd<'_>, args: &mut [u8]) -> io::Result<i32> {
    let mut opts = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as _,
        ctx_in: if args.is_empty() { ptr::null() } else { args.as_ptr().cast() },
        ctx_size_in: args.len() as u32,
        ..Default::default()
    };
    // SAFETY: the descriptor is a program's, opts outlives the call and names args' bounds.
    let err = unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut opts) };
    if err != 0 {
        return Err(io::Error::from_raw_os_error(-err));
    }
    Ok(opts.retval as i32)
}

/// Run a program over all tasks of the machine, which writes nothing.
pub(super) fn visit_tasks(program: &ProgramMut<'_>) -> io::Result<()> {
    let link = program.attach().map_err(io::Error::other)?;
    let mut iter = Iter::new(&link).map_err(io::Error::other)?;
    io::copy(&mut iter, &mut io::sink()).map(drop)
}

/// What a program has returned, as text.
pub(super) fn errno_text(err: i32) -> String {
    io::Error::from_raw_os_error(-err).to_string()
}
