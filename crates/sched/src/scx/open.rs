// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is decided before the kernel checks the programs: their constants, by the topology, and
//! which of them this kernel can load.
//!
//! The checker knows constants, and leaves out code that they make impossible; in return they
//! cannot change later. A program whose attach point the kernel lacks would make the load fail.

use cpumodel::Topology;
use libbpf_rs::btf::{self, Btf};

use crate::bpf::{OpenMainSkel, types};
use crate::error::{Error, Result};
use crate::layout;

use super::probes::UPROBE_DONE;

/// What tests make the scheduler do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Report an impossible state after some ticks.
    Error,
    /// Serve no queue, so that the kernel's watchdog must step in.
    Stall,
    /// Do without uprobe sessions, as a kernel before 6.13 must.
    NoSessions,
    /// Go and come back all the time, whether there is something to win or not.
    Leaves,
}

/// Fill in what the programs know of the machine.
pub(super) fn fill_constants(open: &mut OpenMainSkel<'_>, topology: &Topology, fault: Fault) {
    let rodata = open.maps.rodata_data.as_deref_mut().expect("the skeleton maps .rodata");
    rodata.nr_cpus = layout::nr_cpus(topology) as u32;
    let places = layout::Places::of(topology);
    rodata.nr_shards = places.shards.len() as u32;
    rodata.nr_scopes = places.scopes.len() as u32;
    rodata.loader_tgid = std::process::id() as i32;
    rodata.fault = match fault {
        Fault::None | Fault::NoSessions | Fault::Leaves => 0,
        Fault::Error => 1,
        Fault::Stall => 2,
    };
    rodata.cpu_at[..places.cpus.len()].copy_from_slice(&places.cpus);
    for (shard, order) in places.order.iter().enumerate() {
        rodata.shard_order[shard][..order.len()].copy_from_slice(order);
    }
    let range = |&(first, nr): &(u16, u16)| types::tl_range { first, nr };
    for (to, shard) in rodata.shard_cpus.iter_mut().zip(&places.shards) {
        *to = range(shard);
    }
    for (to, scope) in rodata.scope_cpus.iter_mut().zip(&places.scopes) {
        *to = range(scope);
    }
    let bss = open.maps.bss_data.as_deref_mut().expect("the skeleton maps .bss");
    for (shard, &(first, nr)) in places.shards.iter().enumerate() {
        for at in usize::from(first)..usize::from(first + nr) {
            let cpu = &mut bss.cpus[usize::from(places.cpus[at])];
            cpu.shard = shard as u32;
            cpu.scope = places.scope_of[at];
            (cpu.number, cpu.core, cpu.sibling) = core_of(topology, places.cpus[at]);
            cpu.running_queue = policy::QUEUE_NONE;
        }
    }
}

/// Of a CPU: itself, the lowest CPU of its core, and the next one there, itself if it is alone.
fn core_of(topology: &Topology, cpu: u16) -> (u16, u16, u16) {
    let core = topology.cores().iter().find(|core| core.cpus.contains(cpu.into()));
    let siblings: Vec<u16> =
        core.map_or(vec![cpu], |core| core.cpus.iter().map(|cpu| cpu as u16).collect());
    let at = siblings.iter().position(|&sibling| sibling == cpu).unwrap_or(0);
    (cpu, siblings[0], siblings[(at + 1) % siblings.len()])
}

/// Leave out the programs whose attach point this kernel does not have.
pub(super) fn choose_programs(
    open: &mut OpenMainSkel<'_>,
    has_scores: bool,
    fault: Fault,
) -> Result<()> {
    let btf = Btf::from_vmlinux().map_err(|e| Error::failed("cannot read the kernel's BTF", e))?;
    let has = |name: &str| btf.type_by_name::<btf::types::Func<'_>>(name).is_some();
    let progs = &mut open.progs;
    progs.tl_uprobe_done.set_autoload(has(UPROBE_DONE[0]));
    progs.tl_uretprobe_syscall_done.set_autoload(has(UPROBE_DONE[1]));
    progs.tl_uprobe_syscall_done.set_autoload(has(UPROBE_DONE[2]));
    progs.tl_task_renamed.set_autoload(true);
    progs.tl_group_made.set_autoload(true);
    progs.tl_syscall_enter.set_autoload(true);
    progs.tl_syscall_exit.set_autoload(true);
    // Without the bell targets are seen at ticks; without the function, never.
    let hears = has("scx_bpf_cpuperf_set") && has("__x64_sys_sched_get_priority_min");
    progs.tl_target_bell.set_autoload(hears);
    progs.tl_feed_score.set_autoload(has_scores);
    progs.tl_new_program.set_autoload(has_scores);
    progs.tl_trap.set_autoload(hw::sched_ext::has_trap_module());
    let has_sessions = has_uprobe_sessions(&btf) && fault != Fault::NoSessions;
    progs.tl_mark_session.set_autoload(has_sessions);
    let rings = has("bpf_get_numa_node_id") && fault != Fault::NoSessions;
    progs.tl_look_bell.set_autoload(rings);
    progs.tl_uprobe_over.set_autoload(rings);
    progs.tl_mark_enter.set_autoload(!has_sessions);
    progs.tl_mark_return.set_autoload(!has_sessions);
    Ok(())
}

/// Whether one program can watch a function's entry and return: Linux 6.13 and later.
fn has_uprobe_sessions(btf: &Btf<'_>) -> bool {
    let kinds = btf.type_by_name::<btf::types::Enum<'_>>("bpf_attach_type");
    let name = "BPF_TRACE_UPROBE_SESSION";
    kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind.name.is_some_and(|n| n == name)))
}
