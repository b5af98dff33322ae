// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a mark adds to a call, ns, where nothing has to move: one of libturbolane_marks.so, beside
//! a pair of uprobes, at the entry and the return of the same function, which only
//! increment a counter.
//!
//! `LD_PRELOAD=libturbolane_marks.so TURBOLANE_MARKS='libc.so.6:bsearch@2' mark_bench` prints one
//! JSON line for each. The function begins with a `push`, which the kernel emulates: that is the
//! cheaper kind of a uprobe. Its address, as dlsym(3) gives it, leads past the mark.

// `common` is written for the smaller library, all of which this one has.
extern crate turbolane as turbolane_hint;

#[path = "../../../../crates/hint/tests/common/mod.rs"]
mod common;

use std::ffi::{CStr, CString, c_int, c_void};
use std::hint::black_box;
use std::io::{Error, Result};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Instant;

use hw::perf::{self, Event, Whose};
use turbolane::protocol;

/// Many and short, so that most are not interrupted, and the median is one of these.
const REPETITIONS: usize = 201;
const CALLS: u32 = 20_000;
/// Of those with uprobes.
const PROBED_CALLS: u32 = 1000;

type Compare = extern "C" fn(*const c_void, *const c_void) -> c_int;
type Search =
    unsafe extern "C" fn(*const c_void, *const c_void, usize, usize, Compare) -> *mut c_void;

unsafe extern "C" {
    fn bsearch(
        key: *const c_void,
        base: *const c_void,
        count: usize,
        size: usize,
        compare: Compare,
    ) -> *mut c_void;
}

extern "C" fn equal(_: *const c_void, _: *const c_void) -> c_int {
    0
}

/// Searches nothing: what is left is the call. ns.
fn call_ns(search: Search, calls: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        let nothing = black_box(std::ptr::null());
        // SAFETY: no element is looked at.
        black_box(unsafe { search(nothing, nothing, 0, 1, equal) });
    }
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}

fn print(name: &str, plain: &[f64], mut marked: Vec<f64>) {
    marked.iter_mut().zip(plain).for_each(|(marked, plain)| *marked -= plain);
    marked.sort_by(f64::total_cmp);
    println!(
        r#"{{"name":"{name}","n":{REPETITIONS},"median":{:.3},"min":{:.3},"max":{:.3}}}"#,
        marked[REPETITIONS / 2],
        marked[0],
        marked[REPETITIONS - 1],
    );
}

/// Counts executions of a place in a file, by this thread.
fn uprobe(path: &CStr, offset: u64, at_return: bool) -> Result<OwnedFd> {
    let kind = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
    let event = Event {
        kind: kind.trim().parse().map_err(Error::other)?,
        config: at_return.into(),
        further: [path.as_ptr().expose_provenance() as u64, offset],
        ..Event::default()
    };
    perf::open(&event, Whose::Thread, None)
}

/// File and offset of a function of a library.
fn place(function: *const c_void) -> (CString, u64) {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: written if it does not return 0; the name is the loader's.
    let (path, base) = unsafe {
        assert_ne!(libc::dladdr(function, info.as_mut_ptr()), 0, "no library has it");
        let info = info.assume_init();
        (CStr::from_ptr(info.dli_fname).to_owned(), info.dli_fbase)
    };
    // In libraries as linkers lay them out, the offset of code in the file is its address.
    (path, (function.addr() - base.addr()) as u64)
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("hint.sock");
    // SAFETY: no other thread exists yet.
    unsafe { std::env::set_var(protocol::SOCKET_ENV, &socket) };
    let daemon = common::FakeDaemon::start(&socket, turbolane::page::MODE_SCX, 16)?;
    daemon.make_all_fit();
    // SAFETY: a C string; libc has the function, of that type.
    let plain: Search = unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"bsearch".as_ptr());
        std::mem::transmute::<*mut c_void, Search>(found)
    };
    assert_ne!(plain as usize, bsearch as Search as usize, "the function is not marked");
    call_ns(bsearch, CALLS); // connects
    assert_eq!(daemon.requests.lock().unwrap().len(), 1, "no section was opened");
    let pairs = || (0..REPETITIONS).map(|_| (call_ns(plain, CALLS), call_ns(bsearch, CALLS)));
    let (unmarked, marked): (Vec<f64>, Vec<f64>) = pairs().unzip();
    print("mark.preload_ns", &unmarked, marked);
    let (path, offset) = place(plain as *const c_void);
    let _entry = uprobe(&path, offset, false)?;
    let _return = uprobe(&path, offset, true)?;
    let probed = (0..REPETITIONS).map(|_| call_ns(plain, PROBED_CALLS)).collect();
    print("mark.uprobes_ns", &unmarked, probed);
    Ok(())
}
