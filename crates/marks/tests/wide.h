// SPDX-License-Identifier: MIT OR Apache-2.0
// A library with functions of many types. Each adds OPEN to its result if a wide section is open.
#include <setjmp.h>

#define OPEN 1000000

struct pair {
	long whole;
	double real;
};

struct large {
	long word[20];
};

int plain(int n);
int other(int n);
long many(long a, long b, long c, long d, long e, long f, struct large large,
	  long g, long h);
double reals(double a, double b, double c, double d, double e, double f,
	     double g, double h, double i, double j);
struct pair pair(long whole, double real);
struct large large(long first);
long double extended(long double x);
int variable(int count, ...);
int errors(void);
int outer(int (*inner)(int));
void jumps(jmp_buf to);
int callers(void **found, int count);
void leaves(void);
#ifdef __AVX__
#include <immintrin.h>
__m256d vectors(__m256d a, __m256d b);
#endif
