// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many files this process may have open.

/// Raises the limit to so many, as far as the administrator's limit allows; what it is then.
pub fn allow(wanted: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads and writes the local structure only.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        let more = libc::rlimit { rlim_cur: wanted.min(limit.rlim_max), ..limit };
        if more.rlim_cur > limit.rlim_cur && libc::setrlimit(libc::RLIMIT_NOFILE, &more) == 0 {
            limit = more;
        }
    }
    limit.rlim_cur
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit is never lowered.
    #[test]
    fn it_is_raised_only() {
        let now = allow(0);
        assert!(now > 0 && allow(now + 1) >= now && allow(1) >= now);
    }
}
