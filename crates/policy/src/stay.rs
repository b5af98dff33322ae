// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a task that has trapped counts as wide, see policy/stay.h.

/// `tl_stay`: CPU time since a task's last evidence, and what it has learned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Stay {
    /// CPU time since its last evidence; saturates.
    pub ran_ns: u32,
    /// How often it left too early: below [`Stay::CALLS`] it leaves at system calls, from there on
    /// it stays for [`Stay::LEAST_NS`], doubled with each more.
    pub early: u8,
    #[doc(hidden)]
    pub zero: [u8; 3],
}
const _: () = assert!(size_of::<Stay>() == 8);

impl Stay {
    /// The break-even time, ns (`TL_STAY_LEAST_NS`).
    pub const LEAST_NS: u64 = 50_000;
    /// See [`Stay::early`] (`TL_STAY_CALLS`).
    pub const CALLS: u8 = 3;
    /// It is never more (`TL_STAY_EARLY_MOST`).
    pub const EARLY_MOST: u8 = 14;
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn tlp_stay_least_ns() -> u64;
        fn tlp_wide_timeout_ns() -> u64;
    }

    /// The constants are those of the C.
    #[test]
    fn one_definition() {
        // SAFETY: pure functions without arguments.
        let of_c = unsafe { (tlp_stay_least_ns(), tlp_wide_timeout_ns()) };
        assert_eq!(of_c, (Stay::LEAST_NS, crate::WIDE_TIMEOUT_NS));
    }
}
