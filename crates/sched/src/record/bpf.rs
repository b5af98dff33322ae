// SPDX-License-Identifier: MIT OR Apache-2.0
//! The generated skeleton of bpf/trace.bpf.c.
#![allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]

include!(concat!(env!("OUT_DIR"), "/trace.skel.rs"));
