// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trap module by itself, without a scheduler that listens: what it withholds, what it must
//! not change, one test per hazard.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::guest::{Child, cpu, install, nr_cpus, set_affinity, set_real_time, spin};
use crate::trap::hash::Hashing;
use crate::trap::stress::Stress;
use crate::trap::vectors::{hold, image, light, scalar_sum, vector_sum};
use crate::trap::{Trap, kvm, load_beside, set, sites, xcr0};

/// A minute, as `./x test` promises; the benchmark runs longer.
const STRESS: Duration = Duration::from_secs(60);

/// Threads of the stress: more than CPUs, so that switches and migrations never end.
const THREADS: usize = 24;

pub(super) fn all_cpus() -> Vec<usize> {
    (0..nr_cpus()).collect()
}

/// Withheld on armed CPUs, full elsewhere; full for as long as the trap says, then withheld again;
/// and everything back when the module is gone.
pub fn withholds_and_returns() -> Result<()> {
    set_affinity(0, &[0])?;
    let full = xcr0();
    let trap = Trap::on(&[0, 1, 2], "hold_ns=20000000 mode=steer")?;
    let withheld = trap.device().info()?.xcr0_withheld;
    ensure!(full & withheld == withheld && withheld != 0, "withheld {withheld:#x} of {full:#x}");
    ensure!(trap.device().info()?.cpus_armed == 3, "{:?}", trap.device().info()?);
    for (cpu_nr, expected) in [(0, full & !withheld), (3, full), (2, full & !withheld)] {
        set_affinity(0, &[cpu_nr])?;
        spin(Duration::from_millis(60));
        ensure!(xcr0() == expected, "CPU {cpu_nr} shows {:#x}, not {expected:#x}", xcr0());
    }
    light();
    ensure!(xcr0() == full, "after a trap XCR0 is {:#x}", xcr0());
    ensure!(cpu() == 2, "nobody moves a task without a scheduler");
    spin(Duration::from_millis(100));
    ensure!(xcr0() == full & !withheld, "the hold time is over and XCR0 is {:#x}", xcr0());
    ensure!(trap.sum(|c| c.traps)? > 0, "no trap was counted");
    trap.arm(&[])?;
    ensure!(xcr0() == full, "disarmed, XCR0 is {:#x}", xcr0());
    trap.off()
}

/// Registers are held over system calls, signals, fork and preemption while threads trap.
pub fn stress() -> Result<()> {
    stress_for(STRESS)
}

/// The same for a second kernel, a third as long.
pub fn short_stress() -> Result<()> {
    stress_for(STRESS / 3)
}

fn stress_for(time: Duration) -> Result<()> {
    let trap = Trap::on(&[0, 1, 2], "mode=steer hold_ns=2000000 grace_ns=500000")?;
    let (stress, hashing) = (Stress::start(THREADS, time)?, Hashing::start(time)?);
    for round in 0.. {
        std::thread::sleep(Duration::from_secs(1));
        set("mode", ["grace", "steer", "count"][round % 3])?;
        if round as u64 >= time.as_secs() {
            break;
        }
    }
    hashing.finish()?;
    stress.finish()?;
    ensure!(trap.sum(|c| c.traps)? > 1000, "too few traps: {}", trap.sum(|c| c.traps)?);
    ensure!(trap.sum(|c| c.parked)? > 1000, "too little was parked");
    trap.off()
}

/// No instruction of the kernel that saves or restores vector state is executed with a reduced
/// XCR0, whatever runs.
pub fn xstate_sites() -> Result<()> {
    no_reduced_site(|| Ok(()))
}

/// The same while somebody else traces the functions that the module hooks, from before and after
/// its hooks came; and nobody can switch all hooks off.
pub fn xstate_sites_traced() -> Result<()> {
    const TRACING: &str = "/sys/kernel/tracing";
    const HOOKED: &str = "save_fpregs_to_fpstate restore_fpregs_from_fpstate kernel_fpu_begin_mask";
    let tracer = |name: &str| fs::write(format!("{TRACING}/current_tracer"), name);
    fs::write(format!("{TRACING}/set_ftrace_filter"), HOOKED)
        .context("the guest's kernel cannot trace functions")?;
    tracer("function")?;
    no_reduced_site(|| {
        let refused = fs::write("/proc/sys/kernel/ftrace_enabled", "0");
        ensure!(refused.is_err(), "kernel.ftrace_enabled=0 was accepted");
        for _ in 0..5 {
            tracer("nop")?;
            std::thread::sleep(Duration::from_millis(700));
            tracer("function")?;
            std::thread::sleep(Duration::from_millis(700));
        }
        let seen = fs::read_to_string(format!("{TRACING}/trace"))?;
        ensure!(seen.contains("save_fpregs_to_fpstate"), "the other tracer saw nothing");
        Ok(())
    })?;
    tracer("nop")?;
    Ok(())
}

fn no_reduced_site(meanwhile: impl FnOnce() -> Result<()>) -> Result<()> {
    let places = sites::find()?;
    load_beside("turbolane_xcheck", &format!("sites={}", places.join(",")))?;
    let trap = Trap::on(&[0, 1, 2], "mode=steer hold_ns=1000000 grace_ns=300000")?;
    let time = Duration::from_secs(15);
    let (stress, hashing) = (Stress::start(12, time)?, Hashing::start(time)?);
    meanwhile()?;
    hashing.finish()?;
    stress.finish()?;
    let (executed, reduced, text) = sites::counts()?;
    let traps = trap.sum(|c| c.traps)?;
    println!("{} places, {executed} executions, {reduced} reduced, {traps} traps", places.len());
    ensure!(executed > 10_000 && traps > 500, "too little happened: {traps} traps\n{text}");
    ensure!(reduced == 0, "{reduced} of {executed} with a reduced XCR0:\n{text}");
    trap.off()?;
    sites::unload()
}

/// The check above sees violations: without the hooks there are some.
///
/// Fork saves registers without a switch before it, and that is what the check is to see. Without
/// hooks a restore on an armed CPU faults, of registers that were saved with the full XCR0. So the
/// test is switched out on none: it is ahead of all others there, does not wait, and has no vector
/// code, which would have the full XCR0 for a while. Where it is in spite of that, the kernel gives
/// it new registers, which these lines do without, and which needs an instruction without a probe.
pub fn xstate_sites_unhooked_fail() -> Result<()> {
    const CPU: usize = 3;
    let mut places = sites::find()?;
    places.retain(|place| place.contains("save"));
    ensure!(!places.is_empty(), "no place that saves");
    load_beside("turbolane_xcheck", &format!("sites={}", places.join(",")))?;
    let trap = Trap::loaded("mode=steer hold_ns=1000000 test_leave_out_hooks=1")?;
    for task in hw::activity::processes(&hw::Live)? {
        // Tasks of the kernel that are bound to a CPU stay; they have no such registers.
        _ = set_affinity(i32::try_from(task)?, &[0, 1, 2]);
    }
    set_affinity(0, &[CPU])?;
    set_real_time(0, 1)?;
    for _ in 0..20 {
        trap.arm(&[CPU])?;
        spin(Duration::from_millis(10));
        // SAFETY: a system call without memory; the child, which runs when this waits, ends at
        // once.
        let child = unsafe { libc::syscall(libc::SYS_fork) };
        if child == 0 {
            // SAFETY: as above.
            unsafe { libc::syscall(libc::SYS_exit_group, 0) };
        }
        trap.arm(&[])?;
        ensure!(child > 0, "the test cannot fork");
        // SAFETY: the child's end is not asked for.
        unsafe { libc::waitpid(i32::try_from(child)?, std::ptr::null_mut(), 0) };
        if sites::counts()?.1 > 0 {
            break;
        }
    }
    let (executed, reduced, text) = sites::counts()?;
    println!("{places:?}: {executed} executions, {reduced} reduced");
    ensure!(reduced > 0, "the check saw nothing wrong in {executed} executions:\n{text}");
    trap.off()?;
    sites::unload()
}

/// A task that may run on armed CPUs only completes its vector code there, in every mode.
pub fn pinned_tasks_complete() -> Result<()> {
    let trap = Trap::on(&all_cpus(), "hold_ns=100000 grace_ns=100000")?;
    for mode in ["count", "grace", "steer"] {
        set("mode", mode)?;
        for seed in 0..200 {
            set_affinity(0, &[seed as usize % nr_cpus()])?;
            ensure!(vector_sum(seed, 500) == scalar_sum(seed, 500), "mode {mode}: a wrong sum");
        }
    }
    trap.off()
}

/// An illegal opcode gives the same signal, with the same words, on an armed CPU as elsewhere; so
/// does one that is illegal only with the full XCR0.
pub fn illegal_opcode() -> Result<()> {
    let without = siginfo_of_ud2()?;
    let trap = Trap::on(&[0], "mode=steer")?;
    set_affinity(0, &[0])?;
    let armed = siginfo_of_ud2()?;
    set_affinity(0, &[3])?;
    let unarmed = siginfo_of_ud2()?;
    ensure!(without == armed && without == unarmed, "{without:?} {armed:?} {unarmed:?}");
    ensure!(trap.sum(|c| c.traps_other)? > 0, "the trap did not see it");
    trap.off()
}

/// Number, code and address of the signal, as the handler gets them.
fn siginfo_of_ud2() -> Result<(i32, i32, u64)> {
    static SEEN: [std::sync::atomic::AtomicU64; 3] =
        [const { std::sync::atomic::AtomicU64::new(0) }; 3];
    extern "C" fn handler(number: i32, info: &libc::siginfo_t, context: &mut libc::ucontext_t) {
        use std::sync::atomic::Ordering::Relaxed;
        // SAFETY: SIGILL has an address.
        let address = unsafe { info.si_addr() } as u64;
        let ip = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
        SEEN[0].store(number as u64, Relaxed);
        SEEN[1].store(info.si_code as u64, Relaxed);
        SEEN[2].store(u64::from(address == *ip as u64), Relaxed);
        *ip += 2;
    }
    // SAFETY: the handler skips the two bytes of UD2.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut());
        std::arch::asm!("ud2");
    }
    let seen = |i: usize| SEEN[i].load(std::sync::atomic::Ordering::Relaxed);
    ensure!(seen(0) == libc::SIGILL as u64, "no SIGILL");
    Ok((seen(0) as i32, seen(1) as i32, seen(2)))
}

/// An XSAVE area of the user, as large as any component needs.
#[repr(C, align(64))]
struct Area([u8; 16384]);

/// User XRSTOR of an image that was saved on another CPU with more components restarts and
/// loads it; one of a broken image still is the program's error.
pub fn user_xrstor() -> Result<()> {
    let trap = Trap::on(&[0, 1, 2], "mode=steer hold_ns=300000 grace_ns=300000")?;
    let mut area = Area([0; 16384]);
    for round in 0..200_u64 {
        let value = [1_u64, 2, round, 4];
        set_affinity(0, &[3])?;
        // SAFETY: saves SSE and AVX to an area that is large enough.
        unsafe {
            std::arch::asm!("vmovdqu ymm1, [{v}]", "xsave64 [{a}]", "vzeroupper",
                v = in(reg) value.as_ptr(), a = in(reg) area.0.as_mut_ptr(),
                in("eax") 6, in("edx") 0, out("xmm1") _);
        }
        set_affinity(0, &[round as usize % 3])?;
        spin(Duration::from_millis(2));
        let mut loaded = [0_u64; 4];
        // SAFETY: loads what was saved above; all registers it changes are declared or dead.
        unsafe {
            std::arch::asm!("xrstor64 [{a}]", "vmovdqu [{l}], ymm1", "vzeroupper",
                a = in(reg) area.0.as_ptr(), l = in(reg) loaded.as_mut_ptr(),
                in("eax") 6, in("edx") 0,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
                out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _,
                out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _,
                out("xmm14") _, out("xmm15") _);
        }
        ensure!(loaded == value, "round {round}: {loaded:?}");
    }
    ensure!(trap.sum(|c| c.xrstor_faults)? > 20, "no XRSTOR was restarted");
    for cpu_nr in [0, 3] {
        let mut child = Child::fork(|| {
            let _ = set_affinity(0, &[cpu_nr]);
            spin(Duration::from_millis(5));
            area.0[512..520].fill(0xff); // components that do not exist
            // SAFETY: faults; nothing is loaded.
            unsafe {
                std::arch::asm!("xrstor64 [{a}]", a = in(reg) area.0.as_ptr(),
                    in("eax") 6, in("edx") 0);
            }
        })?;
        let code = child.wait()?;
        ensure!(code == 128 + libc::SIGSEGV, "a broken image on CPU {cpu_nr}: {code}");
    }
    trap.off()
}

/// A 32-bit program keeps its registers over signals, in frames of both kinds, while it traps.
pub fn signal_frames_32() -> Result<()> {
    const PATH: &str = "/tmp/frames32";
    install(PATH, include_bytes!(concat!(env!("OUT_DIR"), "/frames32")))?;
    let trap = Trap::on(&all_cpus(), "mode=steer hold_ns=20000 grace_ns=20000 exec_grace_ns=0")?;
    let done = Command::new(PATH).status().context("the kernel runs no 32-bit programs")?;
    ensure!(done.success(), "{done}: a register was lost");
    let traps = trap.sum(|c| c.traps)?;
    ensure!(traps > 200, "400 signals, and only {traps} traps");
    trap.off()
}

/// A tracer reads and writes the vector registers of a task that was stopped on an armed CPU.
pub fn ptrace() -> Result<()> {
    let trap = Trap::on(&all_cpus(), "mode=steer hold_ns=100000")?;
    for round in 0..20 {
        let before = image(round);
        let mut wanted = before;
        wanted[14] = 4242; // upper half of ymm3
        let mut child = Child::fork(|| {
            // SAFETY: no memory involved.
            let pid = unsafe {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::getpid()
            };
            let arguments = [i64::from(pid), i64::from(libc::SIGSTOP), 0];
            let (after, _) = hold(&before, libc::SYS_kill, arguments, 1, 10);
            if after != wanted {
                // SAFETY: ends the child.
                unsafe { libc::_exit(1) };
            }
        })?;
        let mut status = 0;
        // SAFETY: our own child, and a buffer of the size that is told.
        unsafe {
            libc::waitpid(child.pid, &mut status, 0);
            let mut buffer = [0_u8; 16384];
            let mut io =
                libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            const NT_X86_XSTATE: i32 = 0x202;
            let read = libc::ptrace(libc::PTRACE_GETREGSET, child.pid, NT_X86_XSTATE, &mut io);
            // Upper halves of AVX in the standard format (SDM vol. 1, 13.4.3).
            let at = 576 + 3 * 16;
            let upper = u64::from_le_bytes(buffer[at..at + 8].try_into()?);
            ensure!(read == 0 && upper == before[14], "the tracer reads {upper:#x}");
            buffer[at..at + 8].copy_from_slice(&4242_u64.to_le_bytes());
            let written = libc::ptrace(libc::PTRACE_SETREGSET, child.pid, NT_X86_XSTATE, &mut io);
            ensure!(written == 0, "PTRACE_SETREGSET: {}", std::io::Error::last_os_error());
            libc::ptrace(libc::PTRACE_CONT, child.pid, 0, 0);
        }
        ensure!(child.wait()? == 0, "the task does not see what the tracer wrote");
    }
    trap.off()
}

/// A core dump has the vector registers of a task that died on an armed CPU.
pub fn core_dump() -> Result<()> {
    let trap = Trap::on(&all_cpus(), "mode=steer hold_ns=100000")?;
    fs::write("/proc/sys/kernel/core_pattern", "/tmp/core")?;
    fs::write("/proc/sys/fs/suid_dumpable", "1")?;
    let before = image(77);
    let mut child = Child::fork(|| {
        let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: a valid structure.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &limit) };
        // SAFETY: no arguments.
        let pid = i64::from(unsafe { libc::getpid() });
        hold(&before, libc::SYS_kill, [pid, i64::from(libc::SIGABRT), 0], 1, 0);
    })?;
    ensure!(child.wait()? == 128 + libc::SIGABRT, "it did not die by SIGABRT");
    let core = fs::read("/tmp/core").context("no core dump")?;
    let upper: Vec<u8> = (0..16)
        .flat_map(|register| before[register * 4 + 2..register * 4 + 4].to_vec())
        .flat_map(u64::to_le_bytes)
        .collect();
    ensure!(
        core.windows(upper.len()).any(|window| window == upper),
        "the core dump lacks the upper halves of the registers"
    );
    trap.off()
}

/// Kernel vector code in task context and in kernel threads, while user code traps: hashes by
/// AF_ALG, and the RAID 6 module's selection of its fastest AVX2 code.
pub fn kernel_vector_code() -> Result<()> {
    let trap = Trap::on(&all_cpus(), "mode=steer hold_ns=200000")?;
    let time = Duration::from_secs(8);
    let hashing: Vec<Hashing> = (0..4).map(|_| Hashing::start(time)).collect::<Result<_>>()?;
    let stress = Stress::start(6, time)?;
    for _ in 0..2 {
        let loaded = Command::new("modprobe").arg("raid6_pq").status()?;
        ensure!(loaded.success(), "raid6_pq does not load");
        Command::new("rmmod").arg("raid6_pq").status()?;
    }
    for one in hashing {
        one.finish()?;
    }
    stress.finish()?;
    trap.off()
}

/// CPUs go and come while armed and under load.
pub fn hotplug() -> Result<()> {
    let trap = Trap::on(&[0, 1, 2], "mode=steer hold_ns=500000")?;
    let stress = Stress::start(12, Duration::from_secs(20))?;
    for round in 0..12 {
        let path = format!("/sys/devices/system/cpu/cpu{}/online", 1 + round / 2 % 3);
        fs::write(&path, if round % 2 == 0 { "0" } else { "1" })
            .with_context(|| format!("{path} does not change"))?;
        std::thread::sleep(Duration::from_millis(400));
    }
    stress.finish()?;
    set_affinity(0, &[1])?;
    spin(Duration::from_millis(60));
    ensure!(
        xcr0() & 4 == 0 || trap.device().info()?.xcr0_withheld & 4 == 0,
        "CPU 1 came back unarmed"
    );
    trap.off()
}

/// The module comes and goes under load, and armed sets change all the time.
pub fn reload() -> Result<()> {
    let stress = Stress::start(12, Duration::from_secs(25))?;
    for round in 0..10 {
        let trap = Trap::on(&[round % 4, (round + 1) % 4], "mode=steer hold_ns=500000")?;
        for set in [&[0, 1, 2][..], &[3], &[], &[0, 1, 2, 3]] {
            trap.arm(set)?;
            std::thread::sleep(Duration::from_millis(100));
        }
        trap.off()?;
    }
    stress.finish()
}

/// A virtual machine's owner keeps its registers, and KVM may come while CPUs are armed.
pub fn virtual_machines() -> Result<()> {
    let trap = Trap::on(&[0, 1, 2], "mode=steer hold_ns=200000")?;
    set_affinity(0, &[1])?;
    spin(Duration::from_millis(60));
    if !Command::new("modprobe").arg("kvm-amd").status()?.success() {
        println!("no KVM in this machine");
        std::process::exit(77);
    }
    let stress = Stress::start(6, Duration::from_secs(10))?;
    kvm::leave_and_enter(300)?;
    set_affinity(0, &[3])?;
    kvm::leave_and_enter(50)?;
    stress.finish()?;
    trap.off()
}

/// A program started on an armed CPU sees the full XCR0 when it asks, for its first while.
pub fn new_programs_see_everything() -> Result<()> {
    set_affinity(0, &[3])?;
    let full = xcr0();
    // A host that stops the virtual CPU adds to the guest's CPU time: the longest grace there is.
    let trap = Trap::on(&all_cpus(), "exec_grace_ns=1000000000")?;
    set_affinity(0, &[1])?;
    spin(Duration::from_millis(1500));
    ensure!(xcr0() != full, "CPU 1 withholds nothing");
    for _ in 0..5 {
        let out = Command::new("/proc/self/exe").arg("xcr0").output()?;
        let shown = String::from_utf8(out.stdout)?;
        ensure!(shown.trim() == format!("{full:#x}"), "a new program sees XCR0 {shown}");
    }
    spin(Duration::from_millis(60));
    ensure!(xcr0() != full, "so does its parent");
    trap.off()
}

/// A task that traps more often than allowed is left alone for the rest of the second.
pub fn rate_limit() -> Result<()> {
    let trap = Trap::on(&all_cpus(), "mode=steer hold_ns=10000 traps_per_s_max=10")?;
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        light();
        // A system call, so that the period's end is noticed.
        std::thread::yield_now();
    }
    let traps = trap.device().task_counters(std::process::id() as i32)?.traps;
    ensure!(trap.sum(|c| c.rate_limited)? >= 2, "nothing was limited");
    // 10 and one more in each of at most five seconds that were begun.
    ensure!(traps <= 55, "{traps} traps in three seconds");
    trap.off()
}
