// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who gets which slot: never two the same, and no user all of them.

use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

struct All(bool);

impl Living for All {
    fn thread(&self, _: Thread) -> bool {
        self.0
    }
    fn process(&self, _: Process) -> bool {
        self.0
    }
}

fn process(tgid: u32, uid: u32) -> Process {
    Process { tgid, start_ticks: 1, uid }
}

fn thread(tid: u32) -> Thread {
    Thread { tid, start_ticks: 1 }
}

/// A thread keeps its slot; another with the same number, later, gets it as a new one.
#[test]
fn same_thread_same_slot() {
    let mut slots = Slots::new(4);
    let mut give = |thread| slots.give(process(7, 1), thread, &All(true)).unwrap();
    assert_eq!(give(thread(7)), Given { slot: 0, is_new: true, is_new_area: true });
    assert_eq!(give(thread(8)), Given { slot: 1, is_new: true, is_new_area: false });
    assert_eq!(give(thread(7)), Given { slot: 0, is_new: false, is_new_area: false });
    let later = Thread { start_ticks: 2, ..thread(7) };
    assert_eq!(give(later), Given { slot: 0, is_new: true, is_new_area: false });
}

/// One process, two users, or a later process of the same number: no area in common.
#[test]
fn areas_are_not_shared() {
    let mut slots = Slots::new(16);
    let later = Process { start_ticks: 2, ..process(7, 1) };
    let owners = [process(7, 1), process(7, 0), later, process(8, 1)];
    let areas: HashSet<u32> = owners
        .iter()
        .map(|owner| slots.give(*owner, thread(7), &All(true)).unwrap().slot / 64)
        .collect();
    assert_eq!(areas.len(), owners.len());
}

/// One user gets half of the areas that are not root's, and another one still gets some.
#[test]
fn one_user_cannot_take_all() {
    let mut slots = Slots::new(1024);
    let mut taken = |uid: u32, first: u32| {
        let mut gets = |tgid| slots.give(process(tgid, uid), thread(tgid), &All(true)).is_some();
        (first..first + 2000).filter(|tgid| gets(*tgid)).count()
    };
    assert_eq!(taken(1, 1), (1024 - 64) / 2);
    assert_eq!(taken(2, 10_000), (1024 - 64) / 4);
    assert!(taken(0, 20_000) > 64, "root gets what is left");
}

/// Against many user numbers root has its reserve.
#[test]
fn many_users_leave_the_reserve() {
    let mut slots = Slots::new(1024);
    for uid in 1..5000 {
        slots.give(process(uid, uid), thread(uid), &All(true));
    }
    assert!(slots.give(process(6000, 0), thread(6000), &All(true)).is_some());
}

/// At the limit the dead are looked for, but not at every request.
#[test]
fn at_the_limit_the_dead_make_room() {
    let mut slots = Slots::new(4);
    let mut next = 0;
    while slots.give(process(next, 1), thread(next), &All(true)).is_some() {
        next += 1;
    }
    assert!(slots.give(process(100, 1), thread(100), &All(false)).is_none(), "too soon");
    slots.sweep.last = None;
    assert!(slots.give(process(100, 1), thread(100), &All(false)).is_some());
    assert_eq!(slots.iter().count(), 1, "only the one that asked is left");
}

/// Threads that come and go need no more areas than live at a time.
#[test]
fn slots_of_ended_threads_are_given_again() {
    let mut slots = Slots::new(64);
    for tid in 0..10_000 {
        assert!(slots.give(process(1, 1), thread(tid), &All(false)).is_some());
    }
    assert_eq!(slots.used, 1);
}

/// An area without memory leaves no trace.
#[test]
fn released_area_leaves_no_trace() {
    let mut slots = Slots::new(8);
    let given = slots.give(process(1, 1), thread(1), &All(true)).unwrap();
    slots.release_area(process(1, 1), given.slot / 64);
    assert_eq!((slots.used, slots.iter().count(), slots.users.len()), (0, 0, 0));
}

/// Another server goes on with the same table: threads have their slots, areas their owners, users
/// their shares; and with room for fewer areas nothing is lost.
#[test]
fn another_server_goes_on() {
    let mut slots = Slots::new(8);
    for tid in 0..100 {
        slots.give(process(7, 1), thread(tid), &All(true)).unwrap();
    }
    slots.give(process(8, 2), thread(200), &All(true)).unwrap();
    slots.release(process(7, 1), 50);
    let owners = |slots: &Slots| {
        let mut owners: Vec<_> = slots.iter().map(|(slot, p, t)| (slot, p.tgid, t.tid)).collect();
        owners.sort_unstable();
        owners
    };
    let given = GivenSlots { run_id: 1, processes: slots.given() };
    for capacity in [8, 1] {
        let mut next = Slots::restore(capacity, &given);
        assert_eq!(owners(&next), owners(&slots));
        assert_eq!((next.used, &next.users), (3, &slots.users));
        let known = next.give(process(7, 1), thread(60), &All(true)).unwrap();
        assert_eq!((known.is_new, known.is_new_area), (false, false));
        let new = next.give(process(7, 1), thread(300), &All(true)).unwrap();
        assert!((new.is_new, new.is_new_area) == (true, false) && new.slot / 64 < 3);
    }
}

struct Alive<'a>(&'a HashMap<u32, u32>);

impl Living for Alive<'_> {
    fn thread(&self, thread: Thread) -> bool {
        self.0.contains_key(&thread.tid)
    }
    fn process(&self, process: Process) -> bool {
        self.0.keys().any(|tid| tid / 100 == process.tgid)
    }
}

proptest! {
    /// Whoever comes and ends in whatever order: no two living threads share a slot, no two
    /// processes an area, and no slot is out of range; also where another server goes on.
    #[test]
    fn slots_are_never_shared(
        steps in prop::collection::vec((100u32..1000, any::<bool>(), 0u8..10), 0..400),
        capacity in 4usize..12,
    ) {
        let mut slots = Slots::new(capacity);
        let mut alive: HashMap<u32, u32> = HashMap::new();
        for (tid, lives, goes_on) in steps {
            if goes_on == 0 {
                let (run_id, before) = (1, slots.used);
                let given = GivenSlots { run_id, processes: slots.given() };
                slots = Slots::restore(capacity, &given);
                prop_assert_eq!(slots.used, before);
            }
            if !lives {
                alive.remove(&tid);
                continue;
            }
            slots.sweep.last = None;
            let owner = process(tid / 100, tid / 300);
            if let Some(given) = slots.give(owner, thread(tid), &Alive(&alive)) {
                prop_assert!((given.slot as usize) < capacity * AREA_SLOTS);
                alive.insert(tid, given.slot);
            }
            let taken: HashSet<_> = alive.values().collect();
            prop_assert_eq!(taken.len(), alive.len());
            let owners: HashSet<_> =
                alive.iter().map(|(tid, slot)| (tid / 100, slot / 64)).collect();
            let areas: HashSet<_> = owners.iter().map(|(_, area)| area).collect();
            prop_assert_eq!(areas.len(), owners.len());
        }
    }
}
