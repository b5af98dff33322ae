// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs for the tests, assembled and linked by the C compiler that building this project needs.
#![allow(dead_code)] // each test file uses some of it

use std::path::{Path, PathBuf};
use std::process::Command;

use report::scan::{File, Function};
use scan::{Options, scan_file};

/// A folder with what was built in it.
pub struct Built {
    folder: tempfile::TempDir,
}

impl Built {
    pub fn new() -> Self {
        Built { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// Assembles to an object file.
    pub fn assemble(&self, name: &str, source: &str) -> Vec<u8> {
        let text = self.path("source.s");
        std::fs::write(&text, format!("{source}\n.section .note.GNU-stack, \"\", @progbits\n"))
            .unwrap();
        run(Command::new("cc").arg("-c").args([&text, Path::new("-o")]).arg(self.path(name)));
        self.read(name)
    }

    /// Assembles and links to a shared object.
    pub fn link(&self, name: &str, source: &str) -> Vec<u8> {
        self.assemble("part.o", source);
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-nostdlib", "-Wl,--build-id=0x0123456789abcdef", "-o"]);
        run(cc.arg(self.path(name)).arg(self.path("part.o")));
        self.read(name)
    }

    /// Strips a file in place.
    pub fn strip(&self, name: &str, args: &[&str]) -> Vec<u8> {
        run(Command::new("strip").args(args).arg(self.path(name)));
        self.read(name)
    }
}

pub fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A function of assembly with its size.
pub fn function(name: &str, body: &str) -> String {
    format!(
        ".text\n.p2align 4\n.globl {name}\n.type {name}, @function\n{name}:\n{body}\n.size {name}, . - {name}\n"
    )
}

pub fn all() -> Options {
    Options { level: 0, ..Options::default() }
}

pub fn scan(bytes: &[u8]) -> File {
    scan_file("test", bytes, &all()).unwrap()
}

/// The function of that name; panics if it is not listed.
pub fn listed<'a>(file: &'a File, name: &str) -> &'a Function {
    let found = file.listed.iter().find(|function| function.name.as_deref() == Some(name));
    found.unwrap_or_else(|| panic!("{name} is not listed: {:#?}", file.listed))
}

pub fn is_listed(file: &File, name: &str) -> bool {
    file.listed.iter().any(|function| function.name.as_deref() == Some(name))
}
