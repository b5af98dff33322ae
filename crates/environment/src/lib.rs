// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the environment says, to programs that may listen to it.
//!
//! A set-user-ID or set-group-ID program, or one with file capabilities, runs with more rights than
//! the user who starts it and chooses its environment. A path from there would have the program
//! open what the user cannot: a file of root, a pipe that hangs, another daemon. So the project's
//! libraries read every variable here, by secure_getenv(3), which knows none in such programs. No
//! other file of theirs reads the environment.
//!
//! A crate of its own because libraries use it that must not contain each other: a preloaded
//! library exports what it contains.

#![no_std]

use core::ffi::{CStr, c_char};

unsafe extern "C" {
    /// `getenv`, but null in programs that run with more rights than their user has
    /// (secure_getenv(3); glibc and musl). The `libc` crate lacks it.
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// Passes the variable's value on, without a copy: this may run in any thread of any program, which
/// must not allocate.
pub fn secure<T>(name: &CStr, f: impl FnOnce(Option<&[u8]>) -> T) -> T {
    // SAFETY: the name ends in a zero byte; the result is null or a string in the environment,
    // which `f` reads before anything else can change the environment in this thread.
    let value = unsafe {
        let value = secure_getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    };
    f(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    extern crate std;
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::process::Command;
    use std::{env, eprintln, fs, println, string::String};

    /// Not a test but the program of the next one: prints what it sees.
    #[test]
    fn other_program() {
        if env::var_os("TURBOLANE_TEST_SEEN").is_some() {
            secure(c"TURBOLANE_TEST_SEEN", |value| println!("seen: {value:?}"));
        }
    }

    /// A set-user-ID program sees no variable; any other program does.
    #[test]
    fn a_set_user_id_program_sees_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::copy(env::current_exe().unwrap(), &program).unwrap();
        let open =
            |path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        open(folder.path(), 0o755);
        let seen = || {
            let mut command = Command::new(&program);
            command.args(["--exact", "tests::other_program", "--nocapture"]);
            let output = command.env("TURBOLANE_TEST_SEEN", "x").output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            String::from(text.split("seen: ").nth(1).unwrap().lines().next().unwrap())
        };
        open(&program, 0o755);
        assert_eq!(seen(), "Some([120])");
        // SAFETY: no arguments.
        if unsafe { libc::geteuid() } != 0 || chown(&program, Some(65534), None).is_err() {
            return eprintln!("skipped: another user's program needs root");
        }
        open(&program, 0o4755);
        assert_eq!(seen(), "None");
    }
}
