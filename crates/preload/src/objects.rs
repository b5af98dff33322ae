// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose an address is: the file name of the program or library whose mapping holds it.
//!
//! By `_dl_find_object` (glibc 2.35), which takes no lock: `dladdr` takes the loader's, and a
//! thread that runs a constructor in `dlopen` holds that one and may wait for a mutex whose owner
//! asks us.

use core::ffi::{CStr, c_char, c_int, c_ulonglong, c_void};
use core::mem::{MaybeUninit, transmute};
use core::sync::atomic::{AtomicPtr, Ordering};

/// `struct dl_find_object` of dlfcn.h.
#[repr(C)]
struct Found {
    flags: c_ulonglong,
    map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *const LinkMap,
    eh_frame: *mut c_void,
    reserved: [c_ulonglong; 7],
}

/// `struct link_map` of link.h, as far as it is public.
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *const c_char,
}

type Find = unsafe extern "C" fn(*mut c_void, *mut Found) -> c_int;

static FIND: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Looks the function up, once, before any question. False: this glibc has none.
pub(crate) fn prepare() -> bool {
    // SAFETY: a C string.
    let find = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    FIND.store(find, Ordering::Relaxed);
    !find.is_null()
}

/// File name without its folder; "main" for the program; `None` for memory that belongs to no file.
pub(crate) fn name_of(address: usize) -> Option<&'static str> {
    let find = FIND.load(Ordering::Relaxed);
    if find.is_null() {
        return None;
    }
    // SAFETY: the symbol has this type.
    let find: Find = unsafe { transmute(find) };
    let mut found = MaybeUninit::<Found>::uninit();
    // SAFETY: it writes the struct if it returns 0.
    if unsafe { find(address as *mut c_void, found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: written; a link map and its name stay as long as the object is loaded.
    let name = unsafe { CStr::from_ptr((*found.assume_init().link_map).name) };
    let name = name.to_str().ok()?;
    if name.is_empty() {
        return Some("main");
    }
    Some(name.rsplit('/').next().unwrap_or(name))
}
