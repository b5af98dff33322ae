// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hints: what applications that link libturbolane report to the scheduler.
//!
//! `memory` is what they are sent through (`bpf/hint_page.h` has its layout and the reasons
//! for it), [`HintServer`] gives threads their slots in it, `slots` decides who gets which.

mod memory;
mod server;
mod slots;

pub use memory::{Area, AreaView, Board, NewAreas};
pub use server::{HintServer, OnRegister, Registration};

use std::io::{self, ErrorKind};

use report::problem::Problem;

use crate::error::Error;

/// Why [`HintServer::start`] failed, and what to do about it.
pub(crate) fn cannot_serve(error: io::Error) -> Error {
    let what = "cannot serve hints";
    let next = match error.kind() {
        ErrorKind::AddrInUse => "stop it first",
        ErrorKind::AlreadyExists => "rename or remove it",
        _ => return Error::failed(what, error),
    };
    Error::BadInput(Problem::new(what, error.to_string(), next))
}
