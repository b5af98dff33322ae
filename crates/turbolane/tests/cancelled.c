// SPDX-License-Identifier: MIT OR Apache-2.0
// A thread that is to be cancelled sets its core's frequency: it is cancelled where it says so, and
// not inside of the library.
#include <pthread.h>
#include <stdio.h>
#include <turbolane.h>

static struct tl_session *session;
static int boosted = 1, restored = 1;

static void *to_be_cancelled(void *unused)
{
	pthread_cancel(pthread_self());
	boosted = tl_boost(session, 0);
	restored = tl_restore(session, 0);
	pthread_testcancel();
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	void *end;

	if (argc != 2 || tl_open(argv[1], TL_WAY_AUTO, &session))
		return 1;
	pthread_create(&thread, NULL, to_be_cancelled, NULL);
	pthread_join(thread, &end);
	printf("boost %d, restore %d, %s\n", boosted, restored,
	       end == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
	return tl_close(session) ? 1 : 0;
}
