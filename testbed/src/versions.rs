// SPDX-License-Identifier: MIT OR Apache-2.0
//! `versions.toml`, parsed.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What the testbed fetches, as pinned in `versions.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Versions {
    /// At least one.
    #[serde(rename = "kernel")]
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) guest: Guest,
    pub(crate) systemd: Guest,
    pub(crate) module: Module,
    /// At least one.
    pub(crate) fresh: Vec<Fresh>,
    pub(crate) promtool: Promtool,
    pub(crate) bochs: Bochs,
    /// Versions by name.
    pub(crate) peers: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kernel {
    /// What tests call it.
    pub(crate) series: String,
    pub(crate) release: String,
    pub(crate) fallback_prefix: String,
    pub(crate) fallback_flavour: String,
    pub(crate) suite: String,
    /// Names of its packages, without the release.
    pub(crate) packages: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Guest {
    pub(crate) suite: String,
    pub(crate) packages: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Module {
    pub(crate) packages: Vec<String>,
}

/// A root that the package is installed into.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fresh {
    pub(crate) suite: String,
    pub(crate) packages: Vec<String>,
}

/// Prometheus's checker.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Promtool {
    pub(crate) suite: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bochs {
    pub(crate) source: String,
    pub(crate) sha256: String,
    pub(crate) suite: String,
}

impl Versions {
    pub(crate) fn pinned() -> Self {
        toml::from_str(include_str!("../versions.toml"))
            .expect("versions.toml is part of this build and a test parses it")
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_pins_parse() {
        let versions = super::Versions::pinned();
        assert!(!versions.kernels.is_empty());
        for kernel in versions.kernels {
            assert!(kernel.release.starts_with(&kernel.series));
            assert!(kernel.release.starts_with(&kernel.fallback_prefix));
            assert!(kernel.release.ends_with(&kernel.fallback_flavour));
            assert!(!kernel.packages.is_empty());
        }
    }
}
