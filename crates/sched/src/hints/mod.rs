// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hints: what applications that link libturbolane tell the scheduler.
//!
//! [`Page`] is the memory they are told through (`bpf/hint_page.h` has its layout and the reasons
//! for it), [`HintServer`] gives threads their slots in it, `slots` decides who gets which.

mod page;
mod server;
mod slots;

pub use page::Page;
pub use server::{HintServer, OnRegister, Registration};
