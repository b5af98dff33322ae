// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program with sections of heavy 512-bit code between ordinary work that
 * calls memset and string functions all the time. glibc may do those with
 * 512-bit instructions too, light ones.
 *
 *   sections COUNT WIDE_CPU
 *
 * Each section begins on another CPU than the wide one: ordinary work is kept
 * off that by an affinity mask, since on a machine with nothing else to do
 * nobody would take the task off it.
 *
 * Prints how many sections ran on the wide CPU, from behind their first
 * multiplication to their end, and how many began on another.
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
	cpu_set_t all, others;
	unsigned int caught = 0, elsewhere = 0;
	unsigned int count = argc == 3 ? (unsigned int)atoi(argv[1]) : 0;
	int wide_cpu = argc == 3 ? atoi(argv[2]) : 0;

	if (sched_getaffinity(0, sizeof(all), &all))
		return 1;
	others = all;
	CPU_CLR(wide_cpu, &others);
	for (unsigned int i = 0; i < count; i++) {
		if (sched_setaffinity(0, sizeof(others), &others))
			return 1;
		ordinary_work(i);
		if (sched_setaffinity(0, sizeof(all), &all))
			return 1;
		elsewhere += sched_getcpu() != wide_cpu;
		caught += (unsigned int)section(wide_cpu);
	}
	printf("%u %u\n", caught, elsewhere);
	return !count;
}
