// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which mutex gets which strategy: the first rule whose condition holds.

use std::ops::Range;

/// How threads wait for a mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Strategy {
    /// As ever.
    Glibc,
    /// All waiters look at the mutex until it is free, and give their CPU away when that takes
    /// long.
    Spin,
    /// They look for about as long as a wake-up takes, and then sleep in glibc.
    Block,
    /// They queue, spinning.
    QueueSpin,
    /// They queue, sleeping.
    QueueBlock,
    /// As ever, and a holder that is waited for long runs at its CPU's fastest P-state.
    Owner,
    /// The same, and another core writes the P-states.
    Delegate,
}

impl Strategy {
    /// Names in the file.
    pub const ALL: [(&str, Strategy); 7] = [
        ("glibc", Strategy::Glibc),
        ("spin", Strategy::Spin),
        ("block", Strategy::Block),
        ("queue-spin", Strategy::QueueSpin),
        ("queue-block", Strategy::QueueBlock),
        ("owner", Strategy::Owner),
        ("delegate", Strategy::Delegate),
    ];
}

/// Which mutexes a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Any.
    All,
    /// Whose address is there.
    Address(Range<usize>),
    /// Which lies in the static data of a program or library whose file name begins so.
    Object(String),
    /// Which was set up by `pthread_mutex_init`, called from such a program or library.
    Creator(String),
    /// Which so many acquisitions have waited for.
    Contended(u32),
}

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Which mutexes.
    pub condition: Condition,
    /// What they get.
    pub strategy: Strategy,
}

/// What is known of a mutex when the question is asked.
pub(crate) struct Subject<'a> {
    pub address: usize,
    /// File name of the object that holds it.
    pub object: Option<&'a str>,
    /// File name of the object that initialised it.
    pub creator: Option<&'a str>,
    /// Acquisitions that waited.
    pub contended: u32,
}

impl Condition {
    fn holds(&self, subject: &Subject<'_>) -> bool {
        let begins =
            |name: Option<&str>, with: &str| name.is_some_and(|name| name.starts_with(with));
        match self {
            Condition::All => true,
            Condition::Address(range) => range.contains(&subject.address),
            Condition::Object(with) => begins(subject.object, with),
            Condition::Creator(with) => begins(subject.creator, with),
            Condition::Contended(least) => subject.contended >= *least,
        }
    }
}

/// The strategy of a mutex.
pub(crate) fn choose(rules: &[Rule], subject: &Subject<'_>) -> Strategy {
    let first = rules.iter().find(|rule| rule.condition.holds(subject));
    first.map_or(Strategy::Glibc, |rule| rule.strategy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_counts() {
        let rule = |condition, strategy| Rule { condition, strategy };
        let rules = [
            rule(Condition::Address(0x1000..0x2000), Strategy::Glibc),
            rule(Condition::Creator("libdb".into()), Strategy::QueueBlock),
            rule(Condition::Object("main".into()), Strategy::Block),
            rule(Condition::Contended(100), Strategy::QueueSpin),
        ];
        let of = |address, object, creator, contended| {
            choose(&rules, &Subject { address, object, creator, contended })
        };
        assert_eq!(of(0x1fff, Some("main"), Some("libdb.so.5"), 500), Strategy::Glibc);
        assert_eq!(of(0x2000, Some("main"), Some("libdb.so.5"), 500), Strategy::QueueBlock);
        assert_eq!(of(0x2000, Some("main"), Some("libc.so.6"), 500), Strategy::Block);
        assert_eq!(of(0x2000, None, None, 100), Strategy::QueueSpin);
        assert_eq!(of(0x2000, None, None, 99), Strategy::Glibc);
    }
}
