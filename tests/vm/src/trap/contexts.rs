// SPDX-License-Identifier: MIT OR Apache-2.0
//! Context switches that the kernel knows nothing of: plain saves and restores of registers, as
//! fibre libraries, JITs and sandboxes make them, from code in memory of every kind.
//!
//! A context loads registers, is away until its CPU withholds them (if it does), saves them over an
//! older image, and restores them after another context has used them. What comes back must be what
//! it had, not what an older image had.

use std::arch::{asm, global_asm};
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use sched::questions::Watch;

use hw::trap::Device;

use super::vectors::{light, light_512, mix};
use super::{Trap, components};
use crate::guest::{Child, set_affinity, spin, wait_for};

/// How registers are saved; what restores them goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Xsave,
    Xsaveopt,
    Xsavec,
    Fxsave,
}

/// Where the code lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this program.
    File,
    Anonymous,
    /// Mapped from a memfd.
    Memfd,
    /// Of a file that has no name any more, and is no program.
    Deleted,
    /// Written first, executable later.
    Protected,
    /// In a page of this program's file that was written over.
    Rewritten,
    /// In this program's file, mapped once more and shared: there the kernel puts no probes.
    Shared,
}

pub const FORMS: [Form; 4] = [Form::Xsave, Form::Xsaveopt, Form::Xsavec, Form::Fxsave];
pub const PLACES: [Place; 7] = [
    Place::File,
    Place::Anonymous,
    Place::Memfd,
    Place::Deleted,
    Place::Protected,
    Place::Rewritten,
    Place::Shared,
];

/// Each is four bytes and a RET: save, and restore at [`RESTORE`].
const RESTORE: usize = 8;

global_asm!(
    ".macro tl_stub name, save:vararg",
    ".p2align 4",
    ".type \\name, @function",
    "\\name: .cfi_startproc",
    "\\save",
    "ret",
    ".cfi_endproc",
    ".size \\name, . - \\name",
    ".endm",
    "tl_stub tl_save_xsave, xsave64 [rdi]",
    "tl_stub tl_save_xsaveopt, xsaveopt64 [rdi]",
    "tl_stub tl_save_xsavec, xsavec64 [rdi]",
    "tl_stub tl_save_fxsave, fxsave64 [rdi]",
    "tl_stub tl_restore_xrstor, xrstor64 [rdi]",
    "tl_stub tl_restore_fxrstor, fxrstor64 [rdi]",
    ".p2align 12",
    "tl_rewritten: .fill 4096, 1, 0xcc",
);

unsafe extern "C" {
    fn tl_save_xsave();
    fn tl_save_xsaveopt();
    fn tl_save_xsavec();
    fn tl_save_fxsave();
    fn tl_restore_xrstor();
    fn tl_restore_fxrstor();
    static tl_rewritten: u8;
}

impl Form {
    pub fn is_here(self) -> bool {
        let extended = std::arch::x86_64::__cpuid_count(0xd, 1).eax;
        match self {
            Form::Xsave | Form::Fxsave => true,
            Form::Xsaveopt => extended & 1 != 0,
            Form::Xsavec => extended & 2 != 0,
        }
    }

    /// In this program.
    fn functions(self) -> [usize; 2] {
        let save = match self {
            Form::Xsave => tl_save_xsave as *const () as usize,
            Form::Xsaveopt => tl_save_xsaveopt as *const () as usize,
            Form::Xsavec => tl_save_xsavec as *const () as usize,
            Form::Fxsave => tl_save_fxsave as *const () as usize,
        };
        let restore = match self {
            Form::Fxsave => tl_restore_fxrstor as *const () as usize,
            _ => tl_restore_xrstor as *const () as usize,
        };
        [save, restore]
    }

    /// The same code. Not copied from there: that may have probes in it.
    fn bytes(self) -> [u8; 16] {
        let save = match self {
            Form::Xsave => [0x48, 0x0f, 0xae, 0x27, 0xc3],
            Form::Xsaveopt => [0x48, 0x0f, 0xae, 0x37, 0xc3],
            Form::Xsavec => [0x48, 0x0f, 0xc7, 0x27, 0xc3],
            Form::Fxsave => [0x48, 0x0f, 0xae, 0x07, 0xc3],
        };
        let restore = match self {
            Form::Fxsave => [0x48, 0x0f, 0xae, 0x0f, 0xc3],
            _ => [0x48, 0x0f, 0xae, 0x2f, 0xc3],
        };
        let mut bytes = [0xcc; 16];
        bytes[..5].copy_from_slice(&save);
        bytes[RESTORE..RESTORE + 5].copy_from_slice(&restore);
        bytes
    }

    /// Puts the code there; its two addresses.
    fn put(self, place: Place) -> Result<[usize; 2]> {
        let bytes = self.bytes();
        let (rw, rx) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ | libc::PROT_EXEC);
        let at = match place {
            Place::File => return Ok(self.functions()),
            Place::Anonymous => {
                let at = map(rw | rx, None)?;
                write(at, &bytes);
                at
            }
            Place::Memfd => {
                let name = CString::new("jit")?;
                // SAFETY: a string that ends; the descriptor is ours.
                let mut file = unsafe { File::from_raw_fd(libc::memfd_create(name.as_ptr(), 0)) };
                file.write_all(&bytes)?;
                map(rx, Some(&file))?
            }
            Place::Deleted => {
                let path = format!("/tmp/code-{}", std::process::id());
                std::fs::write(&path, bytes)?;
                let file = File::open(&path)?;
                std::fs::remove_file(&path)?;
                map(rx, Some(&file))?
            }
            Place::Protected => {
                let at = map(rw, None)?;
                write(at, &bytes);
                protect(at, rx)?;
                at
            }
            Place::Rewritten => {
                let at = &raw const tl_rewritten as usize;
                protect(at, rw)?;
                write(at, &bytes);
                protect(at, rx)?;
                at
            }
            Place::Shared => {
                let [save, restore] = self.functions();
                return Ok([shared(save)?, shared(restore)?]);
            }
        };
        Ok([at, at + RESTORE])
    }
}

fn map(protection: i32, file: Option<&File>) -> Result<usize> {
    let (flags, fd) = match file {
        Some(file) => (0, file.as_raw_fd()),
        None => (libc::MAP_ANONYMOUS, -1),
    };
    // SAFETY: new memory.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_PRIVATE | flags, fd, 0)
    };
    ensure!(at != libc::MAP_FAILED, "no memory: {}", std::io::Error::last_os_error());
    Ok(at as usize)
}

/// The same code of this program's file in a shared mapping. Its file is open for reading only, so
/// that the kernel remembers of the sharing no more than that it is allowed.
fn shared(function: usize) -> Result<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let hexadecimal = |text: &str| usize::from_str_radix(text, 16);
    for line in maps.lines() {
        let (range, rest) = line.split_once(' ').unwrap_or_default();
        let (start, end) = range.split_once('-').unwrap_or_default();
        let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
        if !(start..end).contains(&function) {
            continue;
        }
        let offset = hexadecimal(rest.split(' ').nth(1).unwrap_or_default())?;
        let file = File::open("/proc/self/exe")?;
        // SAFETY: new memory.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                end - start,
                libc::PROT_READ | libc::PROT_EXEC,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        ensure!(at != libc::MAP_FAILED, "no memory: {}", std::io::Error::last_os_error());
        return Ok(at as usize + (function - start));
    }
    bail!("{function:#x} is not mapped")
}

fn write(at: usize, bytes: &[u8]) {
    // SAFETY: a page of ours that can be written.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
}

fn protect(at: usize, protection: i32) -> Result<()> {
    // SAFETY: a page of ours that holds nothing else.
    let result = unsafe { libc::mprotect(at as *mut libc::c_void, 4096, protection) };
    ensure!(result == 0, "mprotect: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Room for any image, with AMX.
#[repr(C, align(64))]
struct Area([u8; 16384]);

/// What two registers hold: ymm6 and ymm7, or zmm20 and k3.
type Values = [u64; 8];

/// x87, SSE, AVX, AVX-512.
const COMPONENTS: u32 = 0xe7;

macro_rules! context {
    (
        $load:literal, $store:literal,
        $held:expr, $others:expr, $after:expr, $code:expr, $area:expr, $calls:expr
    ) => {
        asm!(
            $load,
            "2: mov eax, 39", // getpid
            "syscall",
            "mov ecx, 200",
            "3: pause",
            "dec ecx",
            "jnz 3b",
            "dec r13",
            "jnz 2b",
            "mov eax, {components}",
            "xor edx, edx",
            "call r8",
            "mov r12, r10",
            $load,
            "mov eax, {components}",
            "xor edx, edx",
            "call r9",
            $store,
            components = const COMPONENTS,
            inout("r12") $held.as_ptr() => _, in("r10") $others.as_ptr(), in("r14") $after,
            in("r8") $code[0], in("r9") $code[1], in("rdi") $area,
            inout("r13") $calls => _, out("rax") _, out("rcx") _, out("rdx") _, out("r11") _,
            out("xmm6") _, out("xmm7") _, out("k3") _, out("xmm20") _,
        )
    };
}

/// One context; what its registers hold in the end.
fn switch(code: [usize; 2], held: &Values, area: &mut Area) -> Values {
    let mut after = [0; 8];
    let others: Values = [0x5555_5555_5555_5555; 8];
    let area = area.0.as_mut_ptr();
    // Some turns, each longer than the shortest period of grace.
    let calls = 8_u64;
    // SAFETY: the code saves to and restores from the area, which has room for any image; what it
    // changes is declared, and PKRU and the like are not among the components.
    unsafe {
        if components() == "avx512" {
            context!(
                "vmovdqu64 zmm20, [r12]\nkmovw k3, word ptr [r12]",
                "vmovdqu64 [r14], zmm20\nkmovw word ptr [r14], k3\nvzeroupper",
                held,
                others,
                after.as_mut_ptr(),
                code,
                area,
                calls
            );
        } else {
            context!(
                "vmovdqu ymm6, [r12]\nvmovdqu ymm7, [r12 + 32]",
                "vmovdqu [r14], ymm6\nvmovdqu [r14 + 32], ymm7\nvzeroupper",
                held,
                others,
                after.as_mut_ptr(),
                code,
                area,
                calls
            );
        }
    }
    after
}

/// Of so many contexts, how many got other values back.
fn wrong(form: Form, code: [usize; 2], count: u64) -> u64 {
    let mut area = Box::new(Area([0; 16384]));
    let mut wrong = 0;
    for seed in 0..count {
        let held: Values = std::array::from_fn(|i| mix(seed * 8 + i as u64 + 1));
        let mut after = switch(code, &held, &mut area);
        let mut expected = held;
        if form == Form::Fxsave {
            // It knows of the lower halves of xmm0-15 alone.
            let kept = |i: usize| components() != "avx512" && i % 4 < 2;
            for i in (0..8).filter(|&i| !kept(i)) {
                (expected[i], after[i]) = (0, 0);
            }
        }
        if after != expected {
            println!("context {seed}: {after:x?} instead of {expected:x?}");
            wrong += 1;
        }
    }
    wrong
}

/// Whether this task is withheld something now; looked at for a while, as long as it is not. Not by
/// XGETBV: it may have a probe, which shows everything.
pub fn is_withheld(device: &Device, limit: Duration) -> bool {
    let traps = || device.task_counters(std::process::id().cast_signed()).map(|task| task.traps);
    wait_for("withheld", limit, || {
        let before = traps().unwrap_or(0);
        spin(Duration::from_millis(20));
        // A call that returns after the end of any period of grace.
        std::thread::yield_now();
        match components() {
            "avx512" => light_512(),
            _ => light(),
        }
        traps().is_ok_and(|after| after > before)
    })
    .is_ok()
}

/// Of `count` contexts on CPU 0, in a process that was read before: how many got wrong values, and
/// whether the process was withheld anything after the code was there.
pub fn run(trap: &Trap, form: Form, place: Place, read: bool, count: u64) -> Result<(u64, bool)> {
    // SAFETY: new memory, shared with the child.
    let shared = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    ensure!(shared != libc::MAP_FAILED, "no memory");
    // SAFETY: aligned, zero, and there to the end of the process.
    let shared = unsafe { &*shared.cast::<[AtomicU64; 3]>() };
    let mut child = Child::fork(|| {
        let done = || -> Result<()> {
            set_affinity(0, &[0])?;
            if read {
                let added = Watch::new().look_at(std::process::id(), trap.device());
                println!("{added:?}");
                ensure!(
                    is_withheld(trap.device(), Duration::from_secs(20)),
                    "nothing is withheld: {added:?}"
                );
            }
            let code = form.put(place)?;
            let unread = trap.sum(|c| c.unread_returns)?;
            shared[1].store(wrong(form, code, count), Ordering::Relaxed);
            shared[2].store(
                u64::from(is_withheld(trap.device(), Duration::from_secs(1))),
                Ordering::Relaxed,
            );
            println!("{place:?}: {} unread", trap.sum(|c| c.unread_returns)? - unread);
            Ok(())
        };
        match done() {
            Ok(()) => shared[0].store(1, Ordering::Relaxed),
            Err(error) => println!("{form:?} in {place:?}: {error:#}"),
        }
    })?;
    let end = child.wait()?;
    ensure!(
        end == 0 && shared[0].load(Ordering::Relaxed) == 1,
        "{form:?} in {place:?} failed: {end}"
    );
    Ok((shared[1].load(Ordering::Relaxed), shared[2].load(Ordering::Relaxed) == 1))
}

/// Every form that this CPU has in every place: contexts with wrong values, of how many.
pub fn all(trap: &Trap, places: &[Place], count_each: u64) -> Result<(u64, u64)> {
    let (mut all_wrong, mut all) = (0, 0);
    for form in FORMS.into_iter().filter(|form| form.is_here()) {
        for &place in places {
            let (wrong, withheld) = run(trap, form, place, true, count_each).context("contexts")?;
            println!("{form:?} in {place:?}: {wrong} of {count_each} wrong, withheld: {withheld}");
            // What was read is withheld, or this shows nothing; what was not is not.
            ensure!(
                withheld == (place == Place::File),
                "{form:?} in {place:?}: withheld {withheld}"
            );
            all_wrong += wrong;
            all += count_each;
        }
    }
    Ok((all_wrong, all))
}
