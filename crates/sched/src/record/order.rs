// SPDX-License-Identifier: MIT OR Apache-2.0
//! One order for events that do not come from the CPUs' logs, which are in order: from their rings,
//! and from the recorder itself.
//!
//! What happened before a moment at which all rings were looked into is complete: it can be sorted
//! and goes out. The rest waits for the next look.

use trace::Event;

use super::raw::{self, Record};

/// What goes into the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Record(Record),
    Event(Event),
}

impl Item {
    /// What a ring holds; `None`: something that this version does not know, which cannot be, since
    /// both sides are built together.
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        match Record::of_bytes(bytes)? {
            (record, []) => Some(Item::Record(record)),
            (record, rest) => raw::long_event(&record, rest).map(Item::Event),
        }
    }

    /// When.
    pub(super) fn at_ns(&self) -> u64 {
        match self {
            Item::Record(record) => record.at_ns,
            Item::Event(event) => event.at_ns,
        }
    }
}

/// Items that wait for the slower CPUs.
#[derive(Default)]
pub(super) struct Order {
    waiting: Vec<Item>,
}

impl Order {
    /// Takes one.
    pub(super) fn push(&mut self, item: Item) {
        self.waiting.push(item);
    }

    /// Those before this moment, in order of time; at equal times as they came.
    pub(super) fn before(&mut self, moment_ns: u64) -> std::vec::Drain<'_, Item> {
        self.waiting.sort_by_key(Item::at_ns);
        let end = self.waiting.partition_point(|item| item.at_ns() < moment_ns);
        self.waiting.drain(..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::What;

    /// Short records are those of the logs, which an interrupt has put here; longer ones are
    /// events.
    #[test]
    fn rings_hold_both() {
        let mut bytes = vec![0; size_of::<Record>()];
        bytes[..8].copy_from_slice(&7u64.to_ne_bytes());
        assert!(matches!(Item::of_bytes(&bytes), Some(Item::Record(Record { at_ns: 7, .. }))));
        bytes[14] = raw::kind::NAME;
        bytes.extend(b"worker\0\0\0\0\0\0\0\0\0\0");
        let Some(Item::Event(event)) = Item::of_bytes(&bytes) else { panic!("no event") };
        let name = trace::Name::new(b"worker");
        assert_eq!((event.at_ns, event.what), (7, What::Name { tgid: 0, name }));
        assert_eq!(Item::of_bytes(&bytes[..20]), None);
    }

    /// What may still be overtaken by another CPU waits.
    #[test]
    fn merges_and_holds_back() {
        let mut order = Order::default();
        let push = |order: &mut Order, at_ns, cpu| {
            order.push(Item::Event(Event { at_ns, cpu, tid: 1, what: What::Exit }));
        };
        for (at_ns, cpu) in [(10, 0), (30, 0), (20, 1), (40, 1)] {
            push(&mut order, at_ns, cpu);
        }
        let times: Vec<u64> = order.before(35).map(|item| item.at_ns()).collect();
        assert_eq!(times, [10, 20, 30]);
        push(&mut order, 37, 0);
        let times: Vec<u64> = order.before(u64::MAX).map(|item| item.at_ns()).collect();
        assert_eq!(times, [37, 40]);
        assert_eq!(order.before(u64::MAX).count(), 0);
    }
}
