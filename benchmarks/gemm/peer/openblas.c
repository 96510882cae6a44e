// Times C = A * B^T in float32 with OpenBLAS on one thread and prints GFLOP/s, the best of the given number of rounds.
// Built and run by run.sh. Usage: openblas M N K ROUNDS
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

extern char *openblas_get_config(void);
extern char *openblas_get_corename(void);

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

int main(int argc, char **argv) {
	if (argc != 5) {
		fprintf(stderr, "usage: openblas M N K ROUNDS (or M = 0 for the version)\n");
		return 2;
	}
	int m = atoi(argv[1]), n = atoi(argv[2]), k = atoi(argv[3]), rounds = atoi(argv[4]);
	if (m == 0) {
		printf("%s, kernel %s\n", openblas_get_config(), openblas_get_corename());
		return 0;
	}
	float *a = malloc(sizeof(float) * m * k), *b = malloc(sizeof(float) * n * k), *c = malloc(sizeof(float) * m * n);
	if (!a || !b || !c) return 1;
	for (int i = 0; i < m * k; i++) a[i] = (float)(i % 7);
	for (int i = 0; i < n * k; i++) b[i] = (float)(i % 5);
	double flop = 2.0 * m * n * k, best = 1e30;
	int inner = (int)(2e7 / flop) + 1;
	for (int r = 0; r < rounds + 1; r++) {
		double t0 = now();
		for (int i = 0; i < inner; i++)
			cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, a, k, b, k, 0, c, n);
		double t = (now() - t0) / inner;
		if (r > 0 && t < best) best = t;
	}
	printf("%.3f\n", flop / best / 1e9);
	return 0;
}
