/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the programs wide-bursts and web-bursts share: a request handler on one
 * thread. Each request compresses a block (zlib), which is scalar, then does
 * something wide, the burst. What does the burst's licence cost the compressor,
 * and what does it help to run the burst elsewhere?
 *
 *     PROGRAM HOW SECONDS
 *
 * It goes on for SECONDS, and at least for as many requests as a median needs.
 *
 * HOW: place     both on this thread
 *      hint      the burst between tl_wide_begin(2) and tl_wide_end()
 *      delegate  the burst by tl_delegate(2, 0, ...), so always handed over
 *      expect    by tl_delegate(), which is told how long a burst takes (the
 *                shortest so far) and hands over what is worth it
 *      scalar    the compressor alone
 *      wide      the burst alone
 *
 * Prints the median time of each part over all requests, which a request that
 * was interrupted does not move, the time that a tenth of them kept below
 * ("quiet": interference only adds), where the bursts ran, and some bytes of what
 * they computed. Fails if one computed something else than the first.
 */
#ifndef BURSTS_H
#define BURSTS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <turbolane.h>
#include <zlib.h>

/* Of a block, some 0.3 to 0.5 ms at zlib's level 1. */
#define BLOCK (32 * 1024)
/* Requests that warm up and do not count. */
#define WARM_UP 20
#define REQUESTS_MAX 1000000
#define REQUESTS_MIN 50
/* Bytes of a burst's result that are looked at. */
#define RESULT 16

/* The wide part of a request. */
struct burst {
	const char *program;
	/* Once, when there is a packed block. */
	void (*prepare)(void);
	/* On any thread; the argument is not used. */
	void (*run)(void *unused);
	/* RESULT bytes that it computed, the same each time. */
	const void *result;
	/* Which form of it the library has chosen. */
	const char *(*form)(void);
};

static const char *program;
static unsigned char block[BLOCK], packed[2 * BLOCK];
static uLongf packed_size;
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
	fprintf(stderr, "%s: %s\n", program, what);
	exit(2);
}

/* Text-like data, the same in every run: letters of a small alphabet. */
static void fill_block(void)
{
	uint32_t state = 1;

	for (int i = 0; i < BLOCK; i++) {
		state = state * 1664525 + 1013904223;
		block[i] =
			(unsigned char)("etaoin shrdlu\n"[(state >> 24) % 14]);
	}
}

static void compress_block(void)
{
	packed_size = sizeof(packed);
	if (compress2(packed, &packed_size, block, BLOCK, 1) != Z_OK)
		die("zlib refuses the block");
}

/* Whether a helper ran it. */
static int run_burst(const struct burst *burst, const char *how,
		     uint64_t expected_ns)
{
	if (!strcmp(how, "hint")) {
		tl_wide_begin(2);
		burst->run(NULL);
		tl_wide_end();
		return 0;
	}
	if (!strcmp(how, "delegate"))
		return tl_delegate(2, 0, burst->run, NULL) == TL_RAN_DELEGATED;
	if (!strcmp(how, "expect"))
		return tl_delegate(2, expected_ns, burst->run, NULL) ==
		       TL_RAN_DELEGATED;
	burst->run(NULL);
	return 0;
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void print_result(const unsigned char *result)
{
	printf("result ");
	for (int i = 0; i < RESULT; i++)
		printf("%02x", result[i]);
	printf("\n");
}

static void print(const char *part, uint64_t *times, int n)
{
	qsort(times, (size_t)n, sizeof(*times), ascending);
	printf("%s %.2f us\n", part, (double)times[n / 2] / 1000.0);
	printf("quiet %s %.2f us\n", part, (double)times[n / 10] / 1000.0);
}

static int is_one_of(const char *how, const char *const *all)
{
	for (; *all; all++)
		if (!strcmp(how, *all))
			return 1;
	return 0;
}

/* Handles requests until the time is up; how many count, and where bursts ran. */
static int handle(const struct burst *burst, const char *how, double seconds,
		  int *delegated)
{
	int has_scalar = strcmp(how, "wide") != 0;
	int has_wide = strcmp(how, "scalar") != 0;
	uint64_t end_ns = now_ns() + (uint64_t)(seconds * 1e9);
	/* Shorter than any that is worth a hand-over. */
	uint64_t expected_ns = 1;
	unsigned char first[RESULT];
	int n = 0;

	for (int i = 0;
	     n < REQUESTS_MIN || (now_ns() < end_ns && n < REQUESTS_MAX); i++) {
		uint64_t begun = now_ns(), between, done;
		int helped = 0;

		if (has_scalar)
			compress_block();
		between = now_ns();
		if (has_wide)
			helped = run_burst(burst, how, expected_ns);
		done = now_ns();
		if (i == 0)
			memcpy(first, burst->result, RESULT);
		if (memcmp(first, burst->result, RESULT))
			die("a burst computed something else");
		if (i < WARM_UP) {
			if (i == 0 || done - between < expected_ns)
				expected_ns = done - between;
			continue;
		}
		scalar_ns[n] = between - begun;
		wide_ns[n] = done - between;
		request_ns[n++] = done - begun;
		*delegated += helped;
	}
	return n;
}

static int bursts_main(const struct burst *burst, int argc, char **argv)
{
	static const char *const ways[] = {
		"place", "hint", "delegate", "expect", "wide", "scalar", NULL};
	const char *how = argc == 3 ? argv[1] : "";
	double seconds = argc == 3 ? atof(argv[2]) : 0;
	int delegated = 0, n;

	program = burst->program;
	if (!is_one_of(how, ways) || seconds <= 0)
		die("usage: place|hint|delegate|expect|scalar|wide SECONDS");
	fill_block();
	compress_block();
	burst->prepare();
	n = handle(burst, how, seconds, &delegated);
	printf("requests %d delegated %d packed %lu form %s\n", n, delegated,
	       packed_size, burst->form());
	print_result(burst->result);
	print("scalar", scalar_ns, n);
	print("wide", wide_ns, n);
	print("request", request_ns, n);
	return 0;
}

#endif
