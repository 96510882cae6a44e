//go:build linux && cgo

#include "calls.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POINTER(name, params, args, since) static int32_t (*p_##name) params;
WN_CALLS(POINTER)
WN_OWN(POINTER)
#define TEXT_POINTER(name, params, args, since) static const char *(*p_##name) params;
WN_TEXT(TEXT_POINTER)
#define TEAM_POINTER(name, params, args, since) static wn_team (*p_##name) params;
WN_TEAM(TEAM_POINTER)

typedef struct { const char *name, *since; void *pointer; } row;
#define ROW(name, params, args, since) {#name, since, &p_##name},
static const row rows[] = {WN_CALLS(ROW) WN_OWN(ROW) WN_TEAM(ROW) WN_TEXT(ROW)};

const char *wn_symbol(int32_t i, const char **since) {
    if (i < 0 || i >= wn_num_rows)
        return NULL;
    *since = rows[i].since;
    return rows[i].name;
}

void wn_bind(int32_t i, uintptr_t address) { memcpy(rows[i].pointer, &address, sizeof address); }

// CUDA_MEMCPY2D of libcuda.
typedef struct {
    size_t src_x, src_y;
    uint32_t src_type;
    const void *src_host;
    uint64_t src;
    uintptr_t src_array;
    size_t src_pitch, dst_x, dst_y;
    uint32_t dst_type;
    void *dst_host;
    uint64_t dst;
    uintptr_t dst_array;
    size_t dst_pitch, width, height;
} copy2d;
_Static_assert(sizeof(copy2d) == 128, "layout");

static int32_t (*p_get)(uintptr_t *ctx);
static int32_t (*p_set)(uintptr_t ctx);
static int32_t (*p_copy)(const copy2d *copy, uintptr_t stream);
static int32_t (*p_copy_row)(uintptr_t dst, uintptr_t src, size_t bytes, uintptr_t stream);

void wn_bind_cuda(uintptr_t get, uintptr_t set, uintptr_t copy, uintptr_t copy_row) {
    memcpy(&p_get, &get, sizeof get);
    memcpy(&p_set, &set, sizeof set);
    memcpy(&p_copy, &copy, sizeof copy);
    memcpy(&p_copy_row, &copy_row, sizeof copy_row);
}

// enter makes ctx the thread's current context, from which NCCL takes its device. The goroutine may have moved to this
// thread since its last call; it cannot move while a call runs.
static int32_t enter(uintptr_t ctx) {
    uintptr_t now = 0;
    int32_t r;
    if (ctx == 0 || (p_get(&now) == 0 && now == ctx))
        return 0;
    r = p_set(ctx);
    return r ? wn_cuda - r : 0;
}

// explain copies the library's last message: it is the whole process's, so the call that failed reads it at once.
static int32_t explain(int32_t r, char *text, size_t size) {
    const char *s;
    if (r <= 0 || r == 7 || size == 0)
        return r;
    text[0] = 0;
    if (p_ncclGetLastError != NULL && (s = p_ncclGetLastError(0)) != NULL) {
        strncpy(text, s, size - 1);
        text[size - 1] = 0;
    }
    return r;
}

#define CASE(name, params, args, since)                       \
    case wn_##name:                                           \
        return p_##name == NULL ? wn_missing : p_##name args;

static int32_t dispatch(int32_t call, uint64_t *a) {
    switch (call) { WN_CALLS(CASE) }
    return wn_missing;
}

int32_t wn_call(uintptr_t ctx, int32_t call, uint64_t *a, char *text, size_t size) {
    int32_t r = enter(ctx);
    return r ? r : explain(dispatch(call, a), text, size);
}

void wn_store(uintptr_t slot, uintptr_t value) { __atomic_store_n((uintptr_t *)slot, value, __ATOMIC_RELEASE); }

uintptr_t wn_new(void) { return (uintptr_t)calloc(1, sizeof(uintptr_t)); }

void wn_free(uintptr_t slot) { free((void *)slot); }

const char *wn_string(uintptr_t address) { return (const char *)address; }

uintptr_t wn_word(uintptr_t slot) { return __atomic_load_n((uintptr_t *)slot, __ATOMIC_ACQUIRE); }

const char *wn_last_error(void) {
    const char *s = p_ncclGetLastError ? p_ncclGetLastError(0) : NULL;
    return s ? s : "";
}

void wn_code_text(int32_t code, char *text, size_t size) {
    const char *s = p_ncclGetErrorString != NULL ? p_ncclGetErrorString(code) : NULL;
    text[0] = 0;
    if (s != NULL) {
        strncpy(text, s, size - 1);
        text[size - 1] = 0;
    }
}

// wn_init makes the communicators of several ranks of this process: one group, on one thread.
int32_t wn_init(int32_t n, const uint64_t *ctxs, const uint64_t *outs, const int32_t *ranks, int32_t size, const void *id, const void *config, char *text, size_t text_size) {
    int32_t r = 0, end;
    wn_id uid;
    wn_config cfg;
    memcpy(&uid, id, sizeof uid);
    memcpy(&cfg, config, sizeof cfg);
    if (n > 1 && (r = p_ncclGroupStart()) != 0)
        return explain(r, text, text_size);
    for (int32_t i = 0; i < n && (r == 0 || r == 7); i++) {
        r = enter(ctxs[i]);
        if (r == 0)
            r = p_ncclCommInitRankConfig((uintptr_t)outs[i], size, uid, ranks[i], &cfg);
    }
    explain(r, text, text_size);
    if (n > 1) {
        end = p_ncclGroupEnd();
        if (r == 0 || r == 7)
            r = explain(end, text, text_size);
    }
    return r;
}

static int32_t copies(const wn_copy *c, int32_t n, uintptr_t stream) {
    for (int32_t i = 0; i < n; i++) {
        copy2d m = {0};
        int32_t r;
        if (c[i].rows == 1) { // no pitch, which has a largest value
            if ((r = p_copy_row(c[i].dst, c[i].src, c[i].width, stream)) != 0)
                return wn_cuda - r;
            continue;
        }
        m.src_type = m.dst_type = 4; // the address says where it is
        m.src = c[i].src;
        m.dst = c[i].dst;
        m.src_pitch = c[i].src_pitch;
        m.dst_pitch = c[i].dst_pitch;
        m.width = c[i].width;
        m.height = c[i].rows;
        if ((r = p_copy(&m, stream)) != 0)
            return wn_cuda - r;
    }
    return 0;
}

int32_t wn_copy_rows(const wn_job *job, const wn_copy *copy) {
    int32_t r = enter(job->ctx);
    return r ? r : copies(copy, 1, job->stream);
}

static int32_t issue(const wn_op *o, uintptr_t comm, uintptr_t stream) {
    switch (o->kind) {
    case wn_kind_all_reduce: return p_ncclAllReduce(o->src, o->dst, o->count, o->type, o->reduce, comm, stream);
    case wn_kind_all_gather: return p_ncclAllGather(o->src, o->dst, o->count, o->type, comm, stream);
    case wn_kind_reduce_scatter: return p_ncclReduceScatter(o->src, o->dst, o->count, o->type, o->reduce, comm, stream);
    case wn_kind_broadcast: return p_ncclBroadcast(o->src, o->dst, o->count, o->type, o->peer, comm, stream);
    case wn_kind_reduce: return p_ncclReduce(o->src, o->dst, o->count, o->type, o->reduce, o->peer, comm, stream);
    case wn_kind_send: return p_ncclSend(o->src, o->count, o->type, o->peer, comm, stream);
    case wn_kind_recv: return p_ncclRecv(o->dst, o->count, o->type, o->peer, comm, stream);
    case wn_kind_bcast: return p_ncclBcast(o->dst, o->count, o->type, o->peer, comm, stream);
    case wn_kind_alltoall: return p_ncclAlltoAll ? p_ncclAlltoAll(o->src, o->dst, o->count, o->type, comm, stream) : wn_missing;
    case wn_kind_gather: return p_ncclGather ? p_ncclGather(o->src, o->dst, o->count, o->type, o->peer, comm, stream) : wn_missing;
    case wn_kind_scatter: return p_ncclScatter ? p_ncclScatter(o->src, o->dst, o->count, o->type, o->peer, comm, stream) : wn_missing;
    }
    return 4;
}

// settle waits at most spin microseconds for a communicator that is at work, and returns its state.
static int32_t settle(uintptr_t comm, int32_t spin) {
    struct timespec begin, now;
    int32_t state = 7, r;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (;;) {
        if ((r = p_ncclCommGetAsyncError(comm, &state)) != 0)
            return r;
        if (state != 7)
            return state;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((now.tv_sec - begin.tv_sec) * 1000000 + (now.tv_nsec - begin.tv_nsec) / 1000 >= spin)
            return 7;
    }
}

// group issues the operations as one group; a single one is a group of its own.
static int32_t group(const wn_op *ops, int32_t n, uintptr_t comm, uintptr_t stream, char *text, size_t size) {
    int32_t r = 0, end;
    if (n == 1)
        return explain(issue(ops, comm, stream), text, size);
    if ((r = p_ncclGroupStart()) != 0)
        return explain(r, text, size);
    for (int32_t i = 0; i < n && (r == 0 || r == 7); i++)
        r = issue(&ops[i], comm, stream);
    if (r != 0 && r != 7) {
        explain(r, text, size);
        p_ncclGroupEnd(); // it must be closed, and answers with the same error
        return r;
    }
    end = p_ncclGroupEnd();
    return explain(end, text, size);
}

// wn_enqueue goes on where job->stage says, so that a caller that got 7 (in progress) calls again. The whole of it runs on
// one thread: a group belongs to its thread.
int32_t wn_enqueue(wn_job *job, const wn_op *ops, const wn_copy *before, const wn_copy *after, char *text, size_t size) {
    uintptr_t comm = job->comm, stream = job->stream;
    int32_t state = 0, r = enter(job->ctx);
    if (r != 0)
        return r;
    if ((r = p_ncclCommGetAsyncError(comm, &state)) != 0)
        return explain(r, text, size);
    if (state == 7 && (state = settle(comm, job->spin)) == 7)
        return 7;
    if (state != 0)
        return explain(state, text, size);
    if (job->stage == wn_stage_none) {
        if ((r = copies(before, job->num_before, stream)) != 0)
            return r;
        if (job->num_ops > 0) {
            r = group(ops, job->num_ops, comm, stream, text, size);
            if (r != 0 && r != 7)
                return r;
        }
        job->stage = wn_stage_group;
        if (r == 7 && (r = settle(comm, job->spin)) != 0)
            return explain(r, text, size);
    }
    if ((r = copies(after, job->num_after, stream)) != 0)
        return r;
    job->stage = wn_stage_all;
    return 0;
}

// wn_simulate asks what a group would take. Nothing is launched.
int32_t wn_simulate(wn_job *job, const wn_op *ops, float *time, char *text, size_t size) {
    wn_sim info = {sizeof info, 0x74685283, 22200, -1};
    int32_t r = enter(job->ctx);
    if (p_ncclGroupSimulateEnd == NULL)
        return wn_missing;
    if (r == 0)
        r = p_ncclGroupStart();
    if (r != 0)
        return explain(r, text, size);
    for (int32_t i = 0; i < job->num_ops && (r == 0 || r == 7); i++)
        r = issue(&ops[i], job->comm, job->stream);
    if (r != 0 && r != 7) {
        explain(r, text, size);
        p_ncclGroupEnd();
        return r;
    }
    r = p_ncclGroupSimulateEnd(&info);
    *time = info.estimated_time;
    return explain(r, text, size);
}

int32_t wn_team_of(int32_t call, uintptr_t comm, wn_team *out) {
    wn_team (*team)(uintptr_t) = call == wn_ncclTeamWorld ? p_ncclTeamWorld : call == wn_ncclTeamLsa ? p_ncclTeamLsa : p_ncclTeamRail;
    if (team == NULL)
        return wn_missing;
    *out = team(comm);
    return 0;
}

// wn_param_keys writes the names one a line.
int32_t wn_param_keys(char *out, size_t size) {
    const char **table = NULL;
    int32_t n = 0, r;
    size_t at = 0;
    if (p_ncclParamGetAllParameterKeys == NULL)
        return wn_missing;
    if ((r = p_ncclParamGetAllParameterKeys(&table, &n)) != 0)
        return r;
    for (int32_t i = 0; i < n; i++) {
        size_t len = strlen(table[i]);
        if (at + len + 2 > size)
            break;
        memcpy(out + at, table[i], len);
        out[at + len] = '\n';
        at += len + 1;
    }
    out[at] = 0;
    return 0;
}
