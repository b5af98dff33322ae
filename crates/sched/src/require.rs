// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run needs from the machine, checked before anything is changed.

use crate::config::Mode;
use crate::error::{Error, Result};

/// The mode to run in, or why none is possible here.
pub fn mode(asked: Mode) -> Result<Mode> {
    let kernel = hw::kernel::read_kernel(&hw::Live);
    let rights = hw::kernel::read_rights(&hw::Live);
    let missing = missing_for_scx(&kernel, &rights);
    match (asked, missing) {
        (Mode::Affinity, _) => need_root(&rights).map(|()| Mode::Affinity),
        (_, None) => free_to_load().map(|()| Mode::Scx),
        (Mode::Auto, Some(_)) if kernel.sched_ext.is_none() => {
            need_root(&rights).map(|()| Mode::Affinity)
        }
        (_, Some(e)) => Err(e),
    }
}

fn missing_for_scx(kernel: &hw::kernel::Kernel, rights: &hw::kernel::Rights) -> Option<Error> {
    let unsupported = |text: String| Some(Error::Unsupported(text));
    if kernel.sched_ext.is_none() {
        return unsupported(format!(
            "kernel {} has no sched_ext, so no scheduler can be loaded. Boot a kernel 6.12 or later built with \
             CONFIG_SCHED_CLASS_EXT, or run with --mode affinity, which moves hinted threads only.",
            kernel.release.text
        ));
    }
    if !kernel.btf {
        return unsupported(format!(
            "kernel {} has no BTF (/sys/kernel/btf/vmlinux), by which BPF programs find its structures. Boot a \
             kernel built with CONFIG_DEBUG_INFO_BTF, or run with --mode affinity.",
            kernel.release.text
        ));
    }
    if !rights.can_load_bpf() {
        return unsupported(
            "loading a scheduler needs root (CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN). Run it with sudo; nothing \
             was changed."
                .into(),
        );
    }
    None
}

fn need_root(rights: &hw::kernel::Rights) -> Result<()> {
    if rights.root {
        return Ok(());
    }
    Err(Error::Unsupported(
        "serving hints in /run/turbolane and changing other programs' affinity needs root. Run it with sudo; \
         nothing was changed."
            .into(),
    ))
}

/// Only one sched_ext scheduler can be loaded.
fn free_to_load() -> Result<()> {
    match (hw::sched_ext::state().as_deref(), hw::sched_ext::running()) {
        (Some("disabled") | None, _) => Ok(()),
        (Some(state), name) => Err(Error::BadInput(format!(
            "another sched_ext scheduler is loaded ({}, {state}). The kernel takes one at a time: stop it first, \
             e.g. `systemctl stop scx`.",
            name.unwrap_or_else(|| "unknown".into())
        ))),
    }
}
