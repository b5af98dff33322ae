// SPDX-License-Identifier: MIT OR Apache-2.0
// Calls each function of the library, as a program or, with PLUGIN, as a library that is loaded by it.
#include "wide.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

static void *leaver(void *unused)
{
	leaves();
	return unused;
}

#ifdef __AVX__
// The thread's first call looks for a scheduler, by way of the C library; the second does not.
static void *first(void *result)
{
	__m256d a = {1, 2, 3, 4}, b = {5, 6, 7, 8}, sums[2];

	sums[0] = vectors(a, b);
	sums[1] = vectors(a, b);
	memcpy(result, sums, sizeof(sums));
	return NULL;
}
#endif

static int at_the_end;
static ucontext_t home, there;

static void fibre(void)
{
	at_the_end = plain(9);
}

// A stack whose end is the end of what can be read.
static void call_at_the_end_of_a_stack(void)
{
	char *stack = mmap(NULL, 1 << 17, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	mprotect(stack, 1 << 16, PROT_READ | PROT_WRITE);
	getcontext(&there);
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = 1 << 16;
	there.uc_link = &home;
	makecontext(&there, fibre, 0);
	swapcontext(&home, &there);
	munmap(stack, 1 << 17);
}

static int call_all(void)
{
	struct large words;
	struct pair two;
	pthread_t thread;
	void *found[64], *result;
	jmp_buf here;
	int left;

	for (int i = 0; i < 20; i++)
		words.word[i] = 100 + i;
	// The dynamic linker may look a function up at its first call.
	for (int i = 0; i < 2; i++) {
		printf("plain %d\n", plain(5));
		printf("other %d\n", other(4));
		printf("short %d\n", plain(3));
	}
	for (int i = 0; i < 2; i++) {
		printf("many %ld\n", many(1, 2, 3, 4, 5, 6, words, 7, 8));
		printf("reals %.2f\n", reals(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
		two = pair(5, 0.5);
		printf("pair %ld %.2f\n", two.whole, two.real);
		words = large(6);
		printf("large %ld %ld\n", words.word[0], words.word[19]);
		for (int i = 0; i < 20; i++)
			words.word[i] = 100 + i;
		printf("extended %.2Lf\n", extended(0.25L));
		printf("variable %d\n", variable(3, 1.0, 2.0, 4.0));
		errno = 7;
		printf("errors %d\n", errors());
		printf("after %d\n", errno);
		printf("outer %d\n", outer(other));
		left = setjmp(here);
		if (!left)
			jumps(here);
		printf("jumps %d\n", left);
		printf("afterwards %d\n", other(1));
		printf("again %d\n", plain(8));
		printf("closed %d\n", other(2));
		printf("callers %d\n", callers(found, 64) > 3);
		pthread_create(&thread, NULL, leaver, NULL);
		pthread_join(thread, &result);
		printf("leaves %ld\n", (long)result);
		call_at_the_end_of_a_stack();
		printf("fibre %d\n", at_the_end);
	}
#ifdef __AVX__
	double sum[8];

	for (int i = 0; i < 2; i++) {
		pthread_create(&thread, NULL, first, sum);
		pthread_join(thread, NULL);
		for (int j = 0; j < 8; j += 4)
			printf("%s %.2f %.2f %.2f %.2f\n",
			       j ? "second" : "vectors", sum[j], sum[j + 1],
			       sum[j + 2], sum[j + 3]);
	}
#endif
	return 0;
}

#ifdef PLUGIN
int plugin(void)
{
	return call_all();
}
#else
int main(int count, char **names)
{
	if (call_all())
		return 1;
	for (int i = 1; i < count; i++) {
		void *library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
		int (*plugin)(void) =
			library ? (int (*)(void))dlsym(library, "plugin") :
				  NULL;

		if (!plugin || plugin())
			return 1;
		dlclose(library);
	}
	return 0;
}
#endif
