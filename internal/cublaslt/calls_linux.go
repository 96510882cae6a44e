//go:build linux && cgo

package cublaslt

/*
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct { uint64_t data[8]; } algo;
typedef struct { algo algo; size_t workspace; int32_t state; float waves; int32_t reserved[4]; } heuristic;
_Static_assert(sizeof(heuristic) == 96, "layout");

// One row a function: result, name, parameters, optional.
#define ROWS(X) \
	X(size_t, cublasLtGetVersion, (void), 0) \
	X(const char *, cublasLtGetStatusString, (int), 1) \
	X(int, cublasLtCreate, (uintptr_t *), 0) \
	X(int, cublasLtDestroy, (uintptr_t), 0) \
	X(int, cublasLtMatmulDescCreate, (uintptr_t *, int, int), 0) \
	X(int, cublasLtMatmulDescDestroy, (uintptr_t), 0) \
	X(int, cublasLtMatmulDescSetAttribute, (uintptr_t, int, const void *, size_t), 0) \
	X(int, cublasLtMatrixLayoutCreate, (uintptr_t *, int, uint64_t, uint64_t, int64_t), 0) \
	X(int, cublasLtMatrixLayoutDestroy, (uintptr_t), 0) \
	X(int, cublasLtMatrixLayoutSetAttribute, (uintptr_t, int, const void *, size_t), 0) \
	X(int, cublasLtMatmulPreferenceCreate, (uintptr_t *), 0) \
	X(int, cublasLtMatmulPreferenceDestroy, (uintptr_t), 0) \
	X(int, cublasLtMatmulPreferenceSetAttribute, (uintptr_t, int, const void *, size_t), 0) \
	X(int, cublasLtMatmulAlgoGetHeuristic, (uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, int, heuristic *, int *), 0) \
	X(int, cublasLtMatmulAlgoCheck, (uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, const algo *, heuristic *), 0) \
	X(int, cublasLtMatmul, (uintptr_t, uintptr_t, const float *, uintptr_t, uintptr_t, uintptr_t, uintptr_t, const float *, \
		uintptr_t, uintptr_t, uintptr_t, uintptr_t, const algo *, uintptr_t, size_t, uintptr_t), 0)

#define POINTER(result, name, params, optional) static result (*p_##name) params;
#define LINE(result, name, params, optional) {#name, optional, (void **)&p_##name},
ROWS(POINTER)
static const struct { const char *name; int optional; void **pointer; } rows[] = {ROWS(LINE)};
static int (*set_current)(uintptr_t);

static int weft_num_rows(void) { return sizeof rows / sizeof rows[0]; }
static const char *weft_row(int i, int *optional) { *optional = rows[i].optional; return rows[i].name; }
static void weft_bind_row(int i, uintptr_t address) { *rows[i].pointer = (void *)address; }
static void weft_bind_context(uintptr_t address) { *(void **)&set_current = (void *)address; }
static size_t weft_version(void) { return p_cublasLtGetVersion(); }
static const char *weft_status(int status) { return p_cublasLtGetStatusString ? p_cublasLtGetStatusString(status) : ""; }

enum { not_initialized = 1, alloc_failed = 3, not_supported = 15 };

static int32_t weft_create(uintptr_t ctx, uintptr_t *out) { return set_current(ctx) ? not_initialized : p_cublasLtCreate(out); }
static int32_t weft_destroy(uintptr_t ctx, uintptr_t h) { return set_current(ctx) ? not_initialized : p_cublasLtDestroy(h); }

typedef struct {
	int64_t m, n, k, lda, ldb, ldd, stride_a, stride_b, stride_d;
	uint64_t workspace;
	int32_t in, out, batch, trans_b, alignment;
} shape;

// plan is all that one product needs. The library's matrices are column-major, so that ours are their transposes: it
// computes D' [N, M] = B' [N, K] · A' [K, M], and M is the columns of a and d.
typedef struct {
	uintptr_t desc, a, b, d;
	algo algo;
	int64_t m;
} plan;

static void weft_plan_destroy(plan *p) {
	if (p->desc) p_cublasLtMatmulDescDestroy(p->desc);
	if (p->a) p_cublasLtMatrixLayoutDestroy(p->a);
	if (p->b) p_cublasLtMatrixLayoutDestroy(p->b);
	if (p->d) p_cublasLtMatrixLayoutDestroy(p->d);
	free(p);
}

static int layout(uintptr_t *out, int type, int64_t rows, int64_t cols, int64_t ld, int32_t batch, int64_t stride) {
	int r = p_cublasLtMatrixLayoutCreate(out, type, rows, cols, ld);
	if (r == 0 && batch > 1)
		r = p_cublasLtMatrixLayoutSetAttribute(*out, 5, &batch, sizeof batch);
	if (r == 0 && batch > 1)
		r = p_cublasLtMatrixLayoutSetAttribute(*out, 6, &stride, sizeof stride);
	return r;
}

static int fill(plan *p, uintptr_t h, const shape *s, uintptr_t pref) {
	const int fp32 = 68, transpose = 1, max_workspace = 1, min_alignment = 5;
	int r = p_cublasLtMatmulDescCreate(&p->desc, fp32, 0);
	if (r == 0 && s->trans_b) // B is [N, K], so column-major [K, N]
		r = p_cublasLtMatmulDescSetAttribute(p->desc, 3, &transpose, sizeof transpose);
	if (r == 0)
		r = layout(&p->b, s->in, s->trans_b ? s->k : s->n, s->trans_b ? s->n : s->k, s->ldb, s->batch, s->stride_b);
	if (r == 0)
		r = layout(&p->a, s->in, s->k, s->m, s->lda, s->batch, s->stride_a);
	if (r == 0)
		r = layout(&p->d, s->out, s->n, s->m, s->ldd, s->batch, s->stride_d);
	if (r == 0)
		r = p_cublasLtMatmulPreferenceSetAttribute(pref, max_workspace, &s->workspace, sizeof s->workspace);
	for (int i = 0; r == 0 && i < 4; i++) {
		uint32_t bytes = s->alignment;
		r = p_cublasLtMatmulPreferenceSetAttribute(pref, min_alignment + i, &bytes, sizeof bytes);
	}
	heuristic best;
	int n = 0;
	if (r == 0)
		r = p_cublasLtMatmulAlgoGetHeuristic(h, p->desc, p->b, p->a, p->d, p->d, pref, 1, &best, &n);
	if (r == 0 && (n == 0 || best.state != 0))
		r = not_supported;
	if (r == 0)
		p->algo = best.algo;
	return r;
}

static plan *weft_plan_create(uintptr_t ctx, uintptr_t h, const shape *s, int32_t *status) {
	uintptr_t pref = 0;
	plan *p = calloc(1, sizeof *p);
	if (p == NULL) {
		*status = alloc_failed;
		return NULL;
	}
	p->m = s->m;
	*status = set_current(ctx) ? not_initialized : p_cublasLtMatmulPreferenceCreate(&pref);
	if (*status == 0) {
		*status = fill(p, h, s, pref);
		p_cublasLtMatmulPreferenceDestroy(pref);
	}
	if (*status == 0)
		return p;
	weft_plan_destroy(p);
	return NULL;
}

static int set_rows(plan *p, int64_t m) {
	uint64_t cols = m;
	if (p->m == m)
		return 0;
	int r = p_cublasLtMatrixLayoutSetAttribute(p->a, 3, &cols, sizeof cols);
	if (r == 0)
		r = p_cublasLtMatrixLayoutSetAttribute(p->d, 3, &cols, sizeof cols);
	if (r == 0)
		p->m = m;
	return r;
}

// weft_first_refused returns the first M in [from, to] that the plan's algorithm does not do; to + 1 when it does all.
static int64_t weft_first_refused(uintptr_t ctx, uintptr_t h, plan *p, size_t workspace, int64_t from, int64_t to) {
	heuristic got;
	if (set_current(ctx))
		return from;
	for (; from <= to; from++)
		if (set_rows(p, from) || p_cublasLtMatmulAlgoCheck(h, p->desc, p->b, p->a, p->d, p->d, &p->algo, &got) || got.workspace > workspace)
			break;
	return from;
}

static int32_t weft_matmul(uintptr_t ctx, uintptr_t h, plan *p, int64_t m, uintptr_t d, uintptr_t a, uintptr_t b, float alpha,
		float beta, uintptr_t workspace, size_t bytes, uintptr_t stream) {
	if (set_current(ctx))
		return not_initialized;
	int r = set_rows(p, m);
	if (r != 0)
		return r;
	return p_cublasLtMatmul(h, p->desc, &alpha, b, p->b, a, p->a, &beta, d, p->d, d, p->d, &p->algo, workspace, bytes, stream);
}

#cgo noescape weft_create
#cgo nocallback weft_create
#cgo noescape weft_plan_create
#cgo nocallback weft_plan_create
#cgo noescape weft_matmul
#cgo nocallback weft_matmul
*/
import "C"

import (
	"unsafe"

	"github.com/weftgo/weft/internal/dl"
)

// Symbols returns the rows that this package resolves in libcublasLt.
func Symbols() []dl.Symbol {
	rows := make([]dl.Symbol, C.weft_num_rows())
	for i := range rows {
		var optional C.int
		rows[i] = dl.Symbol{Name: C.GoString(C.weft_row(C.int(i), &optional)), Optional: optional != 0, Since: "CUDA 11.4"}
	}
	return rows
}

func bind(addrs []uintptr) {
	for i, a := range addrs {
		C.weft_bind_row(C.int(i), C.uintptr_t(a))
	}
}

func bindContext(setCurrent uintptr) { C.weft_bind_context(C.uintptr_t(setCurrent)) }

func version() int { return int(C.weft_version()) }

func statusText(status int) string { return C.GoString(C.weft_status(C.int(status))) }

// shape is the C struct of that name.
type shape struct {
	m, n, k, lda, ldb, ldd, strideA, strideB, strideD int64
	workspace                                         uint64
	in, out, batch, transB, alignment                 int32
}

type plan = C.plan

func createHandle(ctx uintptr, out *uintptr) int32 {
	return int32(C.weft_create(C.uintptr_t(ctx), (*C.uintptr_t)(unsafe.Pointer(out))))
}

func destroyHandle(ctx, h uintptr) int32 {
	return int32(C.weft_destroy(C.uintptr_t(ctx), C.uintptr_t(h)))
}

func createPlan(ctx, h uintptr, s *shape) (*plan, int32) {
	var status C.int32_t
	p := C.weft_plan_create(C.uintptr_t(ctx), C.uintptr_t(h), (*C.shape)(unsafe.Pointer(s)), &status)
	return p, int32(status)
}

func destroyPlan(p *plan) { C.weft_plan_destroy(p) }

func firstRefused(ctx, h uintptr, p *plan, workspace uint64, from, to int) int {
	return int(C.weft_first_refused(C.uintptr_t(ctx), C.uintptr_t(h), p, C.size_t(workspace), C.int64_t(from), C.int64_t(to)))
}

func matmul(ctx, h uintptr, p *plan, m int64, d, a, b uintptr, alpha, beta float32, workspace uintptr, bytes uint64, stream uintptr) int32 {
	return int32(C.weft_matmul(C.uintptr_t(ctx), C.uintptr_t(h), p, C.int64_t(m), C.uintptr_t(d), C.uintptr_t(a), C.uintptr_t(b),
		C.float(alpha), C.float(beta), C.uintptr_t(workspace), C.size_t(bytes), C.uintptr_t(stream)))
}
