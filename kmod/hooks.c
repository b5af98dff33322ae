// SPDX-License-Identifier: GPL-2.0
/*
 * The hooks by which the module learns what the kernel is about to do.
 *
 *   sched_switch        XCR0 full before registers are saved
 *   ftrace, at entry    the same for functions that execute XSAVE* or XRSTOR*,
 *                       or begin a section of kernel vector code
 *   user-return         the reduction itself, last thing before user mode
 *   fixup_vdso_exception  user #GP, which has no notifier: it is called before
 *                       SIGSEGV, after the emulation of other instructions and
 *                       independent of UMIP (Skylake-SP has none)
 *   sched_migrate_task  a period of grace ends where wide code may run anyway
 *   sched_process_exec  a new program decides what the CPU can do
 *   sched_process_exit  notes are thrown away
 *   module COMING       KVM reads XCR0 when it is loaded: show it the full one
 *
 * Which functions to hook: those that contain such an instruction in the
 * kernels looked at (7.3: seven, found by disassembly; test "xstate sites" does it
 * on the running kernel and probes each instruction). Some are inlined into
 * others in some kernels, so only four are required.
 *
 * kernel.ftrace_enabled=0 would take the hooks away: it is refused while there
 * is a PERMANENT one, which the one for user #GP is. They have no recursion
 * guard, which would drop a call: what they call is none of the hooked functions.
 *
 * The notifier of a CPU is registered from its coming online to its going
 * offline and never in between: the kernel's list has no lock, KVM changes it
 * with interrupts on, and arming happens in an interrupt. What comes and goes
 * instead is the task flag that makes the kernel look at the list, which is
 * one atomic instruction. When we have nothing more to do we clear it, unless
 * there is another notifier on the list; the last one to leave the list clears it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ftrace.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/static_call.h>
#include <linux/tracepoint.h>
#include <linux/version.h>
#include <asm/ibt.h>
#include <asm/trapnr.h>
#include <trace/events/sched.h>

#include "trap.h"

static bool test_leave_out_hooks;
module_param_unsafe(test_leave_out_hooks, bool, 0444);
MODULE_PARM_DESC(test_leave_out_hooks,
		 "negative control of the tests: break the invariant");

/*
 * The address of something in the kernel's text that is not exported to modules,
 * 0 if it has no such name. A probe that is looked for, and put nowhere, has it
 * where kallsyms is closed.
 */
unsigned long tlt_address_of(const char *name)
{
	struct kprobe probe = {
		.symbol_name = name,
		.flags = KPROBE_FLAG_DISABLED,
	};

	if (!register_kprobe(&probe))
		unregister_kprobe(&probe);
	return (unsigned long)probe.addr;
}

/*
 * Adds this function to those that the ops hook, and says where it begins. By address:
 * the kernel would compare a name with that of each of its 50,000 functions, which
 * takes a hundred million instructions.
 */
int tlt_filter_function(struct ftrace_ops *ops, const char *name,
			unsigned long *begin)
{
	unsigned long at = tlt_address_of(name);
	int err = at ? ftrace_set_filter_ip(ops, at, 0, 0) : -ENOENT;

	if (!err && begin)
		*begin = at;
	return err;
}

/* ---- FPU code of the kernel ---- */

/* In entry.S. */
void tlt_fpu_code_begins(void);

/* Called by it, and only there. XCR0 is reduced. */
asmlinkage void notrace tlt_make_full_for_fpu_code(void);
asmlinkage void notrace tlt_make_full_for_fpu_code(void)
{
	tlt_make_full(TLT_FULL_FPU);
}

static struct ftrace_ops fpu_ops;

static const struct {
	const char *function;
	bool required;
} fpu_code[] = {
	{"save_fpregs_to_fpstate", true},
	{"restore_fpregs_from_fpstate", true},
	{"kernel_fpu_begin_mask", true},
	{"copy_fpstate_to_sigframe", true},
	{"__fpu_restore_sig", false},
	{"fpu__restore_sig", false},
	{"fpu__clear_user_states", false},
	{"fpu__drop", false},
	{"fpu_flush_thread", false},
	{"fpu_reset_from_exception_fixup", false},
	{"xsaves", false},
	{"xrstors", false},
};

/* Of fpu_code, in its order: where the function is hooked, 0 if it is not. */
static unsigned long hooked[ARRAY_SIZE(fpu_code)];

/*
 * Whether the function that begins there is hooked; `function` may go on after
 * `length`, with the suffix of a part that the compiler has split off
 * (fpu_flush_thread.cold), which runs after the entry of the function itself.
 */
bool tlt_is_hooked(unsigned long begin, const char *function, size_t length)
{
	for (int i = 0; i < ARRAY_SIZE(fpu_code); i++) {
		const char *name = fpu_code[i].function;

		if (!hooked[i] || strlen(name) != length ||
		    strncmp(name, function, length))
			continue;
		/* the address that we got may be after an ENDBR */
		if (hooked[i] - begin <= ENDBR_INSN_SIZE ||
		    function[length] == '.')
			return true;
	}
	return false;
}

static int hook_fpu_code(void)
{
	int err;

	for (int i = 0; i < ARRAY_SIZE(fpu_code); i++) {
		err = tlt_filter_function(&fpu_ops, fpu_code[i].function,
					  &hooked[i]);
		if (err && fpu_code[i].required) {
			pr_err("this kernel has no traceable %s; the module "
			       "cannot follow its FPU code: %d\n",
			       fpu_code[i].function, err);
			goto free;
		}
	}
	if (test_leave_out_hooks)
		return 0;
	err = register_ftrace_direct(&fpu_ops,
				     (unsigned long)tlt_fpu_code_begins);
	if (!err)
		return 0;
	pr_err("cannot hook the FPU code by ftrace: %d%s\n", err,
	       err == -EBUSY ? "; a BPF program or a live patch has it" : "");
free:
	ftrace_free_filter(&fpu_ops);
	return err;
}

static void unhook_fpu_code(void)
{
	if (!test_leave_out_hooks)
		unregister_ftrace_direct(
			&fpu_ops, (unsigned long)tlt_fpu_code_begins, false);
	ftrace_free_filter(&fpu_ops);
}

/* ---- user #GP ---- */

/* Replaces fixup_vdso_exception(): "handled, return to user mode". */
static noinline bool handled(void)
{
	return true;
}

static void notrace on_fixup(unsigned long ip, unsigned long parent_ip,
			     struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	struct pt_regs *regs = (void *)ftrace_regs_get_argument(fregs, 0);

	if (ftrace_regs_get_argument(fregs, 1) == X86_TRAP_GP &&
	    tlt_claims_gp(regs))
		ftrace_regs_set_instruction_pointer(fregs,
						    (unsigned long)handled);
}

static struct ftrace_ops gp_ops = {
	.func = on_fixup,
	.flags = FTRACE_OPS_FL_PERMANENT | FTRACE_OPS_FL_IPMODIFY,
};

static int hook_gp(void)
{
	static const char name[] = "fixup_vdso_exception";
	int err = tlt_filter_function(&gp_ops, name, NULL);

	if (!err)
		err = register_ftrace_function(&gp_ops);
	if (!err)
		return 0;
	pr_err("cannot hook %s: %d%s\n", name, err,
	       err == -EBUSY ? "; a live patch has it" : "");
	ftrace_free_filter(&gp_ops);
	return err;
}

static void unhook_gp(void)
{
	unregister_ftrace_function(&gp_ops);
	ftrace_free_filter(&gp_ops);
}

/* ---- tracepoints ---- */

static void on_switch(void *unused, bool preempt, struct task_struct *prev,
		      struct task_struct *next, unsigned int prev_state)
{
	tlt_ran_full();
	tlt_full(TLT_FULL_SWITCH);
}

static void on_migrate(void *unused, struct task_struct *p, int to_cpu)
{
	tlt_migrating(p, to_cpu);
}

/*
 * Exactly as the trace points have them, for a kernel that checks the type of
 * what it calls (kCFI); the compiler compares them below.
 */
static void on_exec(void *unused, struct task_struct *p, pid_t old_pid,
		    struct linux_binprm *binary)
{
	tlt_executed();
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
static void on_exit(void *unused, struct task_struct *p, bool group_dead)
#else
static void on_exit(void *unused, struct task_struct *p)
#endif
{
	tlt_notes_forget(p);
}

static __always_inline void check_types(void)
{
	check_trace_callback_type_sched_switch(on_switch);
	check_trace_callback_type_sched_migrate_task(on_migrate);
	check_trace_callback_type_sched_process_exec(on_exec);
	check_trace_callback_type_sched_process_exit(on_exit);
}

static struct {
	const char *name;
	void *probe;
	struct tracepoint *tracepoint;
	bool registered;
} probes[] = {
	{"sched_switch", on_switch},
	{"sched_migrate_task", on_migrate},
	{"sched_process_exec", on_exec},
	{"sched_process_exit", on_exit},
};

static void match(struct tracepoint *tracepoint, void *unused)
{
	for (int i = 0; i < ARRAY_SIZE(probes); i++)
		if (!strcmp(tracepoint->name, probes[i].name))
			probes[i].tracepoint = tracepoint;
}

static void unhook_tracepoints(void)
{
	for (int i = 0; i < ARRAY_SIZE(probes); i++) {
		if (probes[i].registered)
			tracepoint_probe_unregister(probes[i].tracepoint,
						    probes[i].probe, NULL);
		probes[i].registered = false;
	}
	tracepoint_synchronize_unregister();
}

static int hook_tracepoints(void)
{
	check_types();
	for_each_kernel_tracepoint(match, NULL);
	for (int i = 0; i < ARRAY_SIZE(probes); i++) {
		int err = probes[i].tracepoint ?
				  tracepoint_probe_register(
					  probes[i].tracepoint, probes[i].probe,
					  NULL) :
				  -ENOENT;

		if (err) {
			pr_err("cannot follow the trace point %s: %d\n",
			       probes[i].name, err);
			unhook_tracepoints();
			return err;
		}
		probes[i].registered = true;
	}
	return 0;
}

/* ---- KVM being loaded ---- */

static int on_module(struct notifier_block *nb, unsigned long event, void *data)
{
	if (event != MODULE_STATE_COMING)
		return NOTIFY_DONE;
	tlt_full(TLT_FULL_FPU);
	if (tlt_xstate_in_module(data)) {
		pr_crit("withholding nothing from now on\n");
		tlt_distrust();
		tlt_arm_cpus(cpu_none_mask);
	}
	return NOTIFY_DONE;
}

static struct notifier_block module_block = {.notifier_call = on_module};

/* ---- the return to user mode ---- */

static void nothing(void)
{
}

DEFINE_STATIC_CALL(switch_fpu_return_call, nothing);

/*
 * Has the kernel load the user's registers now instead of after us. It sees
 * then that they are loaded, and does nothing.
 */
void tlt_load_user_registers(void)
{
	if (test_thread_flag(TIF_NEED_FPU_LOAD))
		static_call(switch_fpu_return_call)();
}

/* Whether our notifier is the only one on this CPU's list. */
static bool alone(const struct tlt_cpu *c)
{
	return !c->notifier.link.next &&
	       c->notifier.link.pprev == c->list_first;
}

static void on_user_return(struct user_return_notifier *notifier)
{
	struct tlt_cpu *c = container_of(notifier, struct tlt_cpu, notifier);

	if (!c->reduced && c->armed) {
		if (tlt_runs_full(c) || tlt_has_unread_code(c)) {
			tlt_runs_on_full(c);
			return; /* and look again next time */
		}
		tlt_ran_full();
		if (tlt_reduce(c) == TLT_LEFT_LIVE) {
			tlt_left_live(c);
			tlt_runs_on_full(c);
			return;
		}
	}
	if (alone(c))
		clear_thread_flag(TIF_USER_RETURN_NOTIFY);
}

/* Process context on this CPU, interrupts off. */
void tlt_notify_register(struct tlt_cpu *c)
{
	c->notifier.on_user_return = on_user_return;
	user_return_notifier_register(&c->notifier);
	/* It was put in front, so this is the list's head. */
	c->list_first = c->notifier.link.pprev;
	c->notified = true;
}

void tlt_notify_unregister(struct tlt_cpu *c)
{
	if (!c->notified)
		return;
	user_return_notifier_unregister(&c->notifier);
	c->notified = false;
}

/* ---- all together ---- */

int tlt_hooks_init(void)
{
	unsigned long address = tlt_address_of("switch_fpu_return");
	int err;

	if (!address) {
		pr_err("cannot find switch_fpu_return() in this kernel\n");
		return -ENOENT;
	}
	static_call_update(switch_fpu_return_call, (void (*)(void))address);
	err = hook_fpu_code();
	if (err)
		goto none;
	err = hook_gp();
	if (err)
		goto fpu_code;
	err = hook_tracepoints();
	if (err)
		goto gp;
	err = test_leave_out_hooks ? 0 : tlt_xstate_check();
	if (err)
		goto tracepoints;
	register_module_notifier(&module_block);
	return 0;
tracepoints:
	unhook_tracepoints();
gp:
	unhook_gp();
fpu_code:
	unhook_fpu_code();
none:
	return err;
}

/* No CPU is armed any more. */
void tlt_hooks_exit(void)
{
	unregister_module_notifier(&module_block);
	unhook_tracepoints();
	unhook_gp();
	unhook_fpu_code();
}
