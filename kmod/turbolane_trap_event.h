/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The event for the scheduler: the current task needs a CPU on which wide code
 * may run. bpf/trap_event.h is the scheduler's side of it.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM turbolane

#if !defined(TURBOLANE_TRAP_EVENT_H) || defined(TRACE_HEADER_MULTI_READ)
#define TURBOLANE_TRAP_EVENT_H

#include <linux/sched.h>
#include <linux/tracepoint.h>

TRACE_EVENT(turbolane_wide,

	    TP_PROTO(struct task_struct *task, u32 level, unsigned long ip),

	    TP_ARGS(task, level, ip),

	    TP_STRUCT__entry(__field(pid_t, pid) __field(u32, level)
				     __field(unsigned long, ip)),

	    TP_fast_assign(__entry->pid = task->pid; __entry->level = level;
			   __entry->ip = ip;),

	    TP_printk("pid=%d level=%u ip=%lx", __entry->pid, __entry->level,
		      __entry->ip));

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE turbolane_trap_event
#include <trace/define_trace.h>
