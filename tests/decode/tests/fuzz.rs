// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decoder against iced-x86 on random bytes: 50,000 cases, or as many as
//! `PROPTEST_CASES` says:
//!
//! ```text
//!   PROPTEST_CASES=20000000 cargo test --release -p decodetests --test fuzz
//! ```

mod common;

use common::{SETTINGS, compare};
use decodetests::Guarded;
use proptest::prelude::*;

fn config() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 50_000;
    }
    config.failure_persistence = None;
    config
}

/// Bytes that begin like what we decode, with a few prefixes before, or like
/// nothing in particular.
fn code() -> impl Strategy<Value = Vec<u8>> {
    let prefix = prop::sample::select(vec![
        0x66u8, 0xf2, 0xf3, 0xf0, 0x2e, 0x3e, 0x64, 0x65, 0x67, 0x40, 0x48, 0x4f,
    ]);
    let prefixes = prop_oneof![
        6 => Just(Vec::new()),
        1 => prop::collection::vec(prefix, 1..16),
    ];
    let first =
        prop_oneof![prop::sample::select(vec![0xc4u8, 0xc5, 0x62, 0x8f, 0x0f]), any::<u8>(),];
    (prefixes, first, prop::collection::vec(any::<u8>(), 0..16)).prop_map(
        |(mut bytes, first, rest)| {
            bytes.push(first);
            bytes.extend(rest);
            bytes
        },
    )
}

proptest! {
    #![proptest_config(config())]

    /// Same answer wherever iced-x86 has one, and no byte read behind the last.
    #[test]
    fn random_bytes(bytes in code(), setting in 0..SETTINGS.len(), long_mode: bool) {
        thread_local! {
            static PAGE: std::cell::RefCell<Guarded> = std::cell::RefCell::new(Guarded::new());
        }
        PAGE.with_borrow_mut(|page| {
            compare(page.place(&bytes), SETTINGS[setting], long_mode);
        });
    }
}
