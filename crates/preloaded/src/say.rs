// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages on standard error, without the standard library's formatting and streams: they would
//! make this library ten times as large, in every process that it is preloaded into.

use core::ptr::null_mut;

/// Parts of a message at most.
const PARTS: usize = 8;

/// Writes the parts as one line, in one system call. That it cannot be written is not reported
/// anywhere.
#[inline]
pub fn say<const N: usize>(parts: [&[u8]; N]) {
    const { assert!(N <= PARTS) };
    let mut vectors = [libc::iovec { iov_base: null_mut(), iov_len: 0 }; PARTS];
    for (vector, part) in vectors.iter_mut().zip(parts) {
        *vector = libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
    }
    // SAFETY: reads the parts, which live until the end of this call.
    unsafe { libc::writev(libc::STDERR_FILENO, vectors.as_ptr(), N as libc::c_int) };
}
