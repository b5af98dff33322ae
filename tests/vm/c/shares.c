/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program that knows how long it was in each of its functions: three with wide code, one
 * without, by turns of different lengths.
 *
 *   shares CPU
 *
 * Runs on that CPU until it gets SIGTERM; then it prints a line for each function, with its name,
 * the nanoseconds in it and how often it was called.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile sig_atomic_t is_over;
static volatile double sink;

static void end(int signal)
{
	(void)signal;
	is_over = 1;
}

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

__attribute__((target("avx2,fma"), noinline)) void multiply_256(long n)
{
	__m256d x = _mm256_set1_pd(1.0), y = _mm256_set1_pd(1e-9);

	for (long i = 0; i < n; i++) {
		x = _mm256_fmadd_pd(x, y, y);
		__asm__ volatile("" : "+x"(x));
	}
	sink = _mm256_cvtsd_f64(x);
	_mm256_zeroupper();
}

__attribute__((target("avx512f"), noinline)) void multiply_512(long n)
{
	__m512d x = _mm512_set1_pd(1.0), y = _mm512_set1_pd(1e-9);

	for (long i = 0; i < n; i++) {
		x = _mm512_fmadd_pd(x, y, y);
		__asm__ volatile("" : "+v"(x));
	}
	sink = _mm512_cvtsd_f64(x);
	_mm256_zeroupper();
}

__attribute__((target("avx512f"), noinline)) void add_512(long n)
{
	__m512i x = _mm512_set1_epi64(1), y = _mm512_set1_epi64(3);

	for (long i = 0; i < n; i++) {
		x = _mm512_add_epi64(x, y);
		__asm__ volatile("" : "+v"(x));
	}
	sink = _mm512_reduce_add_epi64(x);
	_mm256_zeroupper();
}

__attribute__((noinline)) void plain(long n)
{
	for (long i = 0; i < n; i++)
		__asm__ volatile("");
	sink = n;
}

static struct part {
	const char *name;
	void (*run)(long n);
	long loops;
	double ns;
	long calls;
} parts[] = {
	{"multiply_256", multiply_256, 2000000, 0, 0},
	{"plain", plain, 6000000, 0, 0},
	{"multiply_512", multiply_512, 3000000, 0, 0},
	{"plain", plain, 6000000, 0, 0},
	{"add_512", add_512, 1000000, 0, 0},
	{"plain", plain, 6000000, 0, 0},
};
#define NR_PARTS (sizeof(parts) / sizeof(parts[0]))

int main(int argc, char **argv)
{
	cpu_set_t cpu;

	if (argc != 2) {
		fprintf(stderr, "shares: usage: shares CPU\n");
		return 2;
	}
	CPU_ZERO(&cpu);
	CPU_SET(atoi(argv[1]), &cpu);
	if (sched_setaffinity(0, sizeof(cpu), &cpu)) {
		perror("shares: sched_setaffinity");
		return 1;
	}
	signal(SIGTERM, end);
	for (unsigned int part = 0; !is_over; part = (part + 1) % NR_PARTS) {
		double begun_ns = now_ns();

		parts[part].run(parts[part].loops);
		parts[part].ns += now_ns() - begun_ns;
		parts[part].calls++;
	}
	for (unsigned int part = 0; part < NR_PARTS; part++)
		printf("%s %.0f %ld\n", parts[part].name, parts[part].ns,
		       parts[part].calls);
	return 0;
}
