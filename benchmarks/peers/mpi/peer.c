/* Runs weft's benchmark cells through MPI. Standard input, read by rank 0, has a line for each cell:
 *
 *     OP BUDGET_US MIN_ITERS MAX_ITERS WARMUP N COUNT_0 ... COUNT_P-1
 *
 * N floats go in on every rank (all_gather: come out); COUNT_i are the floats of rank i of the gathering, scattering and
 * exchanging forms. Rank 0 prints, for each cell:
 *
 *     OP N ITERS MEDIAN_US MIN_US P99_US WRONG
 *
 * The clock runs from a barrier to the end of the operation on the slowest rank, one iteration at a time, as in weft's part
 * of the comparison. Inputs are small whole numbers, so that WRONG counts elements exactly. */
#include <mpi.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 64, MAX_LINE = 4096 };

struct cell {
	char op[32];
	double budget;
	long min_iters, max_iters, warmup, n;
	int count[MAX_RANKS], offset[MAX_RANKS];           /* of each rank */
	int recv_count[MAX_RANKS], recv_offset[MAX_RANKS]; /* alltoall(v): from each rank */
	long src_len, dst_len;
};

static int rank, size;
static float *src, *dst;

static void die(const char *what)
{
	fprintf(stderr, "peer: %s\n", what);
	MPI_Abort(MPI_COMM_WORLD, 2);
}

static float input(int r, long i) { return (float)((i * 7 + r * 3) % 5); }

static int is(const struct cell *c, const char *op) { return strcmp(c->op, op) == 0; }

static void run(const struct cell *c)
{
	int mine = c->count[rank], n = (int)c->n, next = (rank + 1) % size, last = (rank + size - 1) % size;
	if (is(c, "all_reduce"))
		MPI_Allreduce(src, dst, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	else if (is(c, "all_gather"))
		MPI_Allgather(src, mine, MPI_FLOAT, dst, mine, MPI_FLOAT, MPI_COMM_WORLD);
	else if (is(c, "all_gatherv"))
		MPI_Allgatherv(src, mine, MPI_FLOAT, dst, c->count, c->offset, MPI_FLOAT, MPI_COMM_WORLD);
	else if (is(c, "reduce_scatter"))
		MPI_Reduce_scatter_block(src, dst, mine, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	else if (is(c, "reduce_scatterv"))
		MPI_Reduce_scatter(src, dst, c->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	else if (is(c, "alltoall"))
		MPI_Alltoall(src, mine, MPI_FLOAT, dst, mine, MPI_FLOAT, MPI_COMM_WORLD);
	else if (is(c, "alltoallv"))
		MPI_Alltoallv(src, c->count, c->offset, MPI_FLOAT, dst, c->recv_count, c->recv_offset, MPI_FLOAT, MPI_COMM_WORLD);
	else if (is(c, "broadcast"))
		MPI_Bcast(dst, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
	else if (is(c, "reduce"))
		MPI_Reduce(src, dst, n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
	else if (is(c, "sendrecv"))
		MPI_Sendrecv(src, n, MPI_FLOAT, next, 0, dst, n, MPI_FLOAT, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	else if (is(c, "barrier"))
		MPI_Barrier(MPI_COMM_WORLD);
	else
		die("unknown operation");
}

/* layout fills in offsets and buffer lengths. */
static void layout(struct cell *c)
{
	long sum = 0;
	for (int i = 0; i < size; i++) {
		c->offset[i] = (int)sum;
		c->recv_count[i] = c->count[rank];
		c->recv_offset[i] = i * c->count[rank];
		sum += c->count[i];
	}
	c->src_len = c->dst_len = c->n;
	if (is(c, "all_gather") || is(c, "all_gatherv")) {
		c->src_len = c->count[rank];
		c->dst_len = sum;
	} else if (is(c, "reduce_scatter") || is(c, "reduce_scatterv")) {
		c->src_len = sum;
		c->dst_len = c->count[rank];
	} else if (is(c, "alltoall") || is(c, "alltoallv")) {
		c->src_len = sum;
		c->dst_len = (long)size * c->count[rank];
	}
}

static float *memory(long n)
{
	size_t bytes = ((size_t)n * sizeof(float) / 4096 + 1) * 4096;
	float *p = aligned_alloc(4096, bytes);
	if (p == NULL)
		die("out of memory");
	memset(p, 0xff, bytes);
	return p;
}

static void load(const struct cell *c)
{
	for (long i = 0; i < c->src_len; i++)
		src[i] = input(rank, i);
	for (long i = 0; i < c->dst_len; i++)
		dst[i] = is(c, "broadcast") ? input(rank, i) : NAN;
}

static float sum_of(long i)
{
	float sum = 0;
	for (int r = 0; r < size; r++)
		sum += input(r, i);
	return sum;
}

/* wanted is what element i of dst must be. */
static float wanted(const struct cell *c, long i)
{
	if (is(c, "all_gather") || is(c, "all_gatherv")) {
		int r = size - 1;
		while (r > 0 && (c->count[r] == 0 || i < c->offset[r]))
			r--;
		return input(r, i - c->offset[r]);
	}
	if (is(c, "alltoall") || is(c, "alltoallv"))
		return input((int)(i / c->count[rank]), i % c->count[rank] + c->offset[rank]);
	if (is(c, "reduce_scatter") || is(c, "reduce_scatterv"))
		return sum_of(i + c->offset[rank]);
	if (is(c, "broadcast"))
		return input(0, i);
	if (is(c, "sendrecv"))
		return input((rank + size - 1) % size, i);
	return sum_of(i);
}

static long check(const struct cell *c)
{
	long wrong = 0, all = 0;
	load(c);
	MPI_Barrier(MPI_COMM_WORLD);
	run(c);
	if (!is(c, "barrier") && !(is(c, "reduce") && rank != 0))
		for (long i = 0; i < c->dst_len; i++)
			wrong += dst[i] != wanted(c, i);
	MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	return all;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* nearest rank, as weft's benchmark takes percentiles */
static double percentile(const double *sorted, long n, double p)
{
	long i = (long)ceil(p / 100 * (double)n) - 1;
	return sorted[i < 0 ? 0 : i];
}

static void measure(struct cell *c)
{
	layout(c);
	src = memory(c->src_len);
	dst = memory(c->dst_len);
	load(c);
	run(c); /* the first call sets things up; the next ones tell how long one takes */
	double start = MPI_Wtime();
	for (long i = 0; i < c->warmup; i++)
		run(c);
	double one = (MPI_Wtime() - start) * 1e6 / (double)c->warmup;
	long iters = (long)(c->budget / (one > 1e-3 ? one : 1e-3));
	iters = iters < c->min_iters ? c->min_iters : iters > c->max_iters ? c->max_iters : iters;
	MPI_Bcast(&iters, 1, MPI_LONG, 0, MPI_COMM_WORLD);
	double *each = malloc((size_t)iters * sizeof *each), *slowest = malloc((size_t)iters * sizeof *slowest);
	if (each == NULL || slowest == NULL)
		die("out of memory");
	for (long i = 0; i < iters; i++) {
		MPI_Barrier(MPI_COMM_WORLD);
		double begin = MPI_Wtime();
		run(c);
		each[i] = (MPI_Wtime() - begin) * 1e6;
	}
	MPI_Reduce(each, slowest, (int)iters, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	long wrong = check(c);
	if (rank == 0) {
		qsort(slowest, (size_t)iters, sizeof *slowest, by_value);
		printf("%s %ld %ld %.3f %.3f %.3f %ld\n", c->op, c->n, iters, percentile(slowest, iters, 50), slowest[0],
			percentile(slowest, iters, 99), wrong);
		fflush(stdout);
	}
	free(each);
	free(slowest);
	free(src);
	free(dst);
}

static int parse(char *line, struct cell *c)
{
	memset(c, 0, sizeof *c);
	int at = 0;
	if (sscanf(line, "%31s %lf %ld %ld %ld %ld%n", c->op, &c->budget, &c->min_iters, &c->max_iters, &c->warmup, &c->n, &at) != 6)
		return 0;
	for (int i = 0, used; i < size; i++, at += used)
		if (sscanf(line + at, "%d%n", &c->count[i], &used) != 1)
			return 0;
	return c->warmup > 0 && c->min_iters > 0;
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size > MAX_RANKS)
		die("more than 64 ranks");
	if (rank == 0) {
		char version[MPI_MAX_LIBRARY_VERSION_STRING];
		int len;
		MPI_Get_library_version(version, &len);
		version[strcspn(version, "\n")] = 0;
		printf("# %s\n", version);
		fflush(stdout);
	}
	for (;;) {
		char line[MAX_LINE] = "";
		struct cell c;
		if (rank == 0 && fgets(line, sizeof line, stdin) == NULL)
			line[0] = 0;
		MPI_Bcast(line, sizeof line, MPI_CHAR, 0, MPI_COMM_WORLD);
		if (line[0] == 0)
			break;
		if (!parse(line, &c))
			die("bad line on standard input");
		measure(&c);
	}
	MPI_Finalize();
	return 0;
}
