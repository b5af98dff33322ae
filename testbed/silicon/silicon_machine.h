/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The machine that the files of this folder share: made by silicon_loop, NULL
 * before.
 */
#ifndef SILICON_MACHINE_H
#define SILICON_MACHINE_H

#include "silicon.h"

extern struct silicon_machine *silicon;

/* Makes the table by which silicon_classify goes. */
void silicon_prepare_classes(void);

#endif
