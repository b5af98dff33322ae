// SPDX-License-Identifier: MIT OR Apache-2.0
//! The oracle: the raises that take the least time, with the complete timeline known.
//!
//! Problem: what is the most that any policy could win? A rule such as "raise where the gap is
//! longer than break-even" is not it: with three levels a raise to the middle can pay where one to
//! the top does not, requests remain although their code has ended, and a halt is free while the
//! CPU is idle.
//!
//! Idea: raising later within a stretch of equal demand never beats raising at its begin, for what
//! runs before the raise runs slower and the change costs the same; unless the CPU becomes idle,
//! for then the halt is free. So decisions are needed only where a policy is asked anyway
//! (`replay.rs`): where the demand changes, idle time begins or ends, or a level is granted. There
//! the future depends on nothing but the position in the timeline and the granted level; of two
//! paths to the same place the faster one is kept. This is dynamic programming over forks of the
//! replay itself, so its times are those of the replay to the nanosecond.
//!
//! It decides what a policy decides, and no more: it does not ask for a licence before the code
//! does. `tests/properties.rs` compares it with all sequences of decisions and delays on small
//! timelines.
//!
//! Limits: one CPU. With siblings the position is two-dimensional. Time grows with periods times
//! levels.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::policy::{Policy, Raise, View};
use crate::replay::{Quiet, Replay};
use crate::{Core, Timeline};

/// What to do at a decision: stay, or raise to this level now.
type Choice = Option<u8>;

/// Position (period, work left of it; less is later) and granted level.
type Place = (usize, Reverse<u64>, u8);

/// A decision on the way: the one before it, and what was chosen.
struct Node {
    before: Option<usize>,
    choice: Choice,
}

/// The fastest known path to a place.
struct Arrival<'a> {
    replay: Replay<'a>,
    last: Option<usize>,
}

/// Follows decisions that were made before.
#[derive(Debug)]
pub(crate) struct Script(std::vec::IntoIter<Choice>);

impl Policy for Script {
    fn wait(&mut self, view: &View<'_>) -> Option<Raise> {
        raise(self.0.next().flatten(), view.now_ns)
    }
}

/// Does nothing while the search decides.
struct Nobody;

impl Policy for Nobody {
    fn wait(&mut self, _view: &View<'_>) -> Option<Raise> {
        None
    }
}

fn raise(choice: Choice, now_ns: u64) -> Option<Raise> {
    choice.map(|to| Raise { at_ns: now_ns, to })
}

/// The search: decisions so far, places still to go on from, and the fastest end.
#[derive(Default)]
struct Search<'a> {
    nodes: Vec<Node>,
    open: BTreeMap<Place, Arrival<'a>>,
    end: Option<(u64, Option<usize>)>,
}

impl<'a> Search<'a> {
    /// Lets a fork run to its next decision, or to the end.
    fn arrive(&mut self, mut replay: Replay<'a>, last: Option<usize>) {
        if !replay.advance(&mut Nobody, &mut Quiet) {
            let now_ns = replay.now_ns();
            if self.end.is_none_or(|(best_ns, _)| now_ns < best_ns) {
                self.end = Some((now_ns, last));
            }
            return;
        }
        let place = place(&replay);
        let known = self.open.get(&place);
        if known.is_none_or(|known| replay.now_ns() < known.replay.now_ns()) {
            self.open.insert(place, Arrival { replay, last });
        }
    }

    /// Every choice at a decision.
    fn fork(&mut self, from: &Arrival<'a>) {
        let view = from.replay.view();
        let (now_ns, demand, level) = (view.now_ns, view.license.demand(), view.license.level());
        for choice in std::iter::once(None).chain((demand..level).map(Some)) {
            let mut fork = from.replay.clone();
            fork.decide(raise(choice, now_ns));
            self.nodes.push(Node { before: from.last, choice });
            self.arrive(fork, Some(self.nodes.len() - 1));
        }
    }

    fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        let mut at = self.end.and_then(|(_, last)| last);
        while let Some(node) = at {
            choices.push(self.nodes[node].choice);
            at = self.nodes[node].before;
        }
        choices.reverse();
        choices
    }
}

/// The best decisions for a timeline on a core.
pub(crate) fn best(core: &Core, timeline: &Timeline) -> Script {
    let timelines = [timeline];
    let mut search = Search::default();
    search.arrive(Replay::new(core, &timelines, &mut Nobody, &mut Quiet), None);
    while let Some((_, arrival)) = search.open.pop_first() {
        search.fork(&arrival);
    }
    Script(search.choices().into_iter())
}

fn place(replay: &Replay<'_>) -> Place {
    let (period, left) = replay.position();
    // the bits of positive floats have the order of the floats
    (period, Reverse(left.to_bits()), replay.view().license.level())
}
