// SPDX-License-Identifier: MIT OR Apache-2.0
// A thread that is to be cancelled gives its first hint: it is cancelled where it says so, and not
// while the library looks for a scheduler.
#include <pthread.h>
#include <stdio.h>
#include <turbolane.h>

static int begin = 1, end = 1;

static void *to_be_cancelled(void *unused)
{
	pthread_cancel(pthread_self());
	begin = tl_wide_begin(2);
	end = tl_wide_end();
	pthread_testcancel();
	return unused;
}

int main(void)
{
	pthread_t thread;
	void *result;

	pthread_create(&thread, NULL, to_be_cancelled, NULL);
	pthread_join(thread, &result);
	printf("begin %d, end %d, %s\n", begin, end,
	       result == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
	return 0;
}
