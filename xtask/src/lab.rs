// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the guests of some suites need, made ready once: the images of each
//! kernel they ask for, our programs, and our modules built for those kernels.

use std::collections::BTreeMap;

use anyhow::Result;
use testbed::{Cache, Images};

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
    /// For these suites.
    pub(crate) fn prepare(mut binaries: Binaries, suites: &[Suite]) -> Result<Self> {
        let cache = Cache::open()?;
        let mut images = BTreeMap::new();
        for suite in suites.iter().filter(|suite| !suite.host) {
            if images.contains_key(&suite.kernel) {
                continue;
            }
            let of_kernel = testbed::prepare_series(&cache, &suite.kernel)?;
            binaries.add_modules(&cache, &of_kernel.kernel)?;
            images.insert(suite.kernel.clone(), of_kernel);
        }
        Ok(Self { cache, binaries, images })
    }

    /// For guests with the usual kernel.
    pub(crate) fn usual(mut binaries: Binaries) -> Result<Self> {
        let cache = Cache::open()?;
        let usual = testbed::prepare(&cache)?;
        binaries.add_modules(&cache, &usual.kernel)?;
        Ok(Self { cache, binaries, images: BTreeMap::from([(String::new(), usual)]) })
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
