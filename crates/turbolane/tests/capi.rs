// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library as C and C++ programs use it: linked statically, as a shared library, loaded at run
//! time; without a scheduler, and with one.

#[path = "../../hint/tests/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::Ordering::Relaxed;
use turbolane::page::{MODE_AFFINITY, MODE_SCX};

/// How a program gets the library.
#[derive(Clone, Copy, Debug)]
enum Link {
    Static,
    /// With a static C library too.
    AllStatic,
    Shared,
}

struct Workshop {
    folder: tempfile::TempDir,
}

impl Workshop {
    /// A folder with the shared library under the name that the dynamic linker looks for.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["libturbolane.so", "libturbolane.so.0"] {
            let library = built("libturbolane.so");
            std::os::unix::fs::symlink(library, folder.path().join(name)).unwrap();
        }
        Workshop { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn compile(&self, source: &Path, link: Link) -> PathBuf {
        let is_cpp = source.extension().is_some_and(|extension| extension == "cpp");
        let program = self.path("program");
        let mut command = Command::new(if is_cpp { "c++" } else { "cc" });
        command.args(["-Wall", "-Wextra", "-Werror", "-O1", "-I"]).arg(root().join("include"));
        command.arg(source).arg("-o").arg(&program);
        match link {
            Link::Static | Link::AllStatic => command.arg(built("libturbolane.a")),
            Link::Shared => {
                let folder = self.folder.path().display();
                command
                    .arg(format!("-L{folder}"))
                    .arg(format!("-Wl,-rpath,{folder}"))
                    .arg("-lturbolane")
            }
        };
        if matches!(link, Link::AllStatic) {
            command.arg("-static");
        }
        command.args(["-lpthread", "-ldl"]);
        succeed(&mut command);
        program
    }

    fn run(&self, program: &Path) -> String {
        let mut command = Command::new(program);
        command.env(turbolane::protocol::SOCKET_ENV, self.path("hint.sock"));
        String::from_utf8(succeed(&mut command).stdout).unwrap()
    }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/c").join(name)
}

/// Cargo builds all kinds of the library for this test, and leaves them beside it.
fn built(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join(name)
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Both examples compile without a warning, link in each way, run without a scheduler, and find
/// one. A program without dynamic linking is one that has no glibc rseq symbol to be resolved late.
#[test]
fn examples_compile_and_run() {
    let workshop = Workshop::new();
    for source in ["hint.c", "hint.cpp"] {
        for link in [Link::Static, Link::AllStatic, Link::Shared] {
            let program = workshop.compile(&example(source), link);
            let output = workshop.run(&program);
            let expected = if source == "hint.c" { "none" } else { "0" };
            assert_eq!(output.lines().next(), Some(&*format!("scheduler: {expected}")), "{link:?}");
            assert!(output.contains("sum: "), "{source} {link:?}: {output}");

            for (mode, name, number) in [(MODE_SCX, "scx", "1"), (MODE_AFFINITY, "affinity", "2")] {
                let expected = if source == "hint.c" { name } else { number };
                is_served(&workshop, &program, mode, &format!("scheduler: {expected}"));
            }
        }
    }
}

/// The program finds a scheduler, says so, and all its sections arrive. On a loaded machine the
/// daemon may need longer than the library's patience, so the program may try a few times.
fn is_served(workshop: &Workshop, program: &Path, mode: u32, expected: &str) {
    let daemon = common::FakeDaemon::start(&workshop.path("hint.sock"), mode, 8).unwrap();
    daemon.make_all_fit();
    let served = (0..8).position(|_| workshop.run(program).lines().next() == Some(expected));
    let slot = &daemon.page.slot[served.expect("no try was served")];
    assert_eq!(slot.seq.load(Relaxed), 1000, "{program:?}: sections that arrived");
    daemon.stop();
}

/// Loaded by `dlopen`, the library's thread-local state fits into glibc's reserve; fork handlers do
/// not outlive `dlclose`.
#[test]
fn library_can_be_loaded_at_run_time() {
    let workshop = Workshop::new();
    let source = workshop.path("load.c");
    let program = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            for (int i = 0; i < 3; i++) {
                void *library = dlopen(argv[argc - 1], RTLD_NOW);
                if (!library) { fprintf(stderr, "%s\n", dlerror()); return 1; }
                int (*begin)(unsigned) = (int (*)(unsigned))dlsym(library, "tl_wide_begin");
                int (*end)(void) = (int (*)(void))dlsym(library, "tl_wide_end");
                int (*status)(void) = (int (*)(void))dlsym(library, "tl_wide_status");
                if (begin(1) || end() || !end()) return 2;
                for (int tries = 0; status() != 1; tries++) {
                    if (tries == 100) return 4;
                    usleep(100000);
                }
                dlclose(library);
                pid_t child = fork();
                if (!child) _exit(7);
                int how;
                if (waitpid(child, &how, 0) != child || !WIFEXITED(how) || WEXITSTATUS(how) != 7) return 3;
            }
            puts("fine");
        }"#;
    std::fs::write(&source, program).unwrap();
    let binary = workshop.path("load");
    succeed(Command::new("cc").arg(&source).arg("-o").arg(&binary).arg("-ldl"));
    let daemon = common::FakeDaemon::start(&workshop.path("hint.sock"), MODE_SCX, 8).unwrap();
    daemon.make_all_fit();
    let mut command = Command::new(&binary);
    command.arg(workshop.path("libturbolane.so.0"));
    command.env(turbolane::protocol::SOCKET_ENV, workshop.path("hint.sock"));
    assert_eq!(succeed(&mut command).stdout, b"fine\n");
}
