// SPDX-License-Identifier: MIT OR Apache-2.0
//! One order for the events of many CPUs.
//!
//! Each CPU's events come in (nearly) their order, CPU after CPU. What was seen before a moment at which
//! all buffers were looked into is complete: it can be sorted and goes out. The rest waits for the next
//! look. Sorting finds the runs of each CPU and merges them, about ten comparisons an event.

use crate::event::Event;

/// Events that wait for the slower CPUs.
#[derive(Default)]
pub struct Order {
    waiting: Vec<Event>,
}

impl Order {
    /// Takes an event.
    pub fn push(&mut self, event: Event) {
        self.waiting.push(event);
    }

    /// The events before this moment, in order of time; at equal times as they came.
    pub fn before(&mut self, moment_ns: u64) -> std::vec::Drain<'_, Event> {
        self.waiting.sort_by_key(|event| event.at_ns);
        let end = self.waiting.partition_point(|event| event.at_ns < moment_ns);
        self.waiting.drain(..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::What;

    fn event(at_ns: u64, cpu: u16) -> Event {
        Event { at_ns, cpu, tid: 1, what: What::Exit }
    }

    /// What may still be overtaken by another CPU waits.
    #[test]
    fn merges_and_holds_back() {
        let mut order = Order::default();
        for event in [event(10, 0), event(30, 0), event(20, 1), event(40, 1)] {
            order.push(event);
        }
        let times: Vec<u64> = order.before(35).map(|event| event.at_ns).collect();
        assert_eq!(times, [10, 20, 30]);
        order.push(event(37, 0));
        let cpus: Vec<u16> = order.before(u64::MAX).map(|event| event.cpu).collect();
        assert_eq!(cpus, [0, 1]);
        assert_eq!(order.before(u64::MAX).count(), 0);
    }
}
