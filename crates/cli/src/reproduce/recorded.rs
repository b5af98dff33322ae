// SPDX-License-Identifier: MIT OR Apache-2.0
//! DIM 6.2.2 with a recording in the model's place: nginx, gzip and OpenSSL's AVX-512 code as they ran here
//! (docs/experiments/nginx-trace.md), replayed on the paper's machine.
//!
//! As DIM does: the whole calls into OpenSSL are taken for wide code, and time is counted as if it had passed at
//! the clock of level 0. The recorded processor has no licence levels, so nothing in it was slowed down.
//!
//! DIM names neither the size of its file nor the level of the compression, which say how long a request is.
//! The file is THESIS 5.2's (72 KiB), the level nginx's default, 1; there is a second recording with zlib's, 6.

use dvfs::{Core, Timeline};
use trace::Reader;
use trace::event::{Event, What};
use trace::follow::Follower;
use trace::timeline::{Calls, Hardware, Of};

use crate::sim::of_periods;

/// How much gzip compresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gzip {
    /// nginx's default, 1.
    Default,
    /// zlib's default.
    Level6,
}

impl Gzip {
    fn recording(self) -> &'static [u8] {
        match self {
            Gzip::Default => include_bytes!("../../../../tests/data/traces/nginx-gzip1.trace"),
            Gzip::Level6 => include_bytes!("../../../../tests/data/traces/nginx-gzip6.trace"),
        }
    }
}

/// What the server executed, with its hints, on this core; `None` if the recording is not one of that.
pub(super) fn timeline(gzip: Gzip, core: &Core) -> Option<Timeline> {
    let mut reader = Reader::new(gzip.recording()).ok()?;
    let info = reader.info().clone();
    let (takes, answers) = (info.mark("ngx_ssl_recv")?, info.mark("ngx_ssl_write")?);
    let mut events: Vec<Event> = Vec::new();
    while let Some(event) = reader.next_event().ok()? {
        events.push(event);
    }
    let called = |event: &&Event| matches!(event.what, What::Mark { mark } if mark == answers);
    let server = events.iter().find(called)?.tid;
    let hardware = Hardware { clock_khz: core.clock_khz.clone(), times: core.times };
    let mut collected = trace::timeline::Timeline::new(Of::Task(server), hardware)
        .with_hints(Calls { takes, answers });
    let mut follower = Follower::new(&info);
    events.iter().for_each(|event| follower.take(event, &mut collected));
    follower.finish(reader.ending()?.at_ns(follower.now_ns()), &mut collected);
    Some(of_periods(&collected.export().periods))
}
