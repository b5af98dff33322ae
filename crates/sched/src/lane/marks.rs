// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests about marks. Marks are looked up in their files first, without the lock.

use std::sync::Mutex;

use report::ctl::{Reply, Request};

use super::{Inner, problem};
use crate::config::Mark;
use crate::lock::lock;

pub(super) fn change_mark(inner: &Mutex<Inner>, text: &str, add: bool) -> Reply {
    let mark: Mark = match text.parse() {
        Ok(mark) => mark,
        Err(refusal) => return Reply::Error(problem(refusal)),
    };
    let rules = lock(inner).mark_rules();
    let done = rules.and_then(|(rules, placed)| match add {
        true => {
            let resolved = rules.resolve(&mark)?;
            lock(inner).scx()?.add_mark(mark, &resolved)
        }
        false => {
            let gone = rules.same_site(&mark, placed)?;
            lock(inner).scx()?.remove_mark(&mark, &gone)
        }
    });
    match done {
        Ok(()) => lock(inner).answer(Request::Status),
        Err(error) => Reply::Error(error.into_problem()),
    }
}
