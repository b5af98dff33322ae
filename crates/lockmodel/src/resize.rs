// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hash table that is resized, item by item, by one thread (TURBO 11, memcached).
//!
//! Problem: TURBO's resize becomes 9 % faster at a clock that is 22 % higher. How much of the time
//! follows the clock is a property of the loop and the machine, so it can be counted without having
//! seen the 9 %.
//!
//! Idea: memcached 1.4 walks the old table bucket by bucket, under its two locks, hashes each
//! item's key again and puts the item in front of its new bucket:
//!
//! ```text
//!   bucket: lock, lock | item: load next, key -> hash -> new bucket | next item | unlock, unlock
//!                              ^ misses every cache and the TLB
//! ```
//!
//! The buckets of both tables are walked in order, which prefetchers see; the item is wherever it
//! was once allocated. Each item is one miss that nothing hides: the next item's address is in this
//! one or after the locked instructions of the next bucket. What waits for memory does not follow
//! the clock, all else does:
//!
//! ```text
//!   time per item = cycles / clock + load + walk          gain = time(clock) / time(1.22 clock) - 1
//! ```
//!
//! Limits: one thread, so no worker that wants the same locks (their lines would travel between
//! modules, TURBO 11's 2,000 cycles); the caches do nothing else; keys of one length.

use cpumodel::PstateModel;

/// Items per bucket when memcached doubles its table: more items than 3/2 of the buckets (assoc.c,
/// 1.4).
const ITEMS_PER_BUCKET: f64 = 1.5;
/// Jenkins' lookup3 for a key of 24 bytes: one round of 18 dependent operations after twelve bytes,
/// a last one of 21 after the others; the operations of a round form a chain (lookup3.c), and as
/// many again to enter, load and pick the last bytes.
const HASH_CYCLES: f64 = 2.0 * (18.0 + 21.0);
/// memcached 1.4 takes and releases item_global_lock and cache_lock for each bucket: four locked
/// instructions.
const LOCKED_PER_BUCKET: f64 = 4.0;
/// A locked instruction on a line in the own cache (Agner Fog's tables, Bulldozer: LOCK CMPXCHG,
/// XCHG with memory 50 to 55; recalled).
const LOCKED_CYCLES: f64 = 55.0;
/// How long a chain is cannot be predicted: one misprediction per bucket (Agner Fog,
/// microarchitecture, Bulldozer: 20; recalled).
const MISPREDICT_CYCLES: f64 = 20.0;
/// The rest of the loop for an item: a load from the own cache for the bucket (4), mask, index, two
/// stores, a compare and the call of the hash function, at an instruction per cycle.
const LINK_CYCLES: f64 = 20.0;

/// Core cycles per item.
fn cycles() -> f64 {
    let bucket = LOCKED_PER_BUCKET * LOCKED_CYCLES + MISPREDICT_CYCLES;
    HASH_CYCLES + LINK_CYCLES + bucket / ITEMS_PER_BUCKET
}

/// Items per second at a clock; `None` for machines whose memory is not known.
pub fn items_per_s(model: &PstateModel, clock_khz: f64) -> Option<f64> {
    let memory = model.memory.as_ref()?;
    let waits_ns = (memory.load_ns.value + memory.walk_ns.value) as f64;
    Some(1e9 / (cycles() * 1e6 / clock_khz + waits_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fx() -> PstateModel {
        PstateModel::built_in("fx-8120").unwrap().unwrap()
    }

    /// Without waits a resize follows the clock, with nothing but waits it does not: between the
    /// two it is.
    #[test]
    fn waits_do_not_follow_the_clock() {
        let gain = |model: &PstateModel| {
            items_per_s(model, 1.22 * 3.1e6).unwrap() / items_per_s(model, 3.1e6).unwrap()
        };
        let mut model = fx();
        let real = gain(&model);
        println!("a resize gains {:.1} % at 1.22 of the clock", 100.0 * (real - 1.0));
        assert!(real > 1.01 && real < 1.21);
        let memory = model.memory.as_mut().unwrap();
        (memory.load_ns.value, memory.walk_ns.value) = (0, 0);
        assert!((gain(&model) - 1.22).abs() < 1e-9);
        model.memory.as_mut().unwrap().load_ns.value = 1_000_000;
        assert!(gain(&model) < 1.001);
    }

    /// A machine whose memory no one described is not guessed.
    #[test]
    fn unknown_memory_fails() {
        let mut model = fx();
        model.memory = None;
        assert_eq!(items_per_s(&model, 3.1e6), None);
    }
}
