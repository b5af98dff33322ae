// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the guests of some suites need, made ready once: the images of each
//! kernel they ask for, our programs, and our modules built for those kernels.

use std::collections::BTreeMap;

use anyhow::Result;
use testbed::{Cache, Guest, Images};

use crate::binaries::Binaries;
use crate::suite::Suite;

/// All of it.
pub(crate) struct Lab {
    pub(crate) cache: Cache,
    pub(crate) binaries: Binaries,
    /// By the kernel's series, as suites name it.
    images: BTreeMap<String, Images>,
}

impl Lab {
    /// For these suites, and for guests with the usual kernel if others need it.
    pub(crate) fn prepare(binaries: Binaries, suites: &[Suite], with_usual: bool) -> Result<Self> {
        let in_guests = suites.iter().filter(|suite| !suite.host);
        let kernels = in_guests.map(|suite| suite.kernel.as_str());
        Self::with_kernels(binaries, kernels.chain(with_usual.then_some("")))
    }

    /// For guests with the usual kernel.
    pub(crate) fn usual(binaries: Binaries) -> Result<Self> {
        Self::with_kernels(binaries, std::iter::once(""))
    }

    /// For guests with the kernels of these series.
    fn with_kernels<'a>(
        mut binaries: Binaries,
        kernels: impl Iterator<Item = &'a str>,
    ) -> Result<Self> {
        let cache = Cache::open()?;
        let mut images = BTreeMap::new();
        for series in kernels {
            if images.contains_key(series) {
                continue;
            }
            let of_kernel = testbed::prepare_series(&cache, series)?;
            binaries.add_modules(&cache, &of_kernel.kernel)?;
            images.insert(series.to_owned(), of_kernel);
        }
        Ok(Self { cache, binaries, images })
    }

    /// A guest with this kernel that has all of our programs and modules.
    pub(crate) fn guest(&self, series: &str) -> Guest {
        let guest = Guest::new(&self.cache, self.images(series));
        let payload = &self.binaries.payload;
        payload.iter().fold(guest, |guest, (host, place)| guest.payload(host, place))
    }

    /// The images for a suite's kernel, one of those that were prepared.
    pub(crate) fn images(&self, series: &str) -> &Images {
        &self.images[series]
    }

    /// The release of each kernel that guests boot.
    pub(crate) fn kernels(&self) -> Vec<&str> {
        self.images.values().map(|images| &*images.kernel.release).collect()
    }
}
