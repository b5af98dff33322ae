// SPDX-License-Identifier: MIT OR Apache-2.0
//! Call chains by name: what flame graphs are drawn from.
//!
//! A chain's level is that of its last frame, the code that was executed; scalar code has level 0.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// A function, or a file where functions are not known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Frame {
    /// A wide function's name or place; otherwise in brackets a file, or "kernel", "unknown".
    pub function: String,
    /// Path of its file; `null` if it comes from none.
    pub file: Option<String>,
    /// Licence level that the function can reach; 0 for scalar code.
    pub license_level: u8,
}

impl Frame {
    fn text(&self) -> String {
        match self.license_level {
            0 => self.function.clone(),
            level => format!("{} [level {level}]", self.function),
        }
    }
}

/// A call chain of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Chain {
    /// The process's name.
    pub process: String,
    /// Indexes of its frames, outermost caller first.
    pub frames: Vec<usize>,
    /// Samples of it.
    pub samples: u64,
}

/// Chains that share their frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CallChains {
    /// Each frame once.
    pub frames: Vec<Frame>,
    /// Chains, by process and frames.
    pub chains: Vec<Chain>,
}

impl CallChains {
    /// From processes, their frames with the outermost caller first, and samples. Equal neighbours
    /// in a chain are one frame; equal chains are one.
    pub fn new(seen: impl IntoIterator<Item = (String, Vec<Frame>, u64)>) -> Self {
        let mut sums: BTreeMap<(String, Vec<Frame>), u64> = BTreeMap::new();
        for (process, mut frames, samples) in seen {
            frames.dedup();
            *sums.entry((process, frames)).or_default() += samples;
        }
        let mut indexes: HashMap<Frame, usize> = HashMap::new();
        let mut all = CallChains::default();
        for ((process, frames), samples) in sums {
            let mut index = |frame: Frame| {
                *indexes.entry(frame).or_insert_with_key(|frame| {
                    all.frames.push(frame.clone());
                    all.frames.len() - 1
                })
            };
            let frames = frames.into_iter().map(&mut index).collect();
            all.chains.push(Chain { process, frames, samples });
        }
        all
    }

    /// All samples.
    pub fn samples(&self) -> u64 {
        self.chains.iter().map(|chain| chain.samples).sum()
    }

    /// The level of a chain.
    pub fn license_level(&self, chain: &Chain) -> u8 {
        chain.frames.last().map_or(0, |frame| self.frames[*frame].license_level)
    }

    /// As flame graph programs read them: a line per chain with its process first.
    pub fn folded(&self) -> String {
        // a semicolon ends a frame
        let frame = |text: &str| text.replace(';', ":");
        let line = |chain: &Chain| {
            let frames = chain.frames.iter().map(|index| frame(&self.frames[*index].text()));
            let frames: Vec<String> =
                std::iter::once(frame(&chain.process)).chain(frames).collect();
            (frames.join(";"), chain.samples)
        };
        let mut by_text: BTreeMap<String, u64> = BTreeMap::new();
        for (text, samples) in self.chains.iter().map(line) {
            *by_text.entry(text).or_default() += samples;
        }
        by_text.into_iter().fold(String::new(), |mut text, (chain, samples)| {
            let _ = writeln!(text, "{chain} {samples}");
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, license_level: u8) -> Frame {
        Frame { function: function.into(), file: None, license_level }
    }

    /// Equal neighbours and equal chains are added up; no name can end a frame early.
    #[test]
    fn equal_chains_are_folded() {
        let chain = |frames: &[Frame], samples| ("a;b".to_string(), frames.to_vec(), samples);
        let (main, burn) = (frame("[main]", 0), frame("f<int;>", 2));
        let chains = CallChains::new([
            chain(&[main.clone(), main.clone(), burn.clone()], 2),
            chain(&[main.clone(), burn], 3),
            chain(&[main], 4),
        ]);
        assert_eq!(chains.folded(), "a:b;[main] 4\na:b;[main];f<int:> [level 2] 5\n");
        assert_eq!((chains.frames.len(), chains.samples()), (2, 9));
        let levels: Vec<u8> =
            chains.chains.iter().map(|chain| chains.license_level(chain)).collect();
        assert_eq!(levels, [0, 2]);
    }
}
