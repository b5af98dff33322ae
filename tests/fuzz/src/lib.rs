// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzing of parsers: mutated files in, and nothing but an answer or an error out.
//!
//! **Problem.** Turbolane reads files and messages that others made: programs that a local user can
//! choose, recordings from other machines, texts that were edited by hand. None of them may make it
//! panic, hang, or fill memory.
//!
//! **Idea.** Each [`Target`] has a corpus of real files. A case changes one of them
//! ([`mutate`](mod@mutate)), and asks the parser. A case fails if the parser panics, takes more
//! than one second of CPU time per megabyte of input ([`CPU_PER_MB`]), or holds more than 1 GiB
//! ([`MEMORY_MAX`]) at any moment. A failed input is made smaller, written to a file, and reported.
//!
//! **Seed.** A case is its seed: it decides file and changes. Cases have consecutive seeds, so a
//! failure is repeated by `TURBOLANE_FUZZ_SEED=N`. Each target runs for [`SHORT`];
//! `TURBOLANE_FUZZ_S=600 cargo test -p fuzztests` runs each for ten minutes.
//!
//! **Limits.** Nothing guides the mutations: what only a rare combination of bytes reaches has
//! tests of its own (`tests/bombs.rs`). Text formats are mutated word by word too, which reaches
//! past the lexer. Time is CPU time of the entire process; a short input may take [`CPU_FLOOR`],
//! since page faults and first uses are not the parser's.

pub mod memory;
pub mod mutate;

mod driver;

pub use driver::{CPU_FLOOR, CPU_PER_MB, MEMORY_MAX, SHORT, Target, corpus_of, cpu_time, fuzz};
