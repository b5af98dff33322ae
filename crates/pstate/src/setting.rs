// SPDX-License-Identifier: MIT OR Apache-2.0
//! One setting of the machine: a sysfs file, a register, or a field of a PCI device, and how it is
//! read, written and read back. Async-signal-safe (`raw.rs`).
//!
//! Only the bits of a register that are ours are written, and compared. A boost is one system call
//! where the register's other bits are reserved; else it is two, since they are read first.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::Place;
use crate::raw::{self, Fd};
use crate::value::Value;

/// Naps of 1 ms that a value may take to read back: the kernel applies limits in a worker, which
/// takes its turn among all others of the machine.
const READ_BACK_NAPS: u32 = 200;

/// No offset.
const UNKNOWN: u64 = u64::MAX;

/// How a setting is read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A sysfs file.
    Text,
    /// A model-specific register of a CPU's device: 8 bytes at its number.
    Msr(u32),
    /// Four bytes of a PCI device's configuration space.
    Pci(u32),
}

/// A setting that may be changed.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// Path below the root, without the leading slash.
    pub path: String,
    /// How it is read and written.
    pub form: Form,
    /// Registers: the bits that are ours; the others are kept as they are at each write.
    pub mask: u64,
    /// Registers: the others are reserved, and are written as zeros.
    pub others_are_reserved: bool,
    /// A later change by another program stays.
    pub yields: bool,
}

/// A setting's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SettingId(pub(crate) u32);

/// Collects the settings before the journal is made.
#[derive(Debug, Default)]
pub(crate) struct Specs(pub(crate) Vec<Spec>);

impl Specs {
    /// Nothing will ever change.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn add(&mut self, spec: Spec) -> SettingId {
        debug_assert!(spec.path.len() < Place::MAX, "{}", spec.path);
        self.0.push(spec);
        SettingId(self.0.len() as u32 - 1)
    }

    pub fn text(&mut self, path: String, yields: bool) -> SettingId {
        let mask = u64::MAX;
        self.add(Spec { path, form: Form::Text, mask, others_are_reserved: true, yields })
    }
}

/// A setting, without allocations: where it is, and how it is read and written.
pub(crate) struct Setting {
    path: [u8; Place::MAX],
    form: Form,
    mask: u64,
    others_are_reserved: bool,
    /// Where a register lies, once that is known; [`UNKNOWN`] before.
    offset: AtomicU64,
    /// A later change by another program stays.
    pub(crate) yields: bool,
}

impl Setting {
    pub(crate) fn new(spec: &Spec) -> Self {
        let mut path = [0; Place::MAX];
        let kept = spec.path.len().min(Place::MAX - 1);
        path[..kept].copy_from_slice(&spec.path.as_bytes()[..kept]);
        let Spec { form, mask, others_are_reserved, yields, .. } = *spec;
        let offset = AtomicU64::new(UNKNOWN);
        Setting { path, form, mask, others_are_reserved, offset, yields }
    }

    /// Where it lies, for errors.
    pub(crate) fn place(&self) -> Place {
        Place::new(self.path().to_str().unwrap_or("?"))
    }

    fn path(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.path).unwrap_or_default()
    }

    /// Opens it below the root.
    pub(crate) fn open(&self, root: i32) -> Result<Fd, i32> {
        raw::open_at(root, self.path(), libc::O_RDWR)
    }

    /// Equal as far as it is ours.
    pub(crate) fn same(&self, a: Value, b: Value) -> bool {
        match self.form {
            Form::Text => a == b,
            _ => (a.register() ^ b.register()) & self.mask == 0,
        }
    }

    /// What it holds.
    pub(crate) fn read(&self, fd: i32) -> Result<Value, i32> {
        let mut bytes = [0; 64];
        match self.form {
            Form::Text => {
                let len = raw::read_at(fd, &mut bytes, 0)?;
                Ok(Value::of_text(&bytes[..len]))
            }
            Form::Msr(number) => read_number(fd, &mut bytes[..8], self.msr_offset(fd, number)),
            Form::Pci(offset) => read_number(fd, &mut bytes[..4], offset.into()),
        }
    }

    /// Changes its bits.
    pub(crate) fn write(&self, fd: i32, value: Value) -> Result<(), i32> {
        let merged = || {
            let others = if self.others_are_reserved { 0 } else { self.read(fd)?.register() };
            Ok::<_, i32>((others & !self.mask) | (value.register() & self.mask))
        };
        match self.form {
            Form::Text => {
                // A line of its own: in a plain file a longer text may have been there.
                let text = value.text();
                let mut line = [b'\n'; 32];
                line[..text.len()].copy_from_slice(text);
                raw::write_at(fd, &line[..=text.len()], 0)
            }
            Form::Msr(number) => {
                let bytes = merged()?.to_le_bytes();
                raw::write_at(fd, &bytes, self.msr_offset(fd, number))
            }
            Form::Pci(offset) => {
                let bytes = merged()?.to_le_bytes();
                raw::write_at(fd, &bytes[..4], offset.into())
            }
        }
    }

    /// Where its register lies in its device.
    fn msr_offset(&self, fd: i32, number: u32) -> u64 {
        match self.offset.load(Relaxed) {
            UNKNOWN => {
                let offset = msr_offset(fd, number);
                self.offset.store(offset, Relaxed);
                offset
            }
            offset => offset,
        }
    }

    /// Waits until the setting holds this.
    pub(crate) fn settles(&self, fd: i32, value: Value) -> bool {
        let holds = || self.read(fd).is_ok_and(|now| self.same(now, value));
        for _ in 0..READ_BACK_NAPS {
            if holds() {
                return true;
            }
            // A register holds what it holds; sysfs may get there later.
            if self.form != Form::Text {
                return false;
            }
            raw::nap();
        }
        holds()
    }

    /// The same, or for one nap if not `patient`.
    pub(crate) fn settles_within(&self, fd: i32, value: Value, patient: bool) -> bool {
        if patient {
            return self.settles(fd, value);
        }
        raw::nap();
        self.read(fd).is_ok_and(|now| self.same(now, value))
    }
}

fn read_number(fd: i32, bytes: &mut [u8], offset: u64) -> Result<Value, i32> {
    if raw::read_at(fd, bytes, offset)? != bytes.len() {
        return Err(libc::EIO);
    }
    let mut whole = [0; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    Ok(Value::of_register(u64::from_le_bytes(whole)))
}

/// Where a register lies in its device, or in a plain file that stands for one.
pub(crate) fn msr_offset(fd: i32, number: u32) -> u64 {
    if raw::is_plain(fd) { plain_offset(number) } else { number.into() }
}

/// A plain file has a place for each register of the ranges in use (0.., C000_0000h..,
/// C001_0000h.., 1FFFh each): a device has eight bytes at each number, where neighbours would
/// overlap.
pub(crate) fn plain_offset(number: u32) -> u64 {
    let range = u64::from(number >> 31) | u64::from(number >> 16 & 1) << 1;
    (u64::from(number & 0x1fff) | range << 13) * 8
}
