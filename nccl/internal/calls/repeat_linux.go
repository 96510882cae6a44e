//go:build linux && cgo && weft_cost

package calls

/*
#include <stdint.h>
#include <stddef.h>
#include <time.h>

typedef int (*wn_all_reduce)(uintptr_t, uintptr_t, size_t, int, int, uintptr_t, uintptr_t);
typedef int (*wn_state)(uintptr_t, int *);
typedef int (*wn_set)(uintptr_t);

// repeat calls ncclAllReduce n times and returns the nanoseconds of one call, -1 when one fails.
static double repeat(uintptr_t all_reduce, uintptr_t state_of, uintptr_t set, uintptr_t ctx, uintptr_t src, uintptr_t dst, size_t count,
                     int type, uintptr_t comm, uintptr_t stream, int blocking, int n) {
	struct timespec a, b;
	int state;
	if (((wn_set)set)(ctx) != 0)
		return -1;
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < n; i++) {
		int r = ((wn_all_reduce)all_reduce)(src, dst, count, type, 0, comm, stream);
		if (r != 0 && r != 7)
			return -1;
		for (state = 7; !blocking && state == 7;)
			if (((wn_state)state_of)(comm, &state) != 0)
				return -1;
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	return ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / n;
}
*/
import "C"

// Repeat is NCCL's own all_reduce in a loop in C: the yardstick for what the binding adds. functions are ncclAllReduce,
// ncclCommGetAsyncError and cuCtxSetCurrent. Tests alone are built with it.
func Repeat(functions [3]uintptr, ctx, src, dst, count, kind, comm, stream uintptr, blocking bool, n int) float64 {
	b := C.int(0)
	if blocking {
		b = 1
	}
	return float64(C.repeat(C.uintptr_t(functions[0]), C.uintptr_t(functions[1]), C.uintptr_t(functions[2]), C.uintptr_t(ctx), C.uintptr_t(src),
		C.uintptr_t(dst), C.size_t(count), C.int(kind), C.uintptr_t(comm), C.uintptr_t(stream), b, C.int(n)))
}
