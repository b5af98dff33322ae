// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sweeps the functions of one task: those that cannot matter are passed over, the others decoded.

use iced_x86::Decoder;
use report::scan::Source;

use crate::analysis::{self, Analysis};
use crate::bounds::Range;
use crate::recover::Gaps;
use crate::screen;
use crate::sweep::{Code, Sweep, Targets, Until, decoder};
use crate::{Meter, ScanError};

/// Work of one task: pieces of functions of one section.
pub(crate) struct Task {
    pub(crate) section: usize,
    pub(crate) pieces: Vec<Range>,
}

/// A function of the file with what was found in it.
pub(crate) struct Swept {
    pub(crate) section: usize,
    pub(crate) range: Range,
    pub(crate) analysis: Analysis,
}

/// What sweeping adds up to.
#[derive(Default)]
pub(crate) struct Total {
    pub(crate) swept: Vec<Swept>,
    /// Functions by source, in the order of [`Source::ALL`].
    pub(crate) functions: [u64; Source::ALL.len()],
    /// Functions that the file does not state, with their sections.
    pub(crate) recovered: Vec<(usize, Range)>,
}

impl Total {
    pub(crate) fn add(&mut self, part: Total) {
        self.swept.extend(part.swept);
        self.recovered.extend(part.recovered);
        for (sum, more) in self.functions.iter_mut().zip(part.functions) {
            *sum += more;
        }
    }
}

/// `sweep` may have been used for other tasks: what it remembers of them makes it faster, and
/// changes nothing.
pub(crate) fn sweep(
    task: &Task,
    code: Code<'_>,
    gaps: &Gaps,
    sweep: &mut Sweep,
    meter: &Meter<'_>,
) -> Result<(Total, Targets), ScanError> {
    sweep_those(task, code, gaps, sweep, screen::needs_decoding, meter)
}

/// Whether a range of code has to be decoded.
pub(crate) type Needs = fn(&mut Decoder<'_>, Code<'_>, (usize, usize), &Gaps) -> bool;

pub(crate) fn sweep_those(
    task: &Task,
    code: Code<'_>,
    gaps: &Gaps,
    sweep: &mut Sweep,
    needs: Needs,
    meter: &Meter<'_>,
) -> Result<(Total, Targets), ScanError> {
    let mut total = Total::default();
    let mut targets = Targets::default();
    let mut decoder = decoder(code);
    for &range in &task.pieces {
        let start = (range.start - code.address) as usize;
        let end = (range.end - code.address) as usize;
        total.functions[range.source as usize] += 1;
        meter.spend(SCREEN_COST.max((range.end - range.start) / SCREEN_COST))?;
        if code.bits == 64 && !needs(&mut decoder, code, (start, end), gaps) {
            continue;
        }
        meter.spend(range.end - range.start)?;
        sweep.run(&mut decoder, code, (start, end), Until::Range, gaps, &mut targets);
        if let Some(analysis) = analysis::analyse(sweep) {
            total.swept.push(Swept { section: task.section, range, analysis });
        }
    }
    Ok((total, targets))
}

/// Screening takes an eighth of what decoding takes, and each function, however short, as much as 8
/// bytes.
const SCREEN_COST: u64 = 8;
