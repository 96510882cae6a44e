//go:build linux && cgo

package nvshmem

/*
#include "calls.h"
#include <stdlib.h>
#include <string.h>

#define REQUIRED 0
#define OPTIONAL 1
#define STRIP(...) __VA_ARGS__
#define POINTER(result, name, params, args, optional, since) static result (*p_##name) params;
#define LINE(result, name, params, args, optional, since) {#name, optional, since, (void **)&p_##name},
WEFT_VALUES(POINTER)
WEFT_VOIDS(POINTER)
static const struct { const char *name; int optional; const char *since; void **pointer; } rows[] = {WEFT_VALUES(LINE) WEFT_VOIDS(LINE)};

static int weft_num_rows(void) { return sizeof rows / sizeof rows[0]; }
static const char *weft_row(int i, int *optional, const char **since) {
	*optional = rows[i].optional;
	*since = rows[i].since;
	return rows[i].name;
}
static void weft_bind_row(int i, uintptr_t address) { *rows[i].pointer = (void *)address; }
static int weft_has_row(int i) { return *rows[i].pointer != NULL; }

static int (*set_current)(uintptr_t);
static void weft_bind_current(uintptr_t address) { set_current = (int (*)(uintptr_t))address; }

// enter makes ctx current on this thread, for the call that follows in the same C function.
static int enter(uintptr_t ctx) { return ctx != 0 && set_current != NULL ? set_current(ctx) : 0; }

static void weft_version(int *major, int *minor, int *patch) { p_nvshmemx_vendor_get_version_info(major, minor, patch); }
static int weft_status(void) { return p_nvshmemx_init_status(); }

// The library keeps a pointer to the id: it lives in C memory for good.
static int weft_unique_id(uintptr_t ctx, void *out) {
	static weft_uid id;
	memset(&id, 0, sizeof id);
	id.version = WEFT_V1(weft_uid);
	int r = enter(ctx);
	if (r == 0)
		r = p_nvshmemx_get_uniqueid(&id);
	memcpy(out, &id, sizeof id);
	return r;
}

static int weft_init(uintptr_t ctx, int rank, int num, const void *bytes) {
	static weft_uid id;
	static weft_init_attr attr;
	memcpy(&id, bytes, sizeof id);
	memset(&attr, 0, sizeof attr);
	attr.version = WEFT_V1(weft_init_attr);
	attr.args.version = WEFT_V1(weft_init_args);
	attr.args.uid.version = WEFT_V1(weft_uid_args);
	attr.args.uid.id = &id;
	attr.args.uid.rank = rank;
	attr.args.uid.num = num;
	int r = enter(ctx);
	if (r == 0)
		r = p_nvshmemx_set_attr_uniqueid_args(rank, num, &id, &attr);
	if (r == 0)
		r = p_nvshmemx_hostlib_init_attr(8, &attr);
	return r;
}

static int weft_my_pe(void) { return p_nvshmem_my_pe(); }
static int weft_n_pes(void) { return p_nvshmem_n_pes(); }

// weft_run calls what needs no result but a code, with up to eight arguments.
enum { FINALIZE, FREE, BARRIER_ALL, SYNC_ALL, BARRIER_ALL_ON_STREAM, SYNC_ALL_ON_STREAM, QUIET_ON_STREAM, PUT, GET, PUT_SIGNAL,
       SIGNAL, SIGNAL_WAIT, TEAM_SYNC, TEAM_BARRIER, ALL_TO_ALL, FCOLLECT, BROADCAST, SUM_F32, SUM_BF16, MODULE_INIT, MODULE_FINALIZE };
static int weft_run(uintptr_t ctx, int what, const uint64_t *a) {
	int r = enter(ctx);
	if (r != 0)
		return r;
	switch (what) {
	case FINALIZE: p_nvshmemx_hostlib_finalize(); return 0;
	case FREE: p_nvshmem_free(a[0]); return 0;
	case BARRIER_ALL: p_nvshmem_barrier_all(); return 0;
	case SYNC_ALL: p_nvshmem_sync_all(); return 0;
	case BARRIER_ALL_ON_STREAM: p_nvshmemx_barrier_all_on_stream(a[0]); return 0;
	case SYNC_ALL_ON_STREAM: p_nvshmemx_sync_all_on_stream(a[0]); return 0;
	case QUIET_ON_STREAM: p_nvshmemx_quiet_on_stream(a[0]); return 0;
	case PUT: p_nvshmemx_putmem_on_stream(a[0], a[1], a[2], a[3], a[4]); return 0;
	case GET: p_nvshmemx_getmem_on_stream(a[0], a[1], a[2], a[3], a[4]); return 0;
	case PUT_SIGNAL: p_nvshmemx_putmem_signal_on_stream(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]); return 0;
	case SIGNAL: p_nvshmemx_signal_op_on_stream(a[0], a[1], a[2], a[3], a[4]); return 0;
	case SIGNAL_WAIT: p_nvshmemx_signal_wait_until_on_stream(a[0], a[1], a[2], a[3]); return 0;
	case TEAM_SYNC: return p_nvshmemx_team_sync_on_stream(a[0], a[1]);
	case TEAM_BARRIER: return p_nvshmemx_barrier_on_stream(a[0], a[1]);
	case ALL_TO_ALL: return p_nvshmemx_alltoallmem_on_stream(a[0], a[1], a[2], a[3], a[4]);
	case FCOLLECT: return p_nvshmemx_fcollectmem_on_stream(a[0], a[1], a[2], a[3], a[4]);
	case BROADCAST: return p_nvshmemx_broadcastmem_on_stream(a[0], a[1], a[2], a[3], a[4], a[5]);
	case SUM_F32: return p_nvshmemx_float_sum_reduce_on_stream(a[0], a[1], a[2], a[3], a[4]);
	case SUM_BF16: return p_nvshmemx_bfloat16_sum_reduce_on_stream(a[0], a[1], a[2], a[3], a[4]);
	case MODULE_INIT: return p_nvshmemx_cumodule_init(a[0]);
	case MODULE_FINALIZE: return p_nvshmemx_cumodule_finalize(a[0]);
	}
	return -1;
}
static uintptr_t weft_malloc(uintptr_t ctx, size_t bytes) { return enter(ctx) == 0 ? p_nvshmem_malloc(bytes) : 0; }
static uintptr_t weft_ptr(uintptr_t ctx, uintptr_t addr, int pe) { return enter(ctx) == 0 ? p_nvshmem_ptr(addr, pe) : 0; }
*/
import "C"

import (
	"unsafe"

	"github.com/weftgo/weft/internal/dl"
)

// The calls of weft_run.
const (
	callFinalize           = C.FINALIZE
	callFree               = C.FREE
	callBarrierAll         = C.BARRIER_ALL
	callSyncAll            = C.SYNC_ALL
	callBarrierAllOnStream = C.BARRIER_ALL_ON_STREAM
	callSyncAllOnStream    = C.SYNC_ALL_ON_STREAM
	callQuietOnStream      = C.QUIET_ON_STREAM
	callPut                = C.PUT
	callGet                = C.GET
	callPutSignal          = C.PUT_SIGNAL
	callSignal             = C.SIGNAL
	callSignalWait         = C.SIGNAL_WAIT
	callTeamSync           = C.TEAM_SYNC
	callTeamBarrier        = C.TEAM_BARRIER
	callAllToAll           = C.ALL_TO_ALL
	callFCollect           = C.FCOLLECT
	callBroadcast          = C.BROADCAST
	callSumF32             = C.SUM_F32
	callSumBF16            = C.SUM_BF16
	callModuleInit         = C.MODULE_INIT
	callModuleFinalize     = C.MODULE_FINALIZE
)

// Symbols returns the rows that this package resolves in libnvshmem_host.
func Symbols() []dl.Symbol {
	rows := make([]dl.Symbol, C.weft_num_rows())
	for i := range rows {
		var optional C.int
		var since *C.char
		rows[i] = dl.Symbol{Name: C.GoString(C.weft_row(C.int(i), &optional, &since)), Optional: optional != 0}
		rows[i].Since = C.GoString(since)
	}
	return rows
}

func bindSymbols(addrs []uintptr) {
	for i, a := range addrs {
		C.weft_bind_row(C.int(i), C.uintptr_t(a))
	}
}

// has reports whether the library has a function.
func has(name string) bool {
	for i, row := range Symbols() {
		if row.Name == name {
			return C.weft_has_row(C.int(i)) != 0
		}
	}
	return false
}

func bindCurrent(addr uintptr) { C.weft_bind_current(C.uintptr_t(addr)) }

func libraryVersion() (v Version) {
	var major, minor, patch C.int
	C.weft_version(&major, &minor, &patch)
	return Version{int(major), int(minor), int(patch)}
}

func initStatus() int { return int(C.weft_status()) }

func uniqueID(ctx uintptr) ([]byte, int) {
	id := make([]byte, idBytes)
	code := C.weft_unique_id(C.uintptr_t(ctx), unsafe.Pointer(unsafe.SliceData(id)))
	return id, int(code)
}

func initialize(ctx uintptr, rank, size int, id []byte) int {
	return int(C.weft_init(C.uintptr_t(ctx), C.int(rank), C.int(size), unsafe.Pointer(unsafe.SliceData(id))))
}

func myPE() int   { return int(C.weft_my_pe()) }
func numPEs() int { return int(C.weft_n_pes()) }

func run(ctx uintptr, what int, args *[8]uint64) int {
	return int(C.weft_run(C.uintptr_t(ctx), C.int(what), (*C.uint64_t)(unsafe.Pointer(args))))
}

func malloc(ctx uintptr, bytes int) uintptr {
	return uintptr(C.weft_malloc(C.uintptr_t(ctx), C.size_t(bytes)))
}

func ptr(ctx, addr uintptr, pe int) uintptr {
	return uintptr(C.weft_ptr(C.uintptr_t(ctx), C.uintptr_t(addr), C.int(pe)))
}
