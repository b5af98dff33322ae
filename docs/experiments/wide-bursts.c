// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Bursts of matrix multiplication (OpenBLAS) beside compression: dense 512-bit
 * FMA where the CPU has it. See bursts.h for the requests, wide-bursts.md for
 * what came out.
 */
#include <cblas.h>

#include "bursts.h"

/* Of a matrix: 2 * 160^3 operations, some 0.1 ms in AVX-512. */
#define ORDER 160

static double a[ORDER * ORDER], b[ORDER * ORDER], c[ORDER * ORDER];

static void fill_matrices(void)
{
	for (int i = 0; i < ORDER * ORDER; i++) {
		a[i] = (i % 7) - 3;
		b[i] = (i % 5) - 2;
	}
}

static void multiply(void *unused)
{
	(void)unused;
	cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, ORDER, ORDER,
		    ORDER, 1.0, a, ORDER, b, ORDER, 0.0, c, ORDER);
}

static const char *core_name(void)
{
	return openblas_get_corename();
}

int main(int argc, char **argv)
{
	const struct burst burst = {
		.program = "wide-bursts",
		.prepare = fill_matrices,
		.run = multiply,
		.result = &c[ORDER + 1],
		.form = core_name,
	};

	return bursts_main(&burst, argc, argv);
}
