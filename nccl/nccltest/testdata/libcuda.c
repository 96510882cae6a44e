// A libcuda for the tests of package nccl on machines without a GPU: that of package cuda, with FAKE_DEVICES devices (8 when
// unset), memory of any size, and streams that run their work in order, each on a thread of its own. libnccl.c gives work to
// streams through fake_push.
#define cuDeviceGetCount plain_cuDeviceGetCount
#define cuDeviceGet plain_cuDeviceGet
#define cuMemAlloc_v2 plain_cuMemAlloc_v2
#define cuMemFree_v2 plain_cuMemFree_v2
#define cuMemHostAlloc plain_cuMemHostAlloc
#define cuMemcpyAsync plain_cuMemcpyAsync
#define cuMemsetD8Async plain_cuMemsetD8Async
#define cuMemsetD32Async plain_cuMemsetD32Async
#define cuStreamCreateWithPriority plain_cuStreamCreateWithPriority
#define cuStreamDestroy_v2 plain_cuStreamDestroy_v2
#define cuStreamQuery plain_cuStreamQuery
#define cuStreamSynchronize plain_cuStreamSynchronize
#define cuStreamWaitEvent plain_cuStreamWaitEvent
#define cuStreamGetCtx plain_cuStreamGetCtx
#define cuEventCreate plain_cuEventCreate
#define cuEventDestroy_v2 plain_cuEventDestroy_v2
#define cuEventRecord plain_cuEventRecord
#define cuEventQuery plain_cuEventQuery
#define cuEventSynchronize plain_cuEventSynchronize
#include "../../../cuda/testdata/libcuda.c"
#undef cuDeviceGetCount
#undef cuDeviceGet
#undef cuMemAlloc_v2
#undef cuMemFree_v2
#undef cuMemHostAlloc
#undef cuMemcpyAsync
#undef cuMemsetD8Async
#undef cuMemsetD32Async
#undef cuStreamCreateWithPriority
#undef cuStreamDestroy_v2
#undef cuStreamQuery
#undef cuStreamSynchronize
#undef cuStreamWaitEvent
#undef cuStreamGetCtx
#undef cuEventCreate
#undef cuEventDestroy_v2
#undef cuEventRecord
#undef cuEventQuery
#undef cuEventSynchronize

#include <pthread.h>

static int devices(void) { return getenv("FAKE_DEVICES") ? atoi(getenv("FAKE_DEVICES")) : 8; }
int fake_device(void) { return (int)current - 77; } // of the calling thread

int cuDeviceGetCount(int *n) { *n = devices(); return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return i < devices() ? 0 : 101; }
#define CURRENT if (current < 77) return 201

int cuMemAlloc_v2(h *p, size_t n) { CURRENT; *p = (h)aligned_alloc(256, (n + 255) / 256 * 256); memset((void *)*p, 0x5a, n); return *p ? 0 : 2; }
int cuMemFree_v2(h p) { CURRENT; free((void *)p); return 0; }
int cuMemHostAlloc(h *p, size_t n, unsigned f) { CURRENT; (void)f; *p = (h)malloc(n); return 0; }

// A task is a piece of a stream's work.
typedef struct task { void (*run)(void *); void *arg; struct task *next; } task;
typedef struct { h ctx; pthread_t thread; pthread_mutex_t mu; pthread_cond_t cond; task *head, **tail; int busy, quit; } stream;

static void *serve(void *x) {
    stream *s = x;
    pthread_mutex_lock(&s->mu);
    current = s->ctx;
    for (;;) {
        while (s->head == NULL && !s->quit)
            pthread_cond_wait(&s->cond, &s->mu);
        task *t = s->head;
        if (t == NULL)
            break;
        if ((s->head = t->next) == NULL)
            s->tail = &s->head;
        s->busy = 1;
        pthread_mutex_unlock(&s->mu);
        t->run(t->arg);
        free(t);
        pthread_mutex_lock(&s->mu);
        s->busy = 0;
        pthread_cond_broadcast(&s->cond);
    }
    pthread_mutex_unlock(&s->mu);
    return NULL;
}

// fake_push appends work. Work that waits for nobody runs at once when the stream is idle.
void fake_push(h handle, void (*run)(void *), void *arg, int waits) {
    stream *s = (stream *)handle;
    pthread_mutex_lock(&s->mu);
    if (!waits && s->head == NULL && !s->busy) {
        run(arg);
        pthread_mutex_unlock(&s->mu);
        return;
    }
    task *t = malloc(sizeof *t);
    *t = (task){run, arg, NULL};
    *s->tail = t;
    s->tail = &t->next;
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->mu);
}

int cuStreamCreateWithPriority(h *out, unsigned f, int p) {
    (void)p;
    CURRENT;
    stream *s = calloc(1, sizeof *s);
    s->ctx = current;
    s->tail = &s->head;
    pthread_mutex_init(&s->mu, NULL);
    pthread_cond_init(&s->cond, NULL);
    pthread_create(&s->thread, NULL, serve, s);
    *out = (h)s;
    return f == 1 ? 0 : 1;
}

int cuStreamQuery(h x) {
    stream *s = (stream *)x;
    pthread_mutex_lock(&s->mu);
    int busy = s->head != NULL || s->busy;
    pthread_mutex_unlock(&s->mu);
    return busy ? 600 : 0;
}

int cuStreamSynchronize(h x) {
    stream *s = (stream *)x;
    pthread_mutex_lock(&s->mu);
    while (s->head != NULL || s->busy)
        pthread_cond_wait(&s->cond, &s->mu);
    pthread_mutex_unlock(&s->mu);
    return 0;
}

int cuStreamDestroy_v2(h x) {
    stream *s = (stream *)x;
    pthread_mutex_lock(&s->mu);
    s->quit = 1;
    pthread_cond_broadcast(&s->cond);
    pthread_mutex_unlock(&s->mu);
    pthread_join(s->thread, NULL);
    free(s);
    return 0;
}

int cuStreamGetCtx(h x, h *c) { *c = ((stream *)x)->ctx; return 0; }

typedef struct { uint32_t v; size_t n; h dst, src; size_t dp, sp, rows; int kind; } move;

static void do_move(void *x) {
    move *m = x;
    switch (m->kind) {
    case 0: memmove((void *)m->dst, (void *)m->src, m->n); break;
    case 1: memset((void *)m->dst, m->v, m->n); break;
    case 2: for (size_t i = 0; i < m->n; i++) ((uint32_t *)m->dst)[i] = m->v; break;
    case 3: for (size_t i = 0; i < m->rows; i++) memmove((char *)m->dst + i * m->dp, (char *)m->src + i * m->sp, m->n); break;
    }
    free(m);
}

static int moves(h q, move m) {
    CURRENT;
    move *copy = malloc(sizeof *copy);
    *copy = m;
    fake_push(q, do_move, copy, 0);
    return 0;
}

int cuMemcpyAsync(h d, h s, size_t n, h q) { return moves(q, (move){.dst = d, .src = s, .n = n}); }
int cuMemsetD8Async(h d, unsigned char v, size_t n, h q) { return moves(q, (move){.kind = 1, .dst = d, .v = v, .n = n}); }
int cuMemsetD32Async(h d, unsigned v, size_t n, h q) { return moves(q, (move){.kind = 2, .dst = d, .v = v, .n = n}); }

typedef struct {
    size_t sx, sy; int st; int pad; void *sh; h s; void *sa; size_t sp;
    size_t dx, dy; int dt; int pad2; void *dh; h d; void *da; size_t dp, width, height;
} copy2d;

int cuMemcpy2DAsync_v2(const copy2d *c, h q) {
    if (c->st != 4 || c->dt != 4 || c->sp < c->width || c->dp < c->width)
        return 1;
    return moves(q, (move){.kind = 3, .dst = c->d, .src = c->s, .dp = c->dp, .sp = c->sp, .n = c->width, .rows = c->height});
}

typedef struct { uint64_t made, done; } event;
static pthread_mutex_t event_mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t event_cond = PTHREAD_COND_INITIALIZER;
typedef struct { event *e; uint64_t n; } mark;

static void do_record(void *x) {
    mark *m = x;
    pthread_mutex_lock(&event_mu);
    if (m->e->done < m->n)
        m->e->done = m->n;
    pthread_cond_broadcast(&event_cond);
    pthread_mutex_unlock(&event_mu);
    free(m);
}

static void do_wait(void *x) {
    mark *m = x;
    pthread_mutex_lock(&event_mu);
    while (m->e->done < m->n)
        pthread_cond_wait(&event_cond, &event_mu);
    pthread_mutex_unlock(&event_mu);
    free(m);
}

static mark *mark_of(h x, int more) {
    mark *m = malloc(sizeof *m);
    pthread_mutex_lock(&event_mu);
    m->e = (event *)x;
    m->n = m->e->made += more;
    pthread_mutex_unlock(&event_mu);
    return m;
}

int cuEventCreate(h *e, unsigned f) { (void)f; *e = (h)calloc(1, sizeof(event)); return 0; }
int cuEventDestroy_v2(h e) { free((void *)e); return 0; }
int cuEventRecord(h e, h s) { fake_push(s, do_record, mark_of(e, 1), 0); return 0; }
int cuStreamWaitEvent(h s, h e, unsigned f) { (void)f; fake_push(s, do_wait, mark_of(e, 0), 1); return 0; }
int cuEventSynchronize(h e) { do_wait(mark_of(e, 0)); return 0; }
int cuEventQuery(h x) {
    event *e = (event *)x;
    pthread_mutex_lock(&event_mu);
    int done = e->done >= e->made;
    pthread_mutex_unlock(&event_mu);
    return done ? 0 : 600;
}
