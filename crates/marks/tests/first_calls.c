// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that call functions for the first time, all at once. With -DLIBRARY: the functions.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	THREADS = 4,
	CALLS = 20,
	SHIFT = 1000
};

#define FUNCTIONS(f)                                                        \
	f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12) \
		f(13) f(14) f(15) f(16) f(17) f(18) f(19) f(20) f(21) f(22) \
			f(23) f(24) f(25) f(26) f(27) f(28) f(29)

#ifdef LIBRARY

#define DEFINE(n)                         \
	long first##n(long a)             \
	{                                 \
		return a * (SHIFT + (n)); \
	}
FUNCTIONS(DEFINE)

#else

#define DECLARE(n) long first##n(long a);
FUNCTIONS(DECLARE)

static pthread_barrier_t barrier;

#define CALL(n)                                       \
	pthread_barrier_wait(&barrier);               \
	for (long i = 0; i < CALLS; i++) {            \
		if (first##n(i) != i * (SHIFT + (n))) \
			exit(1);                      \
	}

static void *calls(void *unused)
{
	FUNCTIONS(CALL)
	return unused;
}

int main(void)
{
	pthread_t threads[THREADS];

	pthread_barrier_init(&barrier, NULL, THREADS);
	for (int i = 0; i < THREADS; i++) {
		if (pthread_create(&threads[i], NULL, calls, NULL))
			return 1;
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	puts("all");
	return 0;
}

#endif
