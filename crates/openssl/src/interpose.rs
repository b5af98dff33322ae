// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions in OpenSSL's place, and how they are switched on.
//!
//! Rust cannot ask where a function was called from, so each of them hands its return address on as
//! one more argument.

use core::ffi::{CStr, c_int, c_uchar, c_uint, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use preloaded::say;

use crate::config::{Config, parse};
use crate::real::{self, Real};

/// `LEVEL[,BYTES]`; ignored in programs that run with more rights than their user has.
const VARIABLE: &CStr = c"TURBOLANE_OPENSSL";

/// Level << 32 | bytes; 0: no call opens a section.
static SWITCHED_ON: AtomicU64 = AtomicU64::new(0);

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Runs when the library is loaded.
extern "C" fn begin() {
    real::prepare();
    environment::secure(VARIABLE, |value| match value.map(parse) {
        None => {}
        Some(Ok(Config { level, bytes })) => {
            SWITCHED_ON.store(u64::from(level) << 32 | u64::from(bytes), Ordering::Relaxed);
        }
        Some(Err(why)) => {
            let [before, word, after] = why.message();
            let library = b"turbolane_openssl: TURBOLANE_OPENSSL: ";
            say([library, before, word, after, b". No wide section is opened.\n"]);
        }
    });
}

/// How long it takes from authenticating a header to the record after it: some hundred
/// instructions. The scheduler ends a rest that lasts longer.
const HEADER_REST_NS: u64 = 10_000;

/// The level of a call's section; `None` if it opens none.
#[inline]
fn level(bytes: u64) -> Option<u32> {
    let config = SWITCHED_ON.load(Ordering::Relaxed);
    let (level, least) = ((config >> 32) as u32, config & 0xffff_ffff);
    (level > 0 && bytes >= least).then_some(level)
}

/// Makes the call, in a section if it is one of those that open one; `is_header`: without output.
#[inline]
fn bracketed<R>(bytes: u64, is_header: bool, call: impl FnOnce() -> R) -> R {
    let opened = level(bytes).is_some_and(|level| turbolane_hint::wide_begin(level).is_ok());
    let result = call();
    if opened {
        // The section was opened above, and C code does not unwind: neither can fail.
        let _ = match is_header {
            true => turbolane_hint::scalar_for(HEADER_REST_NS),
            false => turbolane_hint::wide_end(),
        };
    }
    result
}

/// What OpenSSL returns when a cipher fails: the best that can be done for a call that leads
/// nowhere.
const FAILED: c_int = 0;

#[cold]
fn nowhere(real: &Real) -> c_int {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        say([
            b"turbolane_openssl: no ",
            real.name().to_bytes(),
            b" of OpenSSL was found for a caller, which gets an error. Run this program without \
              libturbolane_openssl.so.\n",
        ]);
    }
    FAILED
}

type Update =
    unsafe extern "C" fn(*mut c_void, *mut c_uchar, *mut c_int, *const c_uchar, c_int) -> c_int;

static CIPHER_UPDATE: Real = Real::new(c"EVP_CipherUpdate");
static ENCRYPT_UPDATE: Real = Real::new(c"EVP_EncryptUpdate");
static DECRYPT_UPDATE: Real = Real::new(c"EVP_DecryptUpdate");

/// # Safety
/// As EVP_CipherUpdate(3); `real` is a function of that type.
#[inline]
unsafe fn update(
    real: &Real,
    context: *mut c_void,
    out: *mut c_uchar,
    written: *mut c_int,
    bytes: *const c_uchar,
    count: c_int,
    caller: usize,
) -> c_int {
    let at = real.of(caller);
    if at.is_null() {
        return nowhere(real);
    }
    // SAFETY: the symbol has this type.
    let function: Update = unsafe { transmute(at) };
    let size = u64::try_from(count).unwrap_or(0);
    // SAFETY: the caller's promise.
    bracketed(size, out.is_null(), || unsafe { function(context, out, written, bytes, count) })
}

/// A function of the type of EVP_CipherUpdate(3): its five arguments, and the return address as the
/// sixth.
macro_rules! update {
    ($name:ident, $inner:ident, $real:ident) => {
        /// As in OpenSSL, EVP_EncryptInit(3).
        ///
        /// # Safety
        /// As there.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(
            context: *mut c_void,
            out: *mut c_uchar,
            written: *mut c_int,
            bytes: *const c_uchar,
            count: c_int,
        ) -> c_int {
            core::arch::naked_asm!("mov r9, qword ptr [rsp]", "jmp {}", sym $inner)
        }

        /// # Safety
        /// As EVP_CipherUpdate(3).
        unsafe extern "C" fn $inner(
            context: *mut c_void,
            out: *mut c_uchar,
            written: *mut c_int,
            bytes: *const c_uchar,
            count: c_int,
            caller: usize,
        ) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { update(&$real, context, out, written, bytes, count, caller) }
        }
    };
}

update!(EVP_CipherUpdate, cipher_update_from, CIPHER_UPDATE);
update!(EVP_EncryptUpdate, encrypt_update_from, ENCRYPT_UPDATE);
update!(EVP_DecryptUpdate, decrypt_update_from, DECRYPT_UPDATE);

static CIPHER: Real = Real::new(c"EVP_Cipher");

/// As in OpenSSL, EVP_EncryptInit(3): libssl's path to the ciphers of TLS 1.2.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn EVP_Cipher(
    context: *mut c_void,
    out: *mut c_uchar,
    bytes: *const c_uchar,
    count: c_uint,
) -> c_int {
    core::arch::naked_asm!("mov r8, qword ptr [rsp]", "jmp {}", sym cipher_from)
}

/// # Safety
/// As EVP_Cipher(3).
unsafe extern "C" fn cipher_from(
    context: *mut c_void,
    out: *mut c_uchar,
    bytes: *const c_uchar,
    count: c_uint,
    caller: usize,
) -> c_int {
    type Cipher = unsafe extern "C" fn(*mut c_void, *mut c_uchar, *const c_uchar, c_uint) -> c_int;
    let at = CIPHER.of(caller);
    if at.is_null() {
        return nowhere(&CIPHER);
    }
    // SAFETY: the symbol has this type.
    let function: Cipher = unsafe { transmute(at) };
    // SAFETY: the caller's promise.
    bracketed(u64::from(count), out.is_null(), || unsafe { function(context, out, bytes, count) })
}
