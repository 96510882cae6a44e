// A libnccl for tests without a GPU: ranks are communicators of one process, device memory is libcuda.c's host memory, and an
// operation is a task of its stream that waits for the same call of the other ranks. -DVERSION=21801 is an older library that
// lacks what came later. Sums are made in rank order with one rounding, so that they have one right answer. Calls that do not
// fit together wait until they are aborted, as with the real library.
//
//	FAKE_NCCL_ASYNC=RANK:CODE   the communicators of a rank have failed with a code
//	FAKE_NCCL_LATE_JOIN=MS      a new rank's ncclCommGrow writes its handle so much later, when the call has long returned
//	FAKE_NCCL_STUCK=RANK        calls of a rank do not return until they are aborted, as if they waited for a peer to connect
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "numbers.h"

#ifndef VERSION
#define VERSION 23007
#endif

typedef uintptr_t h;
extern void fake_push(h stream, void (*run)(void *), void *arg, int waits);
extern int fake_device(void);

enum { ok, cuda_error, system_error, internal_error, bad_argument, bad_usage, remote_error, in_progress };
enum { all_reduce, all_gather, reduce_scatter, broadcast, reduce_to, send_to, recv_from, bcast, alltoall, gather, scatter };
enum { most = 64 };

typedef struct { char b[128]; } uid;
typedef struct { size_t size; unsigned magic, version; int blocking, cga, min, max; const char *net; int split_share, traffic; const char *name; int rest[10]; } config;

struct comm;
typedef struct op { int kind, type, red, peer, done; const char *src; char *dst; size_t count; struct comm *c; h stream; uint64_t seq; struct op *next; } op;
typedef struct meeting { uint64_t seq; op *ops[most]; int come; struct meeting *next; } meeting;
typedef struct { int come, need, color[most], key[most]; struct comm **out[most]; struct comm *from[most]; } division;
typedef struct clique { uid id; int n, joined, left, finalized; struct comm *comms[most]; meeting *meetings; op *messages; division split; struct clique *next; } clique;
typedef struct comm { clique *q; int rank, dev, blocking, aborted, jobs, error, splitting, finalized, reds; float scale[16]; const float *scale_at[16]; uint64_t seq; double busy; char name[32]; } comm;

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static clique *cliques;
static char last[512];
static _Thread_local int depth;
static _Thread_local op *list, **tail;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int say(int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last, sizeof last, format, args);
    va_end(args);
    return code;
}

int ncclGetVersion(int *v) { *v = VERSION; return ok; }
const char *ncclGetErrorString(int code) {
    static const char *names[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage", "remote process exited or there was a network error", "NCCL operation in progress"};
    return code >= 0 && code < 8 ? names[code] : "unknown result code";
}
const char *ncclGetLastError(comm *c) { (void)c; return last; }

int ncclGetUniqueId(uid *id) {
    static int made;
    memset(id, 0, sizeof *id);
    pthread_mutex_lock(&mu);
    snprintf(id->b, sizeof id->b, "fake-%d", ++made);
    pthread_mutex_unlock(&mu);
    return ok;
}

// state is the communicator's; mu is held.
static int state(comm *c) {
    const char *inject = getenv("FAKE_NCCL_ASYNC");
    int rank, code;
    if (c->error)
        return c->error;
    if (inject && sscanf(inject, "%d:%d", &rank, &code) == 2 && rank == c->rank)
        return say(code, "injected into rank %d", rank);
    if (c->q->joined < c->q->n || c->splitting || now() < c->busy || (c->finalized && c->q->finalized + c->q->left < c->q->n))
        return in_progress;
    return ok;
}

static int settled(comm *c) {
    int r;
    while (!c->aborted && (r = state(c)) == in_progress)
        pthread_cond_wait(&changed, &mu);
    return c->aborted ? internal_error : r;
}

int ncclCommGetAsyncError(comm *c, int *out) {
    pthread_mutex_lock(&mu);
    *out = state(c);
    pthread_mutex_unlock(&mu);
    return ok;
}

static comm *enter(clique *q, int rank, int dev, int blocking) {
    comm *c = calloc(1, sizeof *c);
    c->q = q;
    c->rank = rank;
    c->dev = dev;
    c->blocking = blocking;
    for (int i = 0; i < q->n; i++)
        if (q->comms[i] && q->comms[i]->dev == dev)
            c->error = say(bad_usage, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %d", rank, i, dev);
    q->comms[rank] = c;
    q->joined++;
    pthread_cond_broadcast(&changed);
    return c;
}

static _Thread_local comm *begun[most];
static _Thread_local int num_begun;

int ncclCommInitRankConfig(comm **out, int n, uid id, int rank, const config *cfg) {
    int blocking = 1;
    if (n < 1 || n > most || rank < 0 || rank >= n)
        return say(bad_argument, "Invalid rank requested : %d/%d", rank, n);
    if (cfg) {
        if (cfg->magic != 0xcafebeef || cfg->size != 96 || cfg->version != 23007)
            return say(bad_argument, "ncclConfig_t: size %zu magic %x version %u", cfg->size, cfg->magic, cfg->version);
        if (cfg->min != -2147483647 - 1 && cfg->max != -2147483647 - 1 && cfg->min > cfg->max)
            return say(bad_argument, "minCTAs %d > maxCTAs %d, name %s", cfg->min, cfg->max, cfg->name ? cfg->name : "none");
        blocking = cfg->blocking != 0;
    }
    pthread_mutex_lock(&mu);
    clique *q = cliques;
    while (q && memcmp(&q->id, &id, sizeof id) != 0)
        q = q->next;
    if (q == NULL) {
        q = calloc(1, sizeof *q);
        q->id = id;
        q->n = n;
        q->next = cliques;
        cliques = q;
    }
    *out = enter(q, rank, fake_device(), blocking);
    int r = (*out)->error;
    if (r == ok && !blocking)
        r = in_progress;
    else if (r == ok && depth > 0)
        begun[num_begun++] = *out;
    else if (r == ok)
        r = settled(*out);
    pthread_mutex_unlock(&mu);
    return r;
}

int ncclCommInitRank(comm **out, int n, uid id, int rank) { return ncclCommInitRankConfig(out, n, id, rank, NULL); }
int ncclGroupStart(void) { depth++; return ok; }

// The bytes that a rank gives and gets.
static size_t bytes(const op *o) { return o->count * size_of(o->type); }

// perform does a collective that all ranks have come to; mu is held. Results are made before any is written, for operations
// in place.
static void perform(op **ops, int n) {
    op *a = ops[0];
    size_t b = bytes(a);
    const void *src[most];
    float scale[most];
    char *out[most] = {0};
    int red = a->red, scaled = red > 4;
    for (int r = 0; r < n; r++) {
        src[r] = ops[r]->src;
        if (scaled)
            scale[r] = ops[r]->c->scale_at[red - 5] ? *ops[r]->c->scale_at[red - 5] : ops[r]->c->scale[red - 5];
    }
    if (scaled)
        red = 0;
    for (int r = 0; r < n; r++) {
        size_t want = a->kind == all_gather || a->kind == alltoall || (a->kind == gather && r == a->peer) ? b * n : b;
        const void *part[most];
        out[r] = malloc(want + 1);
        switch (a->kind) {
        case all_reduce: case reduce_to:
            reduce(a->type, red, n, src, out[r], a->count, scaled ? scale : NULL);
            break;
        case reduce_scatter:
            for (int i = 0; i < n; i++)
                part[i] = ops[i]->src + r * b;
            reduce(a->type, red, n, part, out[r], a->count, scaled ? scale : NULL);
            break;
        case broadcast: memcpy(out[r], ops[a->peer]->src, b); break;
        case bcast: memcpy(out[r], ops[a->peer]->dst, b); break;
        case all_gather: case gather:
            for (int i = 0; i < n && (a->kind == all_gather || r == a->peer); i++)
                memcpy(out[r] + i * b, ops[i]->src, b);
            break;
        case alltoall:
            for (int i = 0; i < n; i++)
                memcpy(out[r] + i * b, ops[i]->src + r * b, b);
            break;
        case scatter: memcpy(out[r], ops[a->peer]->src + r * b, b); break;
        }
    }
    for (int r = 0; r < n; r++) {
        int gets = (a->kind != reduce_to && a->kind != gather) || r == a->peer;
        if (gets)
            memcpy(ops[r]->dst, out[r], a->kind == all_gather || a->kind == alltoall || a->kind == gather ? b * n : b);
        free(out[r]);
        ops[r]->done = 1;
    }
}

static int alike(const op *a, const op *b) { return a->kind == b->kind && a->type == b->type && a->red == b->red && a->peer == b->peer && a->count == b->count; }

// publish lets the other ranks find an operation, and does it if it was the last; mu is held.
static void publish(op *o) {
    clique *q = o->c->q;
    if (o->kind == send_to || o->kind == recv_from) {
        for (op **p = &q->messages; *p; p = &(*p)->next) {
            op *other = *p;
            if (other->kind != o->kind && (other->kind == send_to || other->kind == recv_from) && other->c->rank == o->peer && other->peer == o->c->rank) {
                op *s = o->kind == send_to ? o : other, *d = o->kind == send_to ? other : o;
                memcpy(d->dst, s->src, bytes(s) < bytes(d) ? bytes(s) : bytes(d));
                *p = other->next;
                o->done = other->done = 1;
                pthread_cond_broadcast(&changed);
                return;
            }
        }
        op **end = &q->messages;
        while (*end)
            end = &(*end)->next;
        o->next = NULL;
        *end = o;
        return;
    }
    meeting **p = &q->meetings;
    while (*p && (*p)->seq != o->seq)
        p = &(*p)->next;
    if (*p == NULL) {
        *p = calloc(1, sizeof **p);
        (*p)->seq = o->seq;
    }
    meeting *m = *p;
    m->ops[o->c->rank] = o;
    if (++m->come < q->n)
        return;
    for (int i = 1; i < q->n; i++)
        if (!alike(m->ops[0], m->ops[i]))
            return; // for ever
    perform(m->ops, q->n);
    *p = m->next;
    free(m);
    pthread_cond_broadcast(&changed);
}

// withdraw makes the others forget an operation that was aborted; mu is held.
static void withdraw(op *o) {
    clique *q = o->c->q;
    for (op **p = &q->messages; *p; p = &(*p)->next)
        if (*p == o) {
            *p = o->next;
            return;
        }
    for (meeting *m = q->meetings; m; m = m->next)
        if (m->ops[o->c->rank] == o) {
            m->ops[o->c->rank] = NULL;
            m->come = -most; // it will never be complete
        }
}

typedef struct { int n; comm *c; op *ops[1]; } work;

// run is the task of a group on its stream.
static void run(void *x) {
    work *w = x;
    pthread_mutex_lock(&mu);
    for (int i = 0; i < w->n && !w->c->aborted; i++)
        publish(w->ops[i]);
    for (int i = 0; i < w->n; i++) {
        while (!w->ops[i]->done && !w->c->aborted)
            pthread_cond_wait(&changed, &mu);
        if (!w->ops[i]->done)
            withdraw(w->ops[i]);
    }
    w->c->jobs--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
    for (int i = 0; i < w->n; i++)
        free(w->ops[i]);
    free(w);
}

// launch gives the calls of a group to their streams, one task for each communicator.
static int launch(void) {
    int r = ok;
    while (list) {
        comm *c = list->c;
        h stream = list->stream;
        int n = 0;
        for (op *o = list; o; o = o->next)
            n += o->c == c;
        work *w = malloc(sizeof *w + n * sizeof w->ops[0]);
        w->n = 0;
        w->c = c;
        op *others = NULL, **end = &others, *next;
        pthread_mutex_lock(&mu);
        for (op *o = list; o; o = next) {
            next = o->next;
            o->next = NULL;
            if (o->c != c) {
                *end = o;
                end = &o->next;
                continue;
            }
            if (o->kind != send_to && o->kind != recv_from)
                o->seq = ++c->seq;
            w->ops[w->n++] = o;
        }
        c->jobs++;
        if (!c->blocking) { // as if a thread of its own launched it
            c->busy = now() + 20e-6;
            r = in_progress;
        }
        pthread_mutex_unlock(&mu);
        list = others;
        fake_push(stream, run, w, 1);
    }
    return r;
}

int ncclGroupEnd(void) {
    int r = ok;
    if (depth == 0)
        return say(bad_usage, "ncclGroupEnd: not in a group call");
    if (--depth > 0)
        return ok;
    pthread_mutex_lock(&mu);
    for (int i = 0; i < num_begun && r == ok; i++)
        r = settled(begun[i]);
    num_begun = 0;
    pthread_mutex_unlock(&mu);
    return r != ok ? r : launch();
}

static int call(op o) {
    const char *stuck = getenv("FAKE_NCCL_STUCK");
    if (stuck && atoi(stuck) == o.c->rank) {
        pthread_mutex_lock(&mu);
        o.c->jobs++;
        while (!o.c->aborted)
            pthread_cond_wait(&changed, &mu);
        o.c->jobs--;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mu);
        return say(internal_error, "aborted while it connected");
    }
    if (o.peer < 0 || o.peer >= o.c->q->n)
        return say(bad_argument, "rank %d is not in [0, %d)", o.peer, o.c->q->n);
    if (o.count == 0)
        return ok;
    if (depth == 0)
        list = NULL;
    if (list == NULL)
        tail = &list;
    op *copy = malloc(sizeof *copy);
    *copy = o;
    copy->next = NULL;
    while (*tail)
        tail = &(*tail)->next;
    *tail = copy;
    return depth > 0 ? ok : launch();
}

#define OP(k, ...) call((op){.kind = k, .count = n, .type = t, .c = c, .stream = q, __VA_ARGS__})
#define FROM .src = src
#define TO .dst = dst
int ncclAllReduce(const void *src, void *dst, size_t n, int t, int red, comm *c, h q) { return OP(all_reduce, FROM, TO, .red = red); }
int ncclAllGather(const void *src, void *dst, size_t n, int t, comm *c, h q) { return OP(all_gather, FROM, TO); }
int ncclReduceScatter(const void *src, void *dst, size_t n, int t, int red, comm *c, h q) { return OP(reduce_scatter, FROM, TO, .red = red); }
int ncclBroadcast(const void *src, void *dst, size_t n, int t, int root, comm *c, h q) { return OP(broadcast, FROM, TO, .peer = root); }
int ncclBcast(void *dst, size_t n, int t, int root, comm *c, h q) { return OP(bcast, TO, .peer = root); }
int ncclReduce(const void *src, void *dst, size_t n, int t, int red, int root, comm *c, h q) { return OP(reduce_to, FROM, TO, .red = red, .peer = root); }
int ncclSend(const void *src, size_t n, int t, int peer, comm *c, h q) { return OP(send_to, FROM, .peer = peer); }
int ncclRecv(void *dst, size_t n, int t, int peer, comm *c, h q) { return OP(recv_from, TO, .peer = peer); }
#if VERSION >= 22803
int ncclAlltoAll(const void *src, void *dst, size_t n, int t, comm *c, h q) { return OP(alltoall, FROM, TO); }
int ncclGather(const void *src, void *dst, size_t n, int t, int root, comm *c, h q) { return OP(gather, FROM, TO, .peer = root); }
int ncclScatter(const void *src, void *dst, size_t n, int t, int root, comm *c, h q) { return OP(scatter, FROM, TO, .peer = root); }
#endif

#include "libnccl_more.h"
