// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program with sections of heavy 512-bit code between ordinary work that
 * calls memset and string functions all the time. glibc may do those with
 * 512-bit instructions too, light ones.
 *
 *   sections COUNT WIDE_CPU
 *
 * Prints how many sections ran on the wide CPU, from behind their first
 * multiplication to their end; how many of those began on another; how many
 * sections there were; and how many began on another.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ordinary work between two sections, in calls: about 1,000,000 instructions,
 * 10 ms in Bochs. */
#define CALLS 2500
/* Multiplications in a section: about 200,000 instructions, 2 ms. */
#define MULTIPLICATIONS 100000

static char text[2][4096];
static volatile size_t sink;

static void ordinary_work(unsigned int seed)
{
	for (unsigned int i = 0; i < CALLS; i++) {
		size_t n = 64 + (seed * 7919 + i * 104729) % 2000;

		memset(text[0], 'a' + (int)(i % 8), n);
		text[0][n] = 0;
		sink += strlen(text[0]) +
			(size_t)(strchr(text[0], 'z') != NULL);
		memcpy(text[1], text[0], n + 1);
		sink += (size_t)strcmp(text[0], text[1]);
	}
}

__attribute__((target("avx512f"), noinline)) static int section(int wide_cpu)
{
	__m512d x = _mm512_set1_pd(1.0), y = _mm512_set1_pd(1.0 + 1e-9);
	int begin, end;

	x = _mm512_mul_pd(x, y);
	__asm__ volatile("" : "+v"(x));
	begin = sched_getcpu();
	for (int i = 0; i < MULTIPLICATIONS; i++) {
		x = _mm512_mul_pd(x, y);
		__asm__ volatile("" : "+v"(x));
	}
	end = sched_getcpu();
	_mm256_zeroupper();
	return begin == wide_cpu && end == wide_cpu;
}

int main(int argc, char **argv)
{
	unsigned int caught = 0, fetched = 0, elsewhere = 0;
	unsigned int count = argc == 3 ? (unsigned int)atoi(argv[1]) : 0;
	int wide_cpu = argc == 3 ? atoi(argv[2]) : -1;

	for (unsigned int i = 0; i < count; i++) {
		unsigned int begins_elsewhere, on_wide;

		ordinary_work(i);
		begins_elsewhere = sched_getcpu() != wide_cpu;
		on_wide = (unsigned int)section(wide_cpu);
		caught += on_wide;
		fetched += on_wide & begins_elsewhere;
		elsewhere += begins_elsewhere;
	}
	printf("%u %u %u %u\n", caught, fetched, count, elsewhere);
	return !count;
}
