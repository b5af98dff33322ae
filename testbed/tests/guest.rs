// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests that really boot. Ignored by a plain `cargo test`, because the first
//! one builds the guest image; `./x test` runs them.

use std::time::Duration;

use testbed::{Cache, Emulator, End, Guest};

fn guest() -> Guest {
    let cache = Cache::open().unwrap();
    let images = testbed::prepare(&cache).unwrap();
    Guest::new(&cache, &images).cpus(2).memory_mib(1024)
}

/// Everything comes back: both streams apart, the exit code, the kernel log,
/// files in /out; payload, environment and topology arrive. What the command
/// leaves running does not keep the guest.
#[test]
#[ignore = "boots a guest"]
fn a_command_and_all_that_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(dir.path().join("sub/given"), "from the host").unwrap();
    let script = "cat /bin/given/sub/given; echo oops >&2; echo again >/dev/stderr; \
                  mkdir -p /out/deep; echo $GREETING >/out/deep/file; \
                  cat /sys/devices/system/cpu/cpu1/topology/thread_siblings_list; \
                  sleep 1000 & exit 7";
    let outcome = guest()
        .topology("cores=1,threads=2")
        .payload(dir.path(), "/bin/given")
        .env("GREETING", "it's \"here\"")
        .run(&["sh", "-c", script])
        .unwrap();
    assert_eq!(outcome.end, End::Exited(7));
    assert_eq!(outcome.stdout, "from the host0-1\n");
    assert_eq!(outcome.stderr, "oops\nagain\n");
    let file = std::fs::read_to_string(outcome.out_dir().join("deep/file")).unwrap();
    assert_eq!(file, "it's \"here\"\n");
    assert!(outcome.kernel_log.contains("Linux version"));
    assert_eq!(outcome.findings, []);
}

/// A complaint of the kernel makes a run unclean, unless it was announced.
#[test]
#[ignore = "boots a guest"]
fn a_kernel_warning_is_found() {
    let script = "echo '<4>WARNING: announced' >/dev/kmsg; echo '<4>WARNING: not' >/dev/kmsg";
    let outcome = guest().allow_log("WARNING: announced").run(&["sh", "-c", script]).unwrap();
    assert_eq!(outcome.end, End::Exited(0));
    assert_eq!(outcome.findings.len(), 1);
    assert!(outcome.findings[0].line.contains("WARNING: not"));
    assert!(!outcome.is_clean());
}

/// A command that hangs is ended, and what it had said is there.
#[test]
#[ignore = "boots a guest"]
fn a_hanging_command_is_ended() {
    let outcome = guest()
        .limit(Duration::from_secs(30))
        .run(&["sh", "-c", "echo before; sleep 1000"])
        .unwrap();
    assert_eq!(outcome.end, End::TimedOut);
    assert_eq!(outcome.exit_code(), 124);
    assert_eq!(outcome.stdout, "before\n");
    assert!(outcome.hangs_at.contains("task sleep state:S"), "{}", outcome.hangs_at);
    assert!(outcome.findings.is_empty(), "{:?}", outcome.findings);
}

/// A panic during the command is a failure with a reason, and not repeated.
#[test]
#[ignore = "boots a guest"]
fn a_panic_is_reported_and_not_repeated() {
    let outcome = guest().run(&["sh", "-c", "echo c >/proc/sysrq-trigger"]).unwrap();
    assert!(matches!(&outcome.end, End::Died(why) if why.contains("sysrq")));
    assert_eq!(outcome.retries, 0);
    assert!(outcome.findings[0].line.contains("Kernel panic"));
}

/// A guest that dies before the command started is booted once more.
#[test]
#[ignore = "boots a guest"]
fn a_death_during_boot_is_repeated_once() {
    let outcome = guest().kernel_args("rdinit=/missing").run(&["true"]).unwrap();
    assert!(matches!(outcome.end, End::Died(_)));
    assert_eq!((outcome.retries, outcome.boot_s), (1, None));
}

/// In Bochs the same comes back, and there are AVX-512 and compacted XSAVES.
#[test]
#[ignore = "boots a guest"]
fn bochs_has_avx512_and_brings_everything_back() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("given"), "from the host").unwrap();
    let script = "cat /bin/given/given; echo oops >&2; seq 1000 >&2; nproc; \
                  grep -c 'avx512f.* xsaves' /proc/cpuinfo; \
                  mkdir -p /out/deep; seq 20000 >/out/deep/file; echo $GREETING; exit 7";
    let outcome = guest()
        .emulator(Emulator::Bochs)
        .limit(Duration::from_secs(280))
        .payload(dir.path(), "/bin/given")
        .env("GREETING", "it's \"here\"")
        .run(&["sh", "-c", script])
        .unwrap();
    assert_eq!(outcome.end, End::Exited(7));
    assert_eq!(outcome.stdout, "from the host2\n2\nit's \"here\"\n");
    let numbers: String = (1..=1000).map(|number| format!("{number}\n")).collect();
    assert_eq!(outcome.stderr, format!("oops\n{numbers}"));
    let file = std::fs::read_to_string(outcome.out_dir().join("deep/file")).unwrap();
    assert!(file.ends_with("\n20000\n"));
    assert!(outcome.kernel_log.contains("Linux version"));
    assert_eq!(outcome.findings, []);
}

/// A panic in Bochs ends the run although the machine cannot leave by itself.
#[test]
#[ignore = "boots a guest"]
fn a_panic_in_bochs_is_reported() {
    let outcome = guest()
        .emulator(Emulator::Bochs)
        .limit(Duration::from_secs(280))
        .run(&["sh", "-c", "echo c >/proc/sysrq-trigger"])
        .unwrap();
    assert!(matches!(&outcome.end, End::Died(why) if why.contains("sysrq")), "{:?}", outcome.end);
    assert!(outcome.findings[0].line.contains("Kernel panic"));
}
