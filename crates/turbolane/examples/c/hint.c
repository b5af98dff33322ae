/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A program with wide and scalar phases that says which is which. README.md
 * beside this file says how to compile it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <turbolane.h>

/* Stands for heavy 512-bit code. */
static float multiply(const float *a, const float *b, int n)
{
	float sum = 0;

	for (int i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

int main(void)
{
	static const char *const names[] = {"none", "scx", "affinity"};
	static float a[4096], b[4096];
	float sum = 0;
	int err;

	for (int i = 0; i < 4096; i++) {
		a[i] = 1;
		b[i] = 2;
	}
	printf("scheduler: %s\n", names[tl_wide_status()]);

	for (int i = 0; i < 1000; i++) {
		err = tl_wide_begin(2); /* 2: heavy 512-bit code */
		if (err) {
			fprintf(stderr, "tl_wide_begin: %s\n", strerror(-err));
			return 1;
		}
		sum += multiply(a, b, 4096);
		tl_wide_end();
	}
	printf("sum: %g\n", sum);

	/* An end without a begin is refused, and errno is left alone. */
	errno = 0;
	return tl_wide_end() == -EINVAL && errno == 0 ? 0 : 1;
}
