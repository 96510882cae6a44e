// The functions of libnccl that weft calls, one row each: name, parameters, arguments, and the first version that has it.
// Handles are integers of a pointer's size. Arguments come from an array of words, one a parameter; what a call gives back,
// structs and lists are in the same array, so that a call passes one pointer and keeps none of Go's memory. A row makes a
// pointer, a line of the table that is resolved at load time, and a case of wn_call.
#ifndef WEFT_NCCL_CALLS_H
#define WEFT_NCCL_CALLS_H

#include <stddef.h>
#include <stdint.h>

typedef struct { char bytes[128]; } wn_id; // given by value
typedef struct { int32_t num_ranks, rank, stride; } wn_team;

// The layout of 2.30.7, which older libraries cut short and newer ones complete with their defaults.
typedef struct {
    size_t size;
    uint32_t magic, version;
    int32_t blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int32_t split_share, traffic_class;
    const char *comm_name;
    int32_t collnet_enable, cta_policy, shrink_share, nvls_ctas, channels_per_net_peer, nvlink_centric_sched;
    int32_t graph_usage_mode, num_rma_ctx, max_p2p_peers, graph_stream_ordering;
} wn_config;
_Static_assert(sizeof(wn_config) == 96 && offsetof(wn_config, graph_stream_ordering) == 92, "layout");

typedef struct {
    size_t size;
    uint32_t magic, version;
    float estimated_time;
} wn_sim;
_Static_assert(sizeof(wn_sim) == 24, "layout");

#define I(i) ((int32_t)a[i])
#define S(i) ((size_t)a[i])
#define H(i) ((uintptr_t)a[i])
#define O(i) ((void *)&a[i])                        // of the array itself: a result, a struct, a list
#define ID(i) (*(const wn_id *)&a[i])               // 16 words
#define TEAM(i) (*(const wn_team *)&a[i])            // 2 words
#define CFG(i) (a[i] ? (void *)&a[i] : (void *)0)   // 12 words; size 0: none given

#define WN_CALLS(X) \
    X(ncclGetVersion, (void *version), (O(0)), "2.3.5") \
    X(ncclGetUniqueId, (void *id), (O(0)), "2.3.5") \
    X(ncclCommInitRank, (uintptr_t out, int32_t n, wn_id id, int32_t rank), (H(0), I(1), ID(3), I(2)), "2.3.5") \
    X(ncclCommInitRankConfig, (uintptr_t out, int32_t n, wn_id id, int32_t rank, void *cfg), (H(0), I(1), ID(3), I(2), CFG(19)), "2.14.3") \
    X(ncclCommInitRankScalable, (uintptr_t out, int32_t n, int32_t rank, int32_t num_ids, void *ids, void *cfg), (H(0), I(1), I(2), I(3), O(16), CFG(4)), "2.23.4") \
    X(ncclCommInitAll, (void *comms, int32_t n, void *devices), (O(1), I(0), O(1 + I(0))), "2.3.5") \
    X(ncclCommFinalize, (uintptr_t comm), (H(0)), "2.14.3") \
    X(ncclCommDestroy, (uintptr_t comm), (H(0)), "2.3.5") \
    X(ncclCommAbort, (uintptr_t comm), (H(0)), "2.4.2") \
    X(ncclCommRevoke, (uintptr_t comm, int32_t flags), (H(0), I(1)), "2.28.7") \
    X(ncclCommSplit, (uintptr_t comm, int32_t color, int32_t key, uintptr_t out, void *cfg), (H(0), I(1), I(2), H(3), CFG(4)), "2.18.1") \
    X(ncclCommShrink, (uintptr_t comm, void *excluded, int32_t n, uintptr_t out, void *cfg, int32_t flags), (H(0), O(16), I(1), H(2), CFG(4), I(3)), "2.27.3") \
    X(ncclCommGetUniqueId, (uintptr_t comm, void *id), (H(0), O(1)), "2.29.2") \
    X(ncclCommGrow, (uintptr_t comm, int32_t n, void *id, int32_t rank, uintptr_t out, void *cfg), (H(0), I(1), a[4] ? O(17) : NULL, I(2), H(3), CFG(5)), "2.29.2") \
    X(ncclCommGetAsyncError, (uintptr_t comm, void *state), (H(0), O(1)), "2.4.2") \
    X(ncclCommCount, (uintptr_t comm, void *n), (H(0), O(1)), "2.3.5") \
    X(ncclCommCuDevice, (uintptr_t comm, void *device), (H(0), O(1)), "2.3.5") \
    X(ncclCommUserRank, (uintptr_t comm, void *rank), (H(0), O(1)), "2.3.5") \
    X(ncclMemAlloc, (void *addr, size_t bytes), (O(0), S(1)), "2.19.1") \
    X(ncclMemFree, (uintptr_t addr), (H(0)), "2.19.1") \
    X(ncclCommRegister, (uintptr_t comm, uintptr_t addr, size_t bytes, void *handle), (H(0), H(1), S(2), O(3)), "2.19.1") \
    X(ncclCommDeregister, (uintptr_t comm, uintptr_t handle), (H(0), H(1)), "2.19.1") \
    X(ncclCommWindowRegister, (uintptr_t comm, uintptr_t addr, size_t bytes, uintptr_t window, int32_t flags), (H(0), H(1), S(2), H(3), I(4)), "2.27.3") \
    X(ncclCommWindowDeregister, (uintptr_t comm, uintptr_t window), (H(0), H(1)), "2.27.3") \
    X(ncclWinGetUserPtr, (uintptr_t comm, uintptr_t window, void *addr), (H(0), H(1), O(2)), "2.29.2") \
    X(ncclGetLsaDevicePointer, (uintptr_t window, size_t offset, int32_t rank, void *addr), (H(0), S(1), I(2), O(3)), "2.29.2") \
    X(ncclGetPeerDevicePointer, (uintptr_t window, size_t offset, int32_t rank, void *addr), (H(0), S(1), I(2), O(3)), "2.29.2") \
    X(ncclGetLsaMultimemDevicePointer, (uintptr_t window, size_t offset, void *addr), (H(0), S(1), O(2)), "2.29.2") \
    X(ncclCommQueryProperties, (uintptr_t comm, uintptr_t properties), (H(0), H(1)), "2.29.2") \
    X(ncclDevCommCreate, (uintptr_t comm, uintptr_t requirements, uintptr_t out), (H(0), H(1), H(2)), "2.28.3") \
    X(ncclDevCommDestroy, (uintptr_t comm, uintptr_t devcomm), (H(0), H(1)), "2.28.3") \
    X(ncclTeamRankToWorld, (uintptr_t comm, wn_team team, int32_t rank), (H(0), TEAM(1), I(3)), "2.28.3") \
    X(ncclTeamRankToLsa, (uintptr_t comm, wn_team team, int32_t rank), (H(0), TEAM(1), I(3)), "2.28.3") \
    X(ncclLsaBarrierCreateRequirement, (wn_team team, int32_t n, uintptr_t handle, uintptr_t requirement), (TEAM(0), I(2), H(3), H(4)), "2.28.3") \
    X(ncclGinBarrierCreateRequirement, (uintptr_t comm, wn_team team, int32_t n, uintptr_t handle, uintptr_t requirement), (H(0), TEAM(1), I(3), H(4), H(5)), "2.28.3") \
    X(ncclLLA2ACalcSlots, (int32_t elements, int32_t bytes), (I(0), I(1)), "2.28.3") \
    X(ncclLLA2ACreateRequirement, (int32_t blocks, int32_t slots, uintptr_t handle, uintptr_t requirement), (I(0), I(1), H(2), H(3)), "2.28.3") \
    X(ncclRedOpCreatePreMulSum, (void *op, void *scalar, int32_t type, int32_t residence, uintptr_t comm), (O(0), a[1] ? (void *)H(1) : O(2), I(3), I(4), H(5)), "2.11.4") \
    X(ncclRedOpDestroy, (int32_t op, uintptr_t comm), (I(0), H(1)), "2.11.4") \
    X(ncclPutSignal, (uintptr_t src, size_t n, int32_t type, int32_t peer, uintptr_t window, size_t offset, int32_t signal, int32_t ctx, uint32_t flags, uintptr_t comm, uintptr_t stream), (H(0), S(1), I(2), I(3), H(4), S(5), I(6), I(7), (uint32_t)a[8], H(9), H(10)), "2.29.2") \
    X(ncclSignal, (int32_t peer, int32_t signal, int32_t ctx, uint32_t flags, uintptr_t comm, uintptr_t stream), (I(0), I(1), I(2), (uint32_t)a[3], H(4), H(5)), "2.29.2") \
    X(ncclWaitSignal, (int32_t n, void *waits, uintptr_t comm, uintptr_t stream), (I(0), O(3), H(1), H(2)), "2.29.2") \
    X(ncclCommSuspend, (uintptr_t comm, int32_t flags), (H(0), I(1)), "2.29.7") \
    X(ncclCommResume, (uintptr_t comm), (H(0)), "2.29.7") \
    X(ncclCommMemStats, (uintptr_t comm, int32_t stat, void *value), (H(0), I(1), O(2)), "2.29.7") \
    X(ncclParamGetParameter, (uintptr_t key, void *value, void *n), (H(0), O(1), O(2)), "2.30.4")

// Rows whose calls are written by hand in shim.c: what runs inside a group, and what gives text back.
#define WN_OWN(X) \
    X(ncclGroupStart, (void), (), "2.3.5") \
    X(ncclGroupEnd, (void), (), "2.3.5") \
    X(ncclGroupSimulateEnd, (wn_sim *info), (), "2.22.3") \
    X(ncclAllReduce, (uintptr_t src, uintptr_t dst, size_t n, int32_t type, int32_t op, uintptr_t comm, uintptr_t stream), (), "2.3.5") \
    X(ncclAllGather, (uintptr_t src, uintptr_t dst, size_t n, int32_t type, uintptr_t comm, uintptr_t stream), (), "2.3.5") \
    X(ncclReduceScatter, (uintptr_t src, uintptr_t dst, size_t n, int32_t type, int32_t op, uintptr_t comm, uintptr_t stream), (), "2.3.5") \
    X(ncclBroadcast, (uintptr_t src, uintptr_t dst, size_t n, int32_t type, int32_t root, uintptr_t comm, uintptr_t stream), (), "2.3.5") \
    X(ncclBcast, (uintptr_t buf, size_t n, int32_t type, int32_t root, uintptr_t comm, uintptr_t stream), (), "2.3.5") \
    X(ncclReduce, (uintptr_t src, uintptr_t dst, size_t n, int32_t type, int32_t op, int32_t root, uintptr_t comm, uintptr_t stream), (), "2.3.5") \
    X(ncclAlltoAll, (uintptr_t src, uintptr_t dst, size_t n, int32_t type, uintptr_t comm, uintptr_t stream), (), "2.28.3") \
    X(ncclGather, (uintptr_t src, uintptr_t dst, size_t n, int32_t type, int32_t root, uintptr_t comm, uintptr_t stream), (), "2.28.3") \
    X(ncclScatter, (uintptr_t src, uintptr_t dst, size_t n, int32_t type, int32_t root, uintptr_t comm, uintptr_t stream), (), "2.28.3") \
    X(ncclSend, (uintptr_t src, size_t n, int32_t type, int32_t peer, uintptr_t comm, uintptr_t stream), (), "2.7.3") \
    X(ncclRecv, (uintptr_t dst, size_t n, int32_t type, int32_t peer, uintptr_t comm, uintptr_t stream), (), "2.7.3") \
    X(ncclParamGetAllParameterKeys, (const char ***table, int32_t *n), (), "2.30.4")

// Rows of the device API's host side: teams are small structs by value.
#define WN_TEAM(X) \
    X(ncclTeamWorld, (uintptr_t comm), (), "2.28.3") \
    X(ncclTeamLsa, (uintptr_t comm), (), "2.28.3") \
    X(ncclTeamRail, (uintptr_t comm), (), "2.28.3")

// Rows that give text and no code.
#define WN_TEXT(X) \
    X(ncclGetErrorString, (int32_t code), (), "2.3.5") \
    X(ncclGetLastError, (uintptr_t comm), (), "2.13.4")

enum {
#define WN_NUMBER(name, params, args, since) wn_##name,
    WN_CALLS(WN_NUMBER) WN_OWN(WN_NUMBER) WN_TEAM(WN_NUMBER) WN_TEXT(WN_NUMBER) wn_num_rows
#undef WN_NUMBER
};

enum { wn_missing = -2, wn_cuda = -1000 }; // wn_cuda - n: libcuda answered n

// wn_op is one call inside a group.
typedef struct {
    uint64_t src, dst, count;
    int32_t kind, type, reduce, peer;
} wn_op;

// wn_copy is rows of width bytes, some bytes apart.
typedef struct { uint64_t dst, dst_pitch, src, src_pitch, width, rows; } wn_copy;

// wn_job is one enqueue: copies, a group of operations, copies.
typedef struct {
    uint64_t ctx, comm, stream;
    int32_t num_before, num_ops, num_after, spin; // spin: microseconds to wait for a non-blocking group in the call
    int32_t stage, pad;                           // out: how far it came, see wn_stage_*
} wn_job;
enum { wn_stage_none, wn_stage_group, wn_stage_all };

enum { wn_kind_all_reduce, wn_kind_all_gather, wn_kind_reduce_scatter, wn_kind_broadcast, wn_kind_reduce, wn_kind_send, wn_kind_recv,
    wn_kind_bcast, wn_kind_alltoall, wn_kind_gather, wn_kind_scatter };

const char *wn_symbol(int32_t i, const char **since);
void wn_bind(int32_t i, uintptr_t address);
void wn_bind_cuda(uintptr_t get, uintptr_t set, uintptr_t copy, uintptr_t copy_row);
int32_t wn_copy_rows(const wn_job *job, const wn_copy *copy);
int32_t wn_call(uintptr_t ctx, int32_t call, uint64_t *a, char *text, size_t size);
int32_t wn_init(int32_t n, const uint64_t *ctxs, const uint64_t *outs, const int32_t *ranks, int32_t size, const void *id, const void *config, char *text, size_t text_size);
int32_t wn_enqueue(wn_job *job, const wn_op *ops, const wn_copy *before, const wn_copy *after, char *text, size_t size);
int32_t wn_simulate(wn_job *job, const wn_op *ops, float *time, char *text, size_t size);
int32_t wn_team_of(int32_t call, uintptr_t comm, wn_team *out);
int32_t wn_param_keys(char *out, size_t size);
const char *wn_last_error(void);
void wn_code_text(int32_t code, char *text, size_t size);
uintptr_t wn_word(uintptr_t slot);
void wn_store(uintptr_t slot, uintptr_t value);
uintptr_t wn_new(void);
void wn_free(uintptr_t slot);
const char *wn_string(uintptr_t address);
#endif
