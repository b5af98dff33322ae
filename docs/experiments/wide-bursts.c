// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A request handler that mixes scalar and wide code: each request compresses a
 * block (zlib) and multiplies two matrices (OpenBLAS), on one thread. What does
 * the matrix kernel's licence cost the compressor, and what does it help to run
 * the kernel elsewhere? See wide-bursts.md.
 *
 *     wide-bursts HOW SECONDS
 *
 * HOW: place     both on this thread
 *      hint      the kernel between tl_wide_begin(2) and tl_wide_end()
 *      delegate  the kernel by tl_delegate(2, ...)
 *      scalar    the compressor alone
 *      wide      the kernel alone
 *
 * Prints the median time of each part over all requests, which a request that
 * was interrupted does not move, the time that a tenth of them kept below
 * ("quiet": interference only adds), and where the kernels ran. Fails if a
 * kernel computed something else than the first one.
 */
#include <cblas.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <turbolane.h>
#include <zlib.h>

/* Of a matrix: 2 * 160^3 operations, some 0.1 ms in AVX-512. */
#define ORDER 160
/* Of a block, some 0.5 ms at zlib's level 1. */
#define BLOCK (32 * 1024)
/* Requests that warm up and do not count. */
#define WARM_UP 20
#define REQUESTS_MAX 1000000

struct kernel {
	double a[ORDER * ORDER], b[ORDER * ORDER], c[ORDER * ORDER];
};

static struct kernel kernel;
static unsigned char block[BLOCK], packed[2 * BLOCK];
static uint64_t scalar_ns[REQUESTS_MAX], wide_ns[REQUESTS_MAX],
	request_ns[REQUESTS_MAX];

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "wide-bursts: %s\n", what);
	exit(2);
}

/* Text-like data, the same in every run: words of a small vocabulary. */
static void fill(void)
{
	uint32_t state = 1;

	for (int i = 0; i < BLOCK; i++) {
		state = state * 1664525 + 1013904223;
		block[i] =
			(unsigned char)("etaoin shrdlu\n"[(state >> 24) % 14]);
	}
	for (int i = 0; i < ORDER * ORDER; i++) {
		kernel.a[i] = (i % 7) - 3;
		kernel.b[i] = (i % 5) - 2;
	}
}

static void compress_block(void)
{
	uLongf size = sizeof(packed);

	if (compress2(packed, &size, block, BLOCK, 1) != Z_OK)
		die("zlib refuses the block");
}

static void multiply(void *argument)
{
	struct kernel *k = argument;

	cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, ORDER, ORDER,
		    ORDER, 1.0, k->a, ORDER, k->b, ORDER, 0.0, k->c, ORDER);
}

/* Whether a helper ran it. */
static int multiply_hinted(const char *how)
{
	if (!strcmp(how, "hint")) {
		tl_wide_begin(2);
		multiply(&kernel);
		tl_wide_end();
		return 0;
	}
	if (!strcmp(how, "delegate"))
		return tl_delegate(2, 0, multiply, &kernel) == TL_RAN_DELEGATED;
	multiply(&kernel);
	return 0;
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void print(const char *part, uint64_t *times, int n)
{
	qsort(times, (size_t)n, sizeof(*times), ascending);
	printf("%s %.2f us\n", part, (double)times[n / 2] / 1000.0);
	printf("quiet %s %.2f us\n", part, (double)times[n / 10] / 1000.0);
}

int main(int argc, char **argv)
{
	const char *how = argc == 3 ? argv[1] : "";
	double seconds = argc == 3 ? atof(argv[2]) : 0;
	int has_scalar = strcmp(how, "wide") != 0;
	int has_wide = strcmp(how, "scalar") != 0;
	int n = 0, delegated = 0;
	double first = 0;
	uint64_t end_ns;

	if (!strstr(" place hint delegate scalar wide ", how) || seconds <= 0)
		die("usage: wide-bursts place|hint|delegate|scalar|wide "
		    "SECONDS");
	fill();
	end_ns = now_ns() + (uint64_t)(seconds * 1e9);
	for (int i = 0; now_ns() < end_ns && n < REQUESTS_MAX; i++) {
		uint64_t begun = now_ns(), between, done;
		int helped = 0;

		if (has_scalar)
			compress_block();
		between = now_ns();
		if (has_wide)
			helped = multiply_hinted(how);
		done = now_ns();
		if (i == 0)
			first = kernel.c[ORDER + 1];
		if (kernel.c[ORDER + 1] != first)
			die("a kernel computed something else");
		if (i < WARM_UP)
			continue;
		scalar_ns[n] = between - begun;
		wide_ns[n] = done - between;
		request_ns[n++] = done - begun;
		delegated += helped;
	}
	if (n < 50)
		die("fewer than 50 requests: give it more seconds");
	printf("requests %d delegated %d core %s\n", n, delegated,
	       openblas_get_corename());
	print("scalar", scalar_ns, n);
	print("wide", wide_ns, n);
	print("request", request_ns, n);
	return 0;
}
