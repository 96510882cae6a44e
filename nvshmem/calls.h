// The functions of libnvshmem_host that weft calls, one row each: result, name, parameters, arguments, whether the binding works
// without it, the first version that has it. A row makes a pointer, a line of the table that is resolved at load time, and a
// shim weft_NAME(ctx, ...) that makes the device's primary context current on the thread and calls.
#ifndef WEFT_NVSHMEM_H
#define WEFT_NVSHMEM_H

#include <stddef.h>
#include <stdint.h>

// Layouts of the library's versioned structs. A version is (number << 16) + size.
typedef struct { int32_t version; char bytes[124]; } weft_uid;
typedef struct { int32_t version; weft_uid *id; int32_t rank, num; } weft_uid_args;
typedef struct { int32_t version; weft_uid_args uid; char pad[96]; } weft_init_args;
typedef struct { int32_t version; void *mpi; weft_init_args args; } weft_init_attr;
_Static_assert(sizeof(weft_uid) == 128 && sizeof(weft_uid_args) == 24, "layout");
_Static_assert(sizeof(weft_init_args) == 128 && sizeof(weft_init_attr) == 144 && offsetof(weft_init_attr, args) == 16, "layout");
#define WEFT_V1(type) ((1 << 16) + (int32_t)sizeof(type))

#define WEFT_VALUES(X) \
    X(int, nvshmemx_get_uniqueid, (weft_uid *id), (id), REQUIRED, "3.0") \
    X(int, nvshmemx_set_attr_uniqueid_args, (int rank, int num, const weft_uid *id, weft_init_attr *attr), (rank, num, id, attr), REQUIRED, "3.0") \
    X(int, nvshmemx_hostlib_init_attr, (unsigned flags, weft_init_attr *attr), (flags, attr), REQUIRED, "3.0") \
    X(int, nvshmemx_init_status, (void), (), REQUIRED, "3.0") \
    X(int, nvshmem_my_pe, (void), (), REQUIRED, "") \
    X(int, nvshmem_n_pes, (void), (), REQUIRED, "") \
    X(uintptr_t, nvshmem_malloc, (size_t bytes), (bytes), REQUIRED, "") \
    X(uintptr_t, nvshmem_ptr, (uintptr_t addr, int pe), (addr, pe), REQUIRED, "") \
    X(int, nvshmemx_cumodule_init, (uintptr_t module), (module), OPTIONAL, "3.0") \
    X(int, nvshmemx_cumodule_finalize, (uintptr_t module), (module), OPTIONAL, "3.0") \
    X(int, nvshmemx_team_sync_on_stream, (int team, uintptr_t stream), (team, stream), OPTIONAL, "") \
    X(int, nvshmemx_barrier_on_stream, (int team, uintptr_t stream), (team, stream), OPTIONAL, "") \
    X(int, nvshmemx_alltoallmem_on_stream, (int team, uintptr_t dst, uintptr_t src, size_t bytes, uintptr_t stream), (team, dst, src, bytes, stream), OPTIONAL, "") \
    X(int, nvshmemx_fcollectmem_on_stream, (int team, uintptr_t dst, uintptr_t src, size_t bytes, uintptr_t stream), (team, dst, src, bytes, stream), OPTIONAL, "") \
    X(int, nvshmemx_broadcastmem_on_stream, (int team, uintptr_t dst, uintptr_t src, size_t bytes, int root, uintptr_t stream), (team, dst, src, bytes, root, stream), OPTIONAL, "") \
    X(int, nvshmemx_float_sum_reduce_on_stream, (int team, uintptr_t dst, uintptr_t src, size_t n, uintptr_t stream), (team, dst, src, n, stream), OPTIONAL, "") \
    X(int, nvshmemx_bfloat16_sum_reduce_on_stream, (int team, uintptr_t dst, uintptr_t src, size_t n, uintptr_t stream), (team, dst, src, n, stream), OPTIONAL, "")

#define WEFT_VOIDS(X) \
    X(void, nvshmemx_vendor_get_version_info, (int *major, int *minor, int *patch), (major, minor, patch), REQUIRED, "2.5") \
    X(void, nvshmemx_hostlib_finalize, (void), (), REQUIRED, "3.0") \
    X(void, nvshmem_free, (uintptr_t addr), (addr), REQUIRED, "") \
    X(void, nvshmem_barrier_all, (void), (), REQUIRED, "") \
    X(void, nvshmem_sync_all, (void), (), REQUIRED, "") \
    X(void, nvshmemx_barrier_all_on_stream, (uintptr_t stream), (stream), REQUIRED, "") \
    X(void, nvshmemx_sync_all_on_stream, (uintptr_t stream), (stream), REQUIRED, "") \
    X(void, nvshmemx_quiet_on_stream, (uintptr_t stream), (stream), REQUIRED, "") \
    X(void, nvshmemx_putmem_on_stream, (uintptr_t dst, uintptr_t src, size_t bytes, int pe, uintptr_t stream), (dst, src, bytes, pe, stream), REQUIRED, "") \
    X(void, nvshmemx_getmem_on_stream, (uintptr_t dst, uintptr_t src, size_t bytes, int pe, uintptr_t stream), (dst, src, bytes, pe, stream), REQUIRED, "") \
    X(void, nvshmemx_putmem_signal_on_stream, (uintptr_t dst, uintptr_t src, size_t bytes, uintptr_t sig, uint64_t value, int op, int pe, uintptr_t stream), (dst, src, bytes, sig, value, op, pe, stream), REQUIRED, "") \
    X(void, nvshmemx_signal_op_on_stream, (uintptr_t sig, uint64_t value, int op, int pe, uintptr_t stream), (sig, value, op, pe, stream), REQUIRED, "") \
    X(void, nvshmemx_signal_wait_until_on_stream, (uintptr_t sig, int cmp, uint64_t value, uintptr_t stream), (sig, cmp, value, stream), REQUIRED, "")

#endif
