/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program that uses mutexes in all the ways that a library in glibc's place can get wrong, and knows what
 * must come out. It exits with 0 if that came out, and names what did not.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 4000
#define FOREVER_MS 600000

static pthread_mutex_t counter_lock = PTHREAD_MUTEX_INITIALIZER;
static volatile long left, right;
static atomic_int arrived;

static void demand(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "contender: %s\n", what);
		_exit(1);
	}
}

static struct timespec in_ms(clockid_t clock, long ms)
{
	struct timespec then;

	clock_gettime(clock, &then);
	then.tv_sec += ms / 1000;
	then.tv_nsec += ms % 1000 * 1000000;
	then.tv_sec += then.tv_nsec / 1000000000;
	then.tv_nsec %= 1000000000;
	return then;
}

/* By either of the functions that wait until a time. */
static int lock_for(pthread_mutex_t *lock, int by_clock, long ms)
{
	clockid_t clock = by_clock ? CLOCK_MONOTONIC : CLOCK_REALTIME;
	struct timespec then = in_ms(clock, ms);

	return by_clock ? pthread_mutex_clocklock(lock, clock, &then) :
			  pthread_mutex_timedlock(lock, &then);
}

static void *count(void *unused)
{
	(void)unused;
	arrived++;
	for (int i = 0; i < ROUNDS; i++) {
		if (i % 4)
			pthread_mutex_lock(&counter_lock);
		else
			demand(!lock_for(&counter_lock, i % 8, FOREVER_MS),
			       "a timed lock fails");
		demand(left == right, "two threads are inside");
		left++;
		for (volatile int spin = 0; spin < 30; spin++)
			;
		right++;
		pthread_mutex_unlock(&counter_lock);
	}
	return NULL;
}

static void counts(void)
{
	pthread_t threads[THREADS];

	left = right = 0;
	/* some wait, however quick they are and however long a busy machine takes to start them */
	arrived = 0;
	pthread_mutex_lock(&counter_lock);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, count, NULL);
	while (arrived < THREADS)
		usleep(1000);
	usleep(20000);
	pthread_mutex_unlock(&counter_lock);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	demand(left == (long)THREADS * ROUNDS, "sections were lost");
}

/* A ring of one place: each hand-over goes through a condition variable. */
static pthread_mutex_t ring_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER,
		      emptied = PTHREAD_COND_INITIALIZER;
static int place;

static void *consume(void *sum)
{
	for (int i = 0; i < ROUNDS / 4; i++) {
		pthread_mutex_lock(&ring_lock);
		while (!place)
			pthread_cond_wait(&filled, &ring_lock);
		*(long *)sum += place;
		place = 0;
		pthread_cond_signal(&emptied);
		pthread_mutex_unlock(&ring_lock);
	}
	return NULL;
}

static void conditions(void)
{
	pthread_t consumer;
	long sum = 0, expected = 0;
	struct timespec past = {0, 0};

	pthread_create(&consumer, NULL, consume, &sum);
	for (int i = 1; i <= ROUNDS / 4; i++) {
		pthread_mutex_lock(&ring_lock);
		while (place)
			pthread_cond_wait(&emptied, &ring_lock);
		place = i;
		expected += i;
		pthread_cond_signal(&filled);
		pthread_mutex_unlock(&ring_lock);
	}
	pthread_join(consumer, NULL);
	demand(sum == expected, "a condition variable lost something");
	pthread_mutex_lock(&ring_lock);
	demand(pthread_cond_timedwait(&filled, &ring_lock, &past) == ETIMEDOUT,
	       "no timeout");
	demand(pthread_mutex_trylock(&ring_lock) == EBUSY,
	       "not held after a wait");
	pthread_mutex_unlock(&ring_lock);
}

/* A wait that ends with its thread: the mutex is held, and released by the thread's clean-up. */
static void release(void *lock)
{
	pthread_mutex_unlock(lock);
}

static void *wait_forever(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&ring_lock);
	pthread_cleanup_push(release, &ring_lock);
	arrived = 1;
	for (;;)
		pthread_cond_wait(&filled, &ring_lock);
	pthread_cleanup_pop(1);
	return NULL;
}

static void cancels(void)
{
	pthread_t waiter;
	void *result;

	arrived = 0;
	pthread_create(&waiter, NULL, wait_forever, NULL);
	while (!arrived)
		usleep(1000);
	pthread_mutex_lock(&ring_lock);
	pthread_cancel(waiter);
	usleep(20000);
	pthread_mutex_unlock(&ring_lock);
	pthread_join(waiter, &result);
	demand(result == PTHREAD_CANCELED, "not cancelled");
	demand(!pthread_mutex_trylock(&ring_lock), "not released");
	pthread_mutex_unlock(&ring_lock);
}

/* A thread that is to be cancelled waits for a mutex, which is no cancellation point, gets it, and
 * ends after it has released it. */
static atomic_int is_cancelled, has_released;

static void *lock_cancelled(void *unused)
{
	(void)unused;
	while (!is_cancelled)
		;
	pthread_mutex_lock(&counter_lock);
	pthread_mutex_unlock(&counter_lock);
	has_released = 1;
	pthread_testcancel();
	return NULL;
}

static void cancels_who_locks(void)
{
	pthread_t waiter;
	void *result;

	pthread_mutex_lock(&counter_lock);
	pthread_create(&waiter, NULL, lock_cancelled, NULL);
	pthread_cancel(waiter);
	is_cancelled = 1;
	usleep(100000);
	pthread_mutex_unlock(&counter_lock);
	pthread_join(waiter, &result);
	demand(has_released && result == PTHREAD_CANCELED,
	       "cancelled elsewhere");
}

/* Waits that end at their time while the mutex is another's, beside one that does not and so may
 * boost the holder, and waits that get it when it is released. */
static atomic_int has_timed_out;

static void *lock_in_time(void *by_clock)
{
	struct timespec never = {0, -1};

	demand(lock_for(&counter_lock, !!by_clock, 50) == ETIMEDOUT,
	       "a timed lock does not end");
	demand(lock_for(&counter_lock, !!by_clock, -1000) == ETIMEDOUT,
	       "a time that is past is waited for");
	demand(pthread_mutex_timedlock(&counter_lock, &never) == EINVAL,
	       "a time that is none is taken");
	has_timed_out++;
	demand(!lock_for(&counter_lock, !!by_clock, FOREVER_MS),
	       "a timed lock gets nothing");
	demand(pthread_mutex_trylock(&counter_lock) == EBUSY, "not held");
	demand(!pthread_mutex_unlock(&counter_lock), "not released");
	return NULL;
}

static void *lock_once(void *unused)
{
	pthread_mutex_lock(&counter_lock);
	pthread_mutex_unlock(&counter_lock);
	return unused;
}

static void times_out(void)
{
	pthread_t threads[3];

	has_timed_out = 0;
	alarm(120);
	pthread_mutex_lock(&counter_lock);
	pthread_create(&threads[0], NULL, lock_once, NULL);
	pthread_create(&threads[1], NULL, lock_in_time, NULL);
	pthread_create(&threads[2], NULL, lock_in_time, &has_timed_out);
	while (has_timed_out < 2)
		usleep(1000);
	usleep(20000);
	pthread_mutex_unlock(&counter_lock);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	alarm(0);
	demand(!pthread_mutex_trylock(&counter_lock), "not free");
	pthread_mutex_unlock(&counter_lock);
}

static void *hold(void *lock)
{
	pthread_mutex_lock(lock);
	return NULL;
}

static void types(void)
{
	pthread_mutex_t lock;
	pthread_mutexattr_t how;
	pthread_t thread;

	pthread_mutexattr_init(&how);
	pthread_mutexattr_settype(&how, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&lock, &how);
	demand(!pthread_mutex_lock(&lock) && !pthread_mutex_lock(&lock),
	       "not recursive");
	demand(!pthread_mutex_unlock(&lock) && !pthread_mutex_unlock(&lock),
	       "not recursive");
	pthread_mutexattr_settype(&how, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&lock, &how);
	pthread_mutex_lock(&lock);
	demand(pthread_mutex_lock(&lock) == EDEADLK, "no deadlock check");
	pthread_mutexattr_settype(&how, PTHREAD_MUTEX_NORMAL);
	pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
	pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&lock, &how);
	pthread_create(&thread, NULL, hold, &lock);
	pthread_join(thread, NULL);
	demand(pthread_mutex_lock(&lock) == EOWNERDEAD, "not robust");
}

/* Rounds of threads, one of which is late now and then: none goes on before all have come, and one of
 * each round is told that it is the one. */
#define MEETINGS 100
static pthread_barrier_t barrier;
static atomic_int come[THREADS], serial;
static int members;

static void *meet(void *which)
{
	atomic_int *own = which;

	for (int round = 1; round <= MEETINGS; round++) {
		if (own == come && round % 4 == 0)
			usleep(3000);
		*own = round;
		for (int pass = 0; pass < 2; pass++) {
			int done = pthread_barrier_wait(&barrier);

			demand(!done || done == PTHREAD_BARRIER_SERIAL_THREAD,
			       "a barrier fails");
			serial += !!done;
			for (int i = 0; !pass && i < members; i++)
				demand(come[i] == round,
				       "one goes on too early");
		}
	}
	return NULL;
}

/* One that processes share is glibc's alone. */
static void meet_a_child(void)
{
	pthread_barrier_t *shared = mmap(NULL, sizeof(*shared),
					 PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t how;
	int status = -1;
	pid_t child;

	pthread_barrierattr_init(&how);
	pthread_barrierattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
	demand(!pthread_barrier_init(shared, &how, 2), "no shared barrier");
	child = fork();
	for (int i = 0; i < MEETINGS; i++)
		pthread_barrier_wait(shared);
	if (!child)
		_exit(0);
	waitpid(child, &status, 0);
	demand(WIFEXITED(status) && !WEXITSTATUS(status),
	       "a shared barrier hangs");
	pthread_barrier_destroy(shared);
}

static void barriers(void)
{
	pthread_t threads[THREADS];

	alarm(120);
	for (members = THREADS; members > 1; members--) {
		serial = 0;
		demand(!pthread_barrier_init(&barrier, NULL, members),
		       "no barrier");
		for (int i = 0; i < members; i++)
			pthread_create(&threads[i], NULL, meet, &come[i]);
		for (int i = 0; i < members; i++)
			pthread_join(threads[i], NULL);
		demand(serial == 2 * MEETINGS, "not one of each round");
		demand(!pthread_barrier_destroy(&barrier), "in use");
	}
	demand(pthread_barrier_init(&barrier, NULL, 0) == EINVAL,
	       "a barrier for nobody");
	meet_a_child();
	alarm(0);
}

/* The child of a program whose threads queue has empty queues. */
static volatile int stop;

static void *compete(void *unused)
{
	(void)unused;
	while (!stop) {
		pthread_mutex_lock(&counter_lock);
		left++;
		pthread_mutex_unlock(&counter_lock);
	}
	return NULL;
}

static void forks(void)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, compete, NULL);
	for (int i = 0; i < 8; i++) {
		int status = -1;
		pid_t child;

		/* held over the fork, so that the child owns it and the others queue */
		pthread_mutex_lock(&counter_lock);
		usleep(500);
		child = fork();
		pthread_mutex_unlock(&counter_lock);
		if (!child) {
			alarm(20);
			left = right;
			counts();
			_exit(0);
		}
		waitpid(child, &status, 0);
		demand(WIFEXITED(status) && !WEXITSTATUS(status),
		       "the child hangs or fails");
	}
	stop = 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* The end of a program whose mutexes are in use. Of this one nothing was learned before: a wait for it
 * is watched. */
static pthread_mutex_t last_lock = PTHREAD_MUTEX_INITIALIZER;

static void kills(void)
{
	pthread_t thread;

	/* held for long while others wait */
	pthread_mutex_lock(&last_lock);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread, NULL, hold, &last_lock);
	usleep(300000);
	kill(getpid(), SIGKILL);
}

/* A thread that ends with a plain mutex that another waits for: the mutex stays taken, as with glibc
 * alone, and the program ends beside the waiter. */
static pthread_mutex_t orphan = PTHREAD_MUTEX_INITIALIZER;

static void *die_holding(void *lock)
{
	pthread_mutex_lock(lock);
	arrived = 1;
	while (arrived < 2)
		usleep(1000);
	usleep(500000);
	return NULL;
}

static void *want(void *lock)
{
	arrived = 2;
	return hold(lock);
}

static void dies(void)
{
	pthread_t holder, waiter;

	arrived = 0;
	pthread_create(&holder, NULL, die_holding, &orphan);
	while (!arrived)
		usleep(1000);
	pthread_create(&waiter, NULL, want, &orphan);
	pthread_join(holder, NULL);
	demand(lock_for(&orphan, 0, 50) == ETIMEDOUT, "an orphan is free");
	demand(pthread_mutex_trylock(&orphan) == EBUSY, "an orphan is free");
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "die")) {
		dies();
		return 0;
	}
	counts();
	conditions();
	cancels();
	cancels_who_locks();
	times_out();
	types();
	barriers();
	if (argc > 1 && !strcmp(argv[1], "fork"))
		forks();
	if (argc > 1 && !strcmp(argv[1], "kill"))
		kills();
	puts("all as it should be");
	return 0;
}
