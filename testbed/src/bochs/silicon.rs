// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dim-silicon machine: Bochs in which CPUs have clocks of their own, lowered by licence
//! levels.
//!
//! Two steps. Bochs with the patches and files of `testbed/silicon/` is built to one object file,
//! which takes two minutes and changes rarely. That is linked with `crates/silicon`, a static
//! library that the caller has built, which takes a second.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::build::{self, Bochs};
use super::diff;
use crate::cache::{self, Cache};
use crate::emulator::Silicon;
use crate::process;
use crate::versions::Versions;

/// Raised when the way an entry is made changes, so that old ones are rebuilt.
const RECIPE: &str = "1";

macro_rules! patches {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../silicon/patches/", $name)))),*]
    };
}

/// In the order in which they are applied, after those of `patches.rs`.
const PATCHES: [(&str, &str); 10] = patches!(
    "01-local-time.patch",
    "02-classes.patch",
    "03-waits.patch",
    "04-counters.patch",
    "05-tsc-frequency.patch",
    "06-random-seed.patch",
    "07-mark.patch",
    "08-build.patch",
    "09-notices.patch",
    "10-cores.patch"
);

/// What is added to Bochs' source.
const SOURCES: [(&str, &str); 6] = [
    ("silicon.h", include_str!("../../../crates/silicon/include/silicon.h")),
    ("silicon_hooks.h", include_str!("../../silicon/silicon_hooks.h")),
    ("silicon_machine.h", include_str!("../../silicon/silicon_machine.h")),
    ("silicon_loop.cc", include_str!("../../silicon/silicon_loop.cc")),
    ("silicon_classify.cc", include_str!("../../silicon/silicon_classify.cc")),
    ("silicon_registers.cc", include_str!("../../silicon/silicon_registers.cc")),
];

/// Returns the emulator with that machine; builds what is missing of it.
pub(crate) fn prepare(cache: &Cache, silicon: &Silicon) -> Result<Bochs> {
    let parts = parts(cache)?;
    let library = fs::read(&silicon.library)
        .with_context(|| format!("cannot read {}", silicon.library.display()))?;
    let inputs = [RECIPE, &parts.display().to_string(), &cache::digest(&library)];
    let dir = cache.get("silicon", &inputs, "linking the dim-silicon machine", |dir| {
        build::copy_firmware(&parts, dir)?;
        let mut link = Command::new("g++");
        link.args(["-Wl,--strip-debug", "-o"]).arg(dir.join("bochs")).arg(parts.join("bochs.o"));
        link.arg(&silicon.library).args(["-lm", "-ldl", "-lpthread"]);
        process::run_logged(&mut link, &cache.log("silicon"))
    })?;
    Ok(Bochs::at(dir))
}

/// Bochs as an object file, and its firmware.
fn parts(cache: &Cache) -> Result<PathBuf> {
    let pins = &Versions::pinned().bochs;
    let options = build::options();
    let patches = build::stock_patches();
    let mut inputs = vec![RECIPE, &pins.sha256, &pins.suite, &options, &patches];
    inputs.extend(PATCHES.iter().chain(&SOURCES).flat_map(|(name, text)| [*name, *text]));
    cache.get("bochs-silicon", &inputs, "Bochs with dim silicon (about two minutes)", |dir| {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        build::firmware(cache, &pins.suite, dir)?;
        build::compile(cache, pins, dir, change, "bochs.o")
    })
}

/// Puts the machine into Bochs' source.
fn change(source: &Path) -> Result<()> {
    let mut files = BTreeMap::new();
    let read = |name: &str| {
        fs::read_to_string(source.join(name)).with_context(|| format!("cannot read {name}"))
    };
    for (name, text) in PATCHES {
        diff::apply(text, &mut files, read).with_context(|| format!("{name} does not fit"))?;
    }
    let added = SOURCES.iter().map(|(name, text)| (*name, *text));
    for (name, text) in files.iter().map(|(name, text)| (&**name, &**text)).chain(added) {
        fs::write(source.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every file in the folder is built in, and the other way round.
    #[test]
    fn no_file_is_forgotten() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("silicon");
        let names = |folder: &Path| {
            let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
            let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
            let mut names: Vec<String> =
                files.map(|entry| entry.file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&folder.join("patches")), PATCHES.map(|(name, _)| name.to_owned()));
        let mut ours: Vec<&str> = SOURCES[1..].iter().map(|(name, _)| *name).collect();
        ours.sort_unstable();
        assert_eq!(names(&folder), ours);
    }
}
