/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The event by which the trap module (kmod/) reports to the scheduler that a task
 * has executed a wide instruction on a CPU that withholds it. A trace event with
 * BTF; its prototype in the module is
 *
 *   TRACE_EVENT(turbolane_wide,
 *           TP_PROTO(struct task_struct *task, u32 level, unsigned long ip),
 *           ...
 *
 * task   the task that trapped; always current
 * level  licence level of the instruction, 1..TL_LEVEL_MAX
 * ip     its address in user space
 *
 * It fires in the trap's context, interrupts off, before the return to user
 * space. A listener that wants the task to leave its CPU kicks that CPU: the
 * module lets the interrupt in, and the return from the trap goes through the
 * scheduler. It may fire again for the same instruction, and at the return from
 * a system call or interrupt: for a task in the middle of wide work, whose period
 * of grace is over. A module that changes the arguments changes the event's name.
 */
#ifndef TL_TRAP_EVENT_H
#define TL_TRAP_EVENT_H

#define TL_TRAP_EVENT "turbolane_wide"
#define TL_TRAP_MODULE "turbolane_trap"

#endif
