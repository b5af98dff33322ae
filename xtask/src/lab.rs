// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the guests of some suites need, made ready once: the images of each
//! kernel they ask for, our programs, and our modules built for those kernels.

use std::collections::BTreeMap;
use std::sync::Mutex;

use anyhow::Result;
use testbed::{Cache, Guest, Images};

use crate::binaries::Binaries;

/// All of it.
pub(crate) struct Lab {
    pub(crate) cache: Cache,
    pub(crate) binaries: Binaries,
    /// By the kernel's series, as suites name it.
    images: BTreeMap<String, Images>,
}

impl Lab {
    /// For guests with the usual kernel.
    pub(crate) fn usual(binaries: Binaries) -> Result<Self> {
        Self::with_kernels(binaries, std::iter::once(""))
    }

    /// For guests with the kernels of these series.
    pub(crate) fn with_kernels<'a>(
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

/// Does `work` for each suite or other boot, as many at a time as there are CPUs: a guest
/// keeps one busy, whatever number it has itself.
pub(crate) fn for_each<T: Sync>(boots: &[T], work: impl Fn(&T) + Sync) {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(boots.len());
    let queue = Mutex::new(boots.iter());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no worker panics in next()").next();
                    match next {
                        Some(boot) => work(boot),
                        None => break,
                    }
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_boot_is_made_once() {
        let count = std::sync::atomic::AtomicUsize::new(0);
        for_each(&[(); 50], |()| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 50);
    }
}
