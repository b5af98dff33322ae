// SPDX-License-Identifier: GPL-2.0
/*
 * The trap's settings: parameters of the module, which may be changed at any time
 * (0644). Each is a word that is read once where it is used; a value that is out of
 * range is refused (ERANGE) and changes nothing.
 */
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/moduleparam.h>
#include <linux/sysfs.h>

#include "settings.h"

static const char *const mode_names[] = {"count", "grace", "steer"};
static int mode = TLT_MODE_GRACE;

static int set_mode(const char *text, const struct kernel_param *param)
{
	int found = sysfs_match_string(mode_names, text);

	if (found < 0)
		return found;
	WRITE_ONCE(mode, found);
	return 0;
}

static int get_mode(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%s\n", mode_names[READ_ONCE(mode)]);
}

static const struct kernel_param_ops mode_ops = {.set = set_mode,
						 .get = get_mode};
module_param_cb(mode, &mode_ops, NULL, 0644);
MODULE_PARM_DESC(mode, "count, grace (default) or steer");

static int set_bounded(const char *text, const struct kernel_param *param)
{
	struct tlt_bounded *b = param->arg;
	unsigned int value;
	int err = kstrtouint(text, 0, &value);

	if (err)
		return err;
	if (value < b->least || value > b->most)
		return -ERANGE;
	WRITE_ONCE(b->value, value);
	return 0;
}

static int get_bounded(char *text, const struct kernel_param *param)
{
	struct tlt_bounded *b = param->arg;

	return sysfs_emit(text, "%u\n", READ_ONCE(b->value));
}

static const struct kernel_param_ops bounded_ops = {.set = set_bounded,
						    .get = get_bounded};

#define SETTING(name, preset, min, max, text)                   \
	struct tlt_bounded tlt_##name = {preset, min, max};     \
	module_param_cb(name, &bounded_ops, &tlt_##name, 0644); \
	MODULE_PARM_DESC(name,                                  \
			 text " (" #min ".." #max ", default " #preset ")")

SETTING(wide_level, 2, 1, 3, "licence level from which an instruction is wide");
/* One trap and restart costs about 1 us: 0.1 % of a millisecond. */
SETTING(grace_ns, 1000000, 10000, 1000000000, "full XCR0 after light use");
/* About seven relax times of Skylake-SP (670 us): what the level costs anyway. */
SETTING(hold_ns, 5000000, 10000, 1000000000,
	"full XCR0 for a steered task left here");
/* ld.so of a large program needs some 10 ms. */
SETTING(exec_grace_ns, 20000000, 0, 1000000000,
	"full XCR0 after execve, in CPU time");
/* 5,000 traps and moves, at 2 us each, are 1 % of a CPU. */
SETTING(traps_per_s_max, 5000, 1, 1000000,
	"per task; then left full to the end of the second");

enum tlt_mode tlt_mode(void)
{
	return READ_ONCE(mode);
}
