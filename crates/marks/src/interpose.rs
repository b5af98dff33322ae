// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the library is switched on, and hears of objects that are loaded later.
//!
//! dlopen(3) and dlsym(3) depend on who calls them (its search path, `RTLD_NEXT`), so ours jump to
//! glibc's, with the caller's return address in place. What a dlopen loaded is examined at the next
//! of these calls: programs look a plugin's functions up before they call them.

use core::arch::x86_64::__cpuid_count;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use preloaded::say;

use crate::config::{Marks, parse};
use crate::{objects, stub};

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
compile_error!("stubs and tables are those of glibc on x86-64");

/// Marks, or the path of a file of them; ignored in programs that run with more rights than their
/// user has.
const VARIABLE: &CStr = c"TURBOLANE_MARKS";

/// What the marks' text may be long, bytes.
const TEXT_BYTES: usize = 1 << 16;

struct Text(UnsafeCell<[u8; TEXT_BYTES]>);

// SAFETY: written by `begin` alone, before it is read.
unsafe impl Sync for Text {}

static TEXT: Text = Text(UnsafeCell::new([0; TEXT_BYTES]));
static REPORTS: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// Runs when the library is loaded.
extern "C" fn begin() {
    match environment::secure(VARIABLE, |value| value.map(take_up)) {
        None | Some(Ok(())) => {}
        Some(Err([before, word, after])) => {
            let variable = b"turbolane_marks: TURBOLANE_MARKS: ";
            say([variable, before, word, after, b". Nothing is marked.\n"]);
        }
    }
}

/// Switches the marks of the variable's value on.
fn take_up(value: &[u8]) -> Result<(), [&'static [u8]; 3]> {
    // SAFETY: once, and nobody reads it before.
    let place = unsafe { &mut *TEXT.0.get() };
    let length = match crate::has(value, b':') {
        true => copy(value, place),
        false => read(value, place)?,
    };
    let too_long: [&[u8]; 3] = [b"", b"", b"more than 65536 bytes of marks"];
    let text: &'static [u8] = length.and_then(|length| place.get(..length)).ok_or(too_long)?;
    let Marks { marks, report } = parse(text).map_err(|why| why.message())?;
    if !can_save_vectors() {
        return Err([b"", b"", b"this CPU's vector registers have no form that is known"]);
    }
    objects::prepare(marks);
    REPORTS.store(report, Ordering::Relaxed);
    objects::examine();
    Ok(())
}

fn copy(from: &[u8], to: &mut [u8]) -> Option<usize> {
    to.get_mut(..from.len())?.copy_from_slice(from);
    Some(from.len())
}

/// Reads a file; `None` if it is longer than the buffer.
fn read(path: &[u8], to: &mut [u8]) -> Result<Option<usize>, [&'static [u8]; 3]> {
    let unreadable: [&[u8]; 3] =
        [b"", b"", b"neither marks (FILE:FUNCTION@LEVEL) nor a file that can be read"];
    // The buffer holds the path until the file is open.
    let terminated = copy(path, to).filter(|length| *length < to.len()).is_some();
    if !terminated || path.is_empty() {
        return Err(unreadable);
    }
    // SAFETY: a C string, since the buffer was zero; the descriptor is closed below.
    let file = unsafe { libc::open(to.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
    let mut length = 0;
    let mut result = if file < 0 { Err(unreadable) } else { Ok(None) };
    while let Some(rest) = to.get_mut(length..).filter(|rest| result.is_ok() && !rest.is_empty()) {
        // SAFETY: writes the rest of the buffer.
        match usize::try_from(unsafe { libc::read(file, rest.as_mut_ptr().cast(), rest.len()) }) {
            Ok(0) => {
                result = Ok(Some(length));
                break;
            }
            Ok(bytes) => length += bytes,
            Err(_) => result = Err(unreadable),
        }
    }
    if file >= 0 {
        // SAFETY: ours.
        unsafe { libc::close(file) };
    }
    result
}

/// Whether the stubs can save what they must (Intel SDM 1, 13.2).
fn can_save_vectors() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const STATES: u32 = 0xd;
    let has_xsave = __cpuid_count(1, 0).ecx & OSXSAVE != 0;
    let fits = |state| {
        let part = __cpuid_count(STATES, state);
        part.eax + part.ebx <= stub::AREA_BYTES as u32
    };
    has_xsave && [2, 6].into_iter().all(fits)
}

/// Runs at exit.
extern "C" fn end() {
    if !REPORTS.load(Ordering::Relaxed) {
        return;
    }
    for (mark, callers) in objects::found() {
        let mut digits = [0; 10];
        let number = decimal(callers, &mut digits);
        let (file, function) = (mark.file, mark.function);
        say([b"turbolane_marks: ", file, b":", function, b": ", number, b" callers\n"]);
    }
}

/// A number's digits.
fn decimal(mut number: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        used += 1;
        if number == 0 {
            break;
        }
    }
    digits.get(digits.len() - used..).unwrap_or_default()
}

/// A function of glibc, looked up at its first use.
struct Real {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Real {
    const fn new(name: &'static CStr) -> Real {
        Real { name, at: AtomicPtr::new(null_mut()) }
    }

    /// By dlvsym(3), which is not ours: since 2.34 the functions are in libc.so.6, before in
    /// libdl.so.2, each with a version of its own.
    fn get(&self) -> *mut c_void {
        let known = self.at.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let of = |version: &CStr| {
            // SAFETY: C strings, and a handle of dlvsym's own.
            unsafe { libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version.as_ptr()) }
        };
        let found = [c"GLIBC_2.34", c"GLIBC_2.2.5"].into_iter().map(of).find(|at| !at.is_null());
        let Some(found) = found else {
            // Whoever calls it was linked against it.
            // SAFETY: ends the process.
            unsafe { libc::abort() }
        };
        self.at.store(found, Ordering::Relaxed);
        found
    }
}

static DLOPEN: Real = Real::new(c"dlopen");
static DLSYM: Real = Real::new(c"dlsym");

extern "C" fn before_dlopen() -> *mut c_void {
    objects::examine();
    DLOPEN.get()
}

extern "C" fn before_dlsym() -> *mut c_void {
    objects::examine();
    DLSYM.get()
}

/// A function with two arguments that jumps to the one that another function returns.
macro_rules! jump {
    (
        $name:ident($first:ident: $First:ty, $second:ident: $Second:ty),
        $manual:literal,
        $before:ident
    ) => {
        #[doc = $manual]
        ///
        /// # Safety
        /// As there.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($first: $First, $second: $Second) -> *mut c_void {
            core::arch::naked_asm!(
                "push rdi",
                "push rsi",
                "push rsi", // the stack's alignment
                "call {before}",
                "pop rsi",
                "pop rsi",
                "pop rdi",
                "jmp rax",
                before = sym $before,
            )
        }
    };
}

jump!(dlopen(file: *const c_char, flags: c_int), "As dlopen(3).", before_dlopen);
jump!(dlsym(handle: *mut c_void, name: *const c_char), "As dlsym(3).", before_dlsym);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written() {
        let mut digits = [0; 10];
        for (number, text) in [(0, "0"), (10, "10"), (u32::MAX, "4294967295")] {
            assert_eq!(decimal(number, &mut digits), text.as_bytes());
        }
    }

    #[test]
    fn this_cpu_will_do() {
        assert!(can_save_vectors());
    }
}
