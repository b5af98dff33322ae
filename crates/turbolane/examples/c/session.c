/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A critical section whose core is boosted, and what it cost. An argument is a
 * folder that serves as the machine.
 *
 * cc session.c -lturbolane && ./a.out
 */
#include <stdio.h>
#include <turbolane.h>

static int failed(const char *what, int code)
{
	char text[256];

	tl_error(text, sizeof(text));
	fprintf(stderr, "%s: %s (%s)\n", what, tl_strerror(code), text);
	return 1;
}

static double critical_section(void)
{
	double sum = 0;

	for (int i = 1; i < 100000; i++)
		sum += 1.0 / i;
	return sum;
}

/* The clock of the core that the only registered thread runs on. */
static void show_clock(struct tl_session *session)
{
	struct tl_thread self;
	unsigned int khz;

	if (tl_thread_list(session, &self, 1) == 1 &&
	    !tl_clock(session, self.cpu, &khz))
		printf("clock: %u MHz\n", khz / 1000);
}

int main(int argc, char **argv)
{
	struct tl_session *session;
	struct tl_region_stats stats;
	char why[512];
	int region, err;

	err = tl_open(argc > 1 ? argv[1] : NULL, TL_WAY_AUTO, &session);
	if (err)
		return failed("tl_open", err);
	tl_why(session, why, sizeof(why));
	printf("way %d: %s\n", tl_way(session), why);

	err = tl_thread_register(session, "worker", 1);
	if (err < 0)
		return failed("tl_thread_register", err);
	region = tl_region(session, "critical");
	if (region < 0)
		return failed("tl_region", region);

	/* Where nothing can be set, the section runs all the same. */
	err = tl_thread_boost(session, TL_SELF);
	printf("boost: %s\n", tl_strerror(err));
	tl_region_begin(session, region);
	printf("sum: %.3f\n", critical_section());
	tl_region_end(session, region);
	show_clock(session);
	if (!err)
		err = tl_thread_restore(session, TL_SELF);

	tl_region_stats(session, region, &stats);
	printf("runs: %llu\n", stats.count);
	tl_thread_unregister(session, TL_SELF);
	err = tl_close(session);
	if (err)
		return failed("tl_close", err);
	/* A handle that was closed is refused, not followed. */
	printf("again: %s\n", tl_strerror(tl_close(session)));
	return 0;
}
