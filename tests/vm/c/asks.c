// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A program that asks what the CPU can do, in the ways that programs do.
 *
 *   asks            by a constructor of the C library (__builtin_cpu_supports),
 *                   and by XGETBV at the start of main
 *   asks late MS    by XGETBV after MS milliseconds of CPU time
 *   asks library MS by a library that is loaded after MS milliseconds of CPU
 *                   time: what OpenSSL has found out by its constructor
 *
 * Linked twice, dynamically and statically; the static one loads no library.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static unsigned int xcr0(void)
{
	unsigned int low, high;

	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return low;
}

static void spend_cpu_time(const char *ms)
{
	clock_t end = clock() + (clock_t)(atol(ms) * (CLOCKS_PER_SEC / 1000));

	while (clock() < end)
		;
}

#ifndef STATIC
#include <dlfcn.h>

/* OPENSSL_INFO_CPU_SETTINGS of openssl/crypto.h */
#define CPU_SETTINGS 1008

static int ask_library(void)
{
	void *library = dlopen("libcrypto.so.3", RTLD_NOW);
	const char *(*info)(int);

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	*(void **)&info = dlsym(library, "OPENSSL_info");
	if (!info || !info(CPU_SETTINGS)) {
		fprintf(stderr, "OpenSSL does not tell\n");
		return 1;
	}
	puts(info(CPU_SETTINGS));
	return 0;
}
#endif

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "late")) {
		spend_cpu_time(argv[2]);
		printf("%#x\n", xcr0());
		return 0;
	}
#ifndef STATIC
	if (argc == 3 && !strcmp(argv[1], "library")) {
		spend_cpu_time(argv[2]);
		return ask_library();
	}
#endif
	printf("%#x avx %d avx512f %d\n", xcr0(),
	       !!__builtin_cpu_supports("avx"),
	       !!__builtin_cpu_supports("avx512f"));
	return 0;
}
