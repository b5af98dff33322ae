/* SPDX-License-Identifier: GPL-2.0 */
/* The trap's settings; see settings.c. */
#ifndef TLT_SETTINGS_H
#define TLT_SETTINGS_H

#include <linux/compiler.h>

enum tlt_mode {
	TLT_MODE_COUNT,
	TLT_MODE_GRACE,
	TLT_MODE_STEER
};

/* A number in a range. */
struct tlt_bounded {
	unsigned int value, least, most;
};

extern struct tlt_bounded tlt_wide_level, tlt_grace_ns, tlt_hold_ns,
	tlt_exec_grace_ns, tlt_traps_per_s_max;

enum tlt_mode tlt_mode(void);

static __always_inline unsigned int tlt_setting(const struct tlt_bounded *b)
{
	return READ_ONCE(b->value);
}

#endif
