/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A fork-join program that knows nothing of boosted clocks: PageRank of a graph, iteration by
 * iteration, with a pthread barrier after each.
 *
 *   ranks THREADS SCALE ITERATIONS vertices|edges
 *
 * 2^SCALE vertices, 16 times as many edges, drawn as in the Graph500 benchmark (R-MAT with
 * 0.57, 0.19, 0.19): a few vertices have most edges. Each thread has as many vertices as the
 * others, as programs divide them that do not look, so one has most of the work; or as
 * many edges, and all have the same. Thread n runs on CPU n.
 *
 * Prints the nanoseconds of an iteration and the sum of all ranks, which is the same for any
 * number of threads. (What vertices without a way out have is lost.)
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_THREADS 64
#define EDGES_PER_VERTEX 16
#define DAMPING 0.85
/* before what is measured: threads start, and who looks learns */
#define WARM_UP 10

static int nr_threads, nr_iterations;
static uint32_t nr_vertices, nr_edges;
/* of vertex v: the edges first_in[v] .. first_in[v + 1], each from where it comes */
static uint32_t *first_in, *from, *nr_out;
/* what each vertex gives to each of its neighbours, of this iteration and the next */
static double *given[2];
static double *ranks;
static uint32_t first_of[MOST_THREADS + 1];
static pthread_barrier_t barrier;
static double begun_ns, ended_ns;

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

static uint64_t drawn = 1;

static uint32_t draw(void)
{
	drawn = drawn * 6364136223846793005u + 1442695040888963407u;
	return drawn >> 32;
}

/* One edge: at each bit one of four quarters of the matrix. */
static void draw_edge(int scale, uint32_t *source, uint32_t *target)
{
	*source = *target = 0;
	for (int bit = 0; bit < scale; bit++) {
		uint32_t chance = draw() % 100;

		*source = *source << 1 | (chance >= 76);
		*target = *target << 1 |
			  (chance >= 95 || (chance >= 57 && chance < 76));
	}
}

static void *zeroed(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (!memory) {
		fprintf(stderr, "ranks: no memory\n");
		exit(1);
	}
	return memory;
}

static void build(int scale)
{
	uint32_t *sources, *targets, *filled;

	nr_vertices = 1u << scale;
	nr_edges = EDGES_PER_VERTEX * nr_vertices;
	first_in = zeroed(nr_vertices + 1, sizeof(*first_in));
	from = zeroed(nr_edges, sizeof(*from));
	nr_out = zeroed(nr_vertices, sizeof(*nr_out));
	ranks = zeroed(nr_vertices, sizeof(*ranks));
	given[0] = zeroed(nr_vertices, sizeof(double));
	given[1] = zeroed(nr_vertices, sizeof(double));
	sources = zeroed(nr_edges, sizeof(*sources));
	targets = zeroed(nr_edges, sizeof(*targets));
	filled = zeroed(nr_vertices, sizeof(*filled));
	for (uint32_t e = 0; e < nr_edges; e++) {
		draw_edge(scale, &sources[e], &targets[e]);
		nr_out[sources[e]]++;
		first_in[targets[e] + 1]++;
	}
	for (uint32_t v = 0; v < nr_vertices; v++)
		first_in[v + 1] += first_in[v];
	for (uint32_t e = 0; e < nr_edges; e++)
		from[first_in[targets[e]] + filled[targets[e]]++] = sources[e];
	free(sources);
	free(targets);
	free(filled);
}

/* The first vertex of each thread. */
static void divide(int by_edges)
{
	for (int t = 0, v = 0; t < nr_threads; t++) {
		if (!by_edges)
			v = (uint64_t)nr_vertices * t / nr_threads;
		/* a vertex costs about as much as an edge */
		else
			while (first_in[v] + v <
			       (nr_edges + (uint64_t)nr_vertices) * t /
				       nr_threads)
				v++;
		first_of[t] = v;
	}
	first_of[nr_threads] = nr_vertices;
}

static void iterate(int thread, int iteration)
{
	const double *in = given[iteration & 1];
	double *out = given[~iteration & 1];

	for (uint32_t v = first_of[thread]; v < first_of[thread + 1]; v++) {
		double sum = 0;

		for (uint32_t e = first_in[v]; e < first_in[v + 1]; e++)
			sum += in[from[e]];
		ranks[v] = (1 - DAMPING) / nr_vertices + DAMPING * sum;
		out[v] = nr_out[v] ? ranks[v] / nr_out[v] : 0;
	}
}

static void *run(void *argument)
{
	int thread = (intptr_t)argument;
	cpu_set_t cpu;

	CPU_ZERO(&cpu);
	CPU_SET(thread, &cpu);
	if (sched_setaffinity(0, sizeof(cpu), &cpu)) {
		perror("ranks: sched_setaffinity");
		exit(1);
	}
	for (int i = 0; i < WARM_UP + nr_iterations; i++) {
		if (!thread && i == WARM_UP)
			begun_ns = now_ns();
		iterate(thread, i);
		pthread_barrier_wait(&barrier);
	}
	if (!thread)
		ended_ns = now_ns();
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[MOST_THREADS];
	double sum = 0;

	if (argc != 5) {
		fprintf(stderr, "ranks: usage: ranks THREADS SCALE ITERATIONS "
				"vertices|edges\n");
		return 2;
	}
	nr_threads = atoi(argv[1]);
	nr_iterations = atoi(argv[3]);
	if (nr_threads < 1 || nr_threads > MOST_THREADS)
		return 2;
	build(atoi(argv[2]));
	divide(!strcmp(argv[4], "edges"));
	for (uint32_t v = 0; v < nr_vertices; v++)
		given[0][v] = nr_out[v] ? 1.0 / nr_vertices / nr_out[v] : 0;
	pthread_barrier_init(&barrier, NULL, nr_threads);
	for (int t = 0; t < nr_threads; t++)
		pthread_create(&threads[t], NULL, run, (void *)(intptr_t)t);
	for (int t = 0; t < nr_threads; t++)
		pthread_join(threads[t], NULL);
	for (uint32_t v = 0; v < nr_vertices; v++)
		sum += ranks[v];
	printf("%.0f %.3f\n", (ended_ns - begun_ns) / nr_iterations, sum);
	return 0;
}
