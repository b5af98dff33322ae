// SPDX-License-Identifier: MIT OR Apache-2.0
//! A virtual machine in the test machine: KVM writes XCR0 for its guests, and has a notifier of
//! its own at the return to user mode. The guest does nothing but leave to user mode, by an `out`,
//! again and again, each time with values in the caller's registers.

use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Result, ensure};

use super::vectors::{hold, image, mix};

// linux/kvm.h
const CREATE_VM: u64 = 0xae01;
const MMAP_SIZE: u64 = 0xae04;
const CREATE_VCPU: u64 = 0xae41;
const SET_MEMORY: u64 = 0x4020_ae46;
const RUN: u64 = 0xae80;
const SET_REGS: u64 = 0x4090_ae82;
const GET_SREGS: u64 = 0x8138_ae83;
const SET_SREGS: u64 = 0x4138_ae84;
const EXIT_IO: u32 = 2;

/// `out 0x10, al; jmp` to itself.
const CODE: [u8; 4] = [0xe6, 0x10, 0xeb, 0xfc];
/// Where it lies in the guest, and how much memory that has.
const CODE_AT: u64 = 0x1000;
const MEMORY_BYTES: usize = 0x4000;

fn call(fd: &OwnedFd, number: u64, argument: u64) -> Result<i32> {
    // SAFETY: each argument is a number, or the address of what that call takes.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), number, argument) };
    ensure!(result >= 0, "KVM call {number:#x}: {}", std::io::Error::last_os_error());
    Ok(result)
}

fn call_fd(fd: &OwnedFd, number: u64, argument: u64) -> Result<OwnedFd> {
    let new = call(fd, number, argument)?;
    // SAFETY: a descriptor that the call has just made.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

fn map(fd: i32, bytes: usize, flags: i32) -> Result<*mut u8> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping; it stays until the process ends.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, flags, fd, 0) };
    ensure!(memory != libc::MAP_FAILED, "no memory");
    Ok(memory.cast())
}

/// Leaves a guest this many times with values in the registers.
pub fn leave_and_enter(times: u64) -> Result<()> {
    let kvm: OwnedFd = OpenOptions::new().read(true).write(true).open("/dev/kvm")?.into();
    let machine = call_fd(&kvm, CREATE_VM, 0)?;
    let memory = map(-1, MEMORY_BYTES, libc::MAP_SHARED | libc::MAP_ANONYMOUS)?;
    // SAFETY: the code lies inside the mapping.
    unsafe { memory.add(CODE_AT as usize).copy_from(CODE.as_ptr(), CODE.len()) };
    // kvm_userspace_memory_region: slot and flags, guest address, size, our address.
    let region = [0_u64, 0, MEMORY_BYTES as u64, memory as u64];
    call(&machine, SET_MEMORY, region.as_ptr() as u64)?;
    let cpu = call_fd(&machine, CREATE_VCPU, 0)?;
    let size = call(&kvm, MMAP_SIZE, 0)?;
    let shared = map(cpu.as_raw_fd(), size as usize, libc::MAP_SHARED)?;
    let mut special = [0_u64; 39];
    call(&cpu, GET_SREGS, special.as_mut_ptr() as u64)?;
    special[0] = 0; // base of cs, then its limit (32 bits) and selector (16)
    special[1] &= 0xffff_0000_ffff_ffff;
    call(&cpu, SET_SREGS, special.as_ptr() as u64)?;
    let mut registers = [0_u64; 18];
    (registers[16], registers[17]) = (CODE_AT, 2); // rip, rflags
    call(&cpu, SET_REGS, registers.as_ptr() as u64)?;
    for round in 0..times {
        let held = image(mix(round));
        let arguments = [i64::from(cpu.as_raw_fd()), RUN as i64, 0];
        let (after, result) = hold(&held, libc::SYS_ioctl, arguments, 1, 0);
        // SAFETY: kvm_run's exit_reason, 8 bytes from its start.
        let reason = unsafe { shared.add(8).cast::<u32>().read_volatile() };
        ensure!(result == 0 && reason == EXIT_IO, "KVM_RUN: {result}, exit reason {reason}");
        ensure!(after == held, "registers changed over a virtual machine's run");
    }
    Ok(())
}
