// SPDX-License-Identifier: MIT OR Apache-2.0
#define _GNU_SOURCE
#include "wide.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdarg.h>

static int open_section(void)
{
	int (*end)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "tl_wide_end");
	int (*begin)(unsigned int) =
		(int (*)(unsigned int))dlsym(RTLD_DEFAULT, "tl_wide_begin");

	// Only an open section can be ended; it is opened again.
	if (!end || !begin || end())
		return 0;
	begin(2);
	return OPEN;
}

int plain(int n)
{
	return n + open_section();
}

int other(int n)
{
	return n + open_section();
}

long many(long a, long b, long c, long d, long e, long f, struct large large,
	  long g, long h)
{
	long sum = a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;

	for (int i = 0; i < 20; i++)
		sum += (i + 9) * large.word[i];
	return sum + open_section();
}

double reals(double a, double b, double c, double d, double e, double f,
	     double g, double h, double i, double j)
{
	return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h +
	       9 * i + 10 * j + open_section();
}

struct pair pair(long whole, double real)
{
	return (struct pair){whole + open_section(), real};
}

struct large large(long first)
{
	struct large made = {{first + open_section()}};

	made.word[19] = first;
	return made;
}

long double extended(long double x)
{
	return x + open_section();
}

int variable(int count, ...)
{
	va_list list;
	double sum = 0;

	va_start(list, count);
	for (int i = 0; i < count; i++)
		sum += va_arg(list, double);
	va_end(list);
	return (int)sum + open_section();
}

int errors(void)
{
	int was = errno;

	errno = was + 1;
	return was;
}

int outer(int (*inner)(int))
{
	return inner(3) + open_section();
}

void jumps(jmp_buf to)
{
	longjmp(to, 1 + open_section());
}

int callers(void **found, int count)
{
	return backtrace(found, count);
}

void leaves(void)
{
	pthread_exit((void *)(long)open_section());
}

#ifdef __AVX__
__m256d vectors(__m256d a, __m256d b)
{
	return a + 2 * b + (double)open_section();
}
#endif
