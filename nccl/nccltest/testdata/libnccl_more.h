// The rest of the stand-in: the end of communicators, those made from others, and calls that only say what they were given.

// gone takes a communicator out of its clique; mu is held.
static void gone(comm *c) {
    while (c->jobs > 0)
        pthread_cond_wait(&changed, &mu);
    c->q->comms[c->rank] = NULL;
    c->q->left += !c->finalized;
    pthread_cond_broadcast(&changed);
    free(c);
}

int ncclCommAbort(comm *c) {
    pthread_mutex_lock(&mu);
    c->aborted = 1;
    pthread_cond_broadcast(&changed);
    gone(c);
    pthread_mutex_unlock(&mu);
    return ok;
}

int ncclCommDestroy(comm *c) {
    pthread_mutex_lock(&mu);
    gone(c);
    pthread_mutex_unlock(&mu);
    return ok;
}

int ncclCommFinalize(comm *c) {
    pthread_mutex_lock(&mu);
    c->finalized = 1;
    c->q->finalized++;
    pthread_cond_broadcast(&changed);
    c->jobs++; // an abort meanwhile waits until this call has left
    int r = c->blocking ? settled(c) : in_progress;
    c->jobs--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mu);
    return r;
}

int ncclCommCount(comm *c, int *n) { *n = c->q->n; return ok; }
int ncclCommCuDevice(comm *c, int *d) { *d = c->dev; return ok; }
int ncclCommUserRank(comm *c, int *r) { *r = c->rank; return ok; }

int ncclCommInitAll(comm **out, int n, const int *devices) {
    uid id;
    ncclGetUniqueId(&id);
    pthread_mutex_lock(&mu);
    clique *q = calloc(1, sizeof *q);
    q->id = id;
    q->n = n;
    q->next = cliques;
    cliques = q;
    for (int i = 0; i < n; i++)
        out[i] = enter(q, i, devices[i], 1);
    pthread_mutex_unlock(&mu);
    return ok;
}

// divide makes the cliques of a split that all have come to; mu is held.
static void divide(division *d, int n) {
    for (int i = 0; i < n; i++) {
        comm *c = d->from[i];
        if (c == NULL)
            continue;
        c->splitting = 0;
        if (d->color[i] < 0 || *d->out[i] != NULL)
            continue;
        clique *q = calloc(1, sizeof *q);
        int order[most], m = 0;
        for (int k = 0; k < n; k++)
            if (d->from[k] && d->color[k] == d->color[i])
                order[m++] = k;
        for (int a = 1; a < m; a++) // by key, then by rank
            for (int b = a; b > 0 && d->key[order[b]] < d->key[order[b - 1]]; b--) {
                int t = order[b];
                order[b] = order[b - 1];
                order[b - 1] = t;
            }
        q->n = m;
        for (int k = 0; k < m; k++) {
            comm *from = d->from[order[k]];
            __atomic_store_n(d->out[order[k]], enter(q, k, from->dev, from->blocking), __ATOMIC_RELEASE);
        }
    }
    memset(d, 0, sizeof *d);
    pthread_cond_broadcast(&changed);
}

static int part(comm *c, int color, int key, comm **out, int need) {
    pthread_mutex_lock(&mu);
    division *d = &c->q->split;
    *out = NULL;
    d->color[c->rank] = color;
    d->key[c->rank] = key;
    d->out[c->rank] = out;
    d->from[c->rank] = c;
    c->splitting = 1;
    if (++d->come == need)
        divide(d, c->q->n);
    int r = c->blocking ? settled(c) : in_progress;
    pthread_mutex_unlock(&mu);
    return r;
}

int ncclCommSplit(comm *c, int color, int key, comm **out, const config *cfg) {
    if (cfg && (cfg->magic != 0xcafebeef || cfg->size != 96))
        return say(bad_argument, "ncclConfig_t: size %zu", cfg->size);
    return part(c, color, key, out, c->q->n);
}

int ncclRedOpCreatePreMulSum(int *op, void *scalar, int t, int residence, comm *c) {
    if (t != F32 || c->reds == 16)
        return say(bad_argument, "pre-multiplied sum of type %d", t);
    if (residence)
        c->scale[c->reds] = *(float *)scalar;
    else
        c->scale_at[c->reds] = scalar;
    *op = 5 + c->reds++;
    return ok;
}
int ncclRedOpDestroy(int op, comm *c) { return op >= 5 && op < 5 + c->reds ? ok : say(bad_argument, "no reduction %d", op); }

#if VERSION >= 21901
int ncclMemAlloc(void **p, size_t n) { *p = aligned_alloc(4096, (n + 4095) / 4096 * 4096); return ok; }
int ncclMemFree(void *p) { free(p); return ok; }
int ncclCommRegister(comm *c, void *p, size_t n, void **out) { (void)c; *out = malloc(1); return say(ok, "register %d %zu", p != NULL, n); }
int ncclCommDeregister(comm *c, void *p) { (void)c; free(p); return ok; }
#endif
#if VERSION >= 22203
typedef struct { size_t size; unsigned magic, version; float time; } sim;
int ncclGroupSimulateEnd(sim *s) {
    int n = 0;
    for (op *next, *o = list; o; o = next, n++) {
        next = o->next;
        free(o);
    }
    list = NULL;
    depth--;
    s->time = 1.5f * n;
    return s->size == 24 && s->magic == 0x74685283 ? ok : say(bad_argument, "ncclSimInfo_t: size %zu", s->size);
}
#endif
#if VERSION >= 22304
int ncclCommInitRankScalable(comm **out, int n, int rank, int num, uid *ids, const config *cfg) {
    if (num < 1 || ids[num - 1].b[0] != 'f')
        return say(bad_argument, "%d ids, the last is %.20s", num, num > 0 ? ids[num - 1].b : "");
    return ncclCommInitRankConfig(out, n, ids[0], rank, cfg);
}
#endif
#if VERSION >= 22703
int ncclCommShrink(comm *c, const int *excluded, int n, comm **out, const config *cfg, int flags) {
    (void)cfg;
    for (int i = 0; i < n; i++)
        if (excluded[i] == c->rank || excluded[i] < 0 || excluded[i] >= c->q->n)
            return say(bad_argument, "shrink: rank %d excludes %d of %d, flags %d", c->rank, excluded[i], c->q->n, flags);
    return part(c, 0, c->rank, out, c->q->n - n);
}
int ncclCommWindowRegister(comm *c, void *p, size_t n, void **out, int flags) { (void)c; (void)n; *out = flags == 1 ? p : NULL; return ok; }
int ncclCommWindowDeregister(comm *c, void *w) { (void)c; return say(ok, "window closed %d", w != NULL); }
#endif
#if VERSION >= 22803
typedef struct { int n, rank, stride; } team;
team ncclTeamWorld(comm *c) { return (team){c->q->n, c->rank, 1}; }
team ncclTeamLsa(comm *c) { return (team){c->q->n, c->rank, 1}; }
team ncclTeamRail(comm *c) { return (team){1, 0, c->q->n}; }
int ncclTeamRankToWorld(comm *c, team t, int rank) { return c->rank + (rank - t.rank) * t.stride; }
int ncclTeamRankToLsa(comm *c, team t, int rank) { return 100 + c->rank + (rank - t.rank) * t.stride; }
int ncclLsaBarrierCreateRequirement(team t, int n, int *handle, int *req) { *handle = t.n; *req = n; return ok; }
int ncclGinBarrierCreateRequirement(comm *c, team t, int n, int *handle, int *req) { *handle = c->rank + t.stride; *req = n; return ok; }
int ncclLLA2ACalcSlots(int elements, int bytes) { return elements * bytes / 8; }
int ncclLLA2ACreateRequirement(int blocks, int slots, int *handle, int *req) { *handle = blocks; *req = slots; return ok; }
int ncclDevCommCreate(comm *c, const int *requirements, int *out) { *out = *requirements + c->rank; return ok; }
int ncclDevCommDestroy(comm *c, const int *dev) { return say(ok, "devcomm %d of rank %d", *dev, c->rank); }
#endif
#if VERSION >= 22807
int ncclCommRevoke(comm *c, int flags) {
    pthread_mutex_lock(&mu);
    c->aborted = 1;
    pthread_cond_broadcast(&changed);
    while (c->jobs > 0)
        pthread_cond_wait(&changed, &mu);
    c->aborted = 0;
    pthread_mutex_unlock(&mu);
    return flags == 0 ? ok : say(bad_argument, "revoke flags %d", flags);
}
#endif
#if VERSION >= 22902
int ncclCommGetUniqueId(comm *c, uid *id) { (void)c; return ncclGetUniqueId(id); }
// A rank that joins late: the call has returned, and the handle is written by a thread some time later.
typedef struct { comm **out; int n, rank; uid id; config cfg; h ctx; int ms; } joining;
extern int cuCtxGetCurrent(h *c), cuCtxSetCurrent(h c);
static void *join_late(void *x) {
    joining *j = x;
    struct timespec pause = {j->ms / 1000, j->ms % 1000 * 1000000L};
    nanosleep(&pause, NULL);
    cuCtxSetCurrent(j->ctx);
    ncclCommInitRankConfig(j->out, j->n, j->id, j->rank, &j->cfg);
    free(j);
    return NULL;
}

// Grow as if all were new: the root of the members brings the id, which the stand-in remembers for the others.
int ncclCommGrow(comm *c, int n, const uid *id, int rank, comm **out, const config *cfg) {
    static uid known;
    if (id)
        known = *id;
    const char *late = getenv("FAKE_NCCL_LATE_JOIN");
    if (c == NULL && late && cfg && !cfg->blocking) {
        joining *j = malloc(sizeof *j);
        *j = (joining){out, n, rank, known, *cfg, 0, atoi(late)};
        cuCtxGetCurrent(&j->ctx);
        pthread_t thread;
        pthread_create(&thread, NULL, join_late, j);
        pthread_detach(thread);
        return in_progress;
    }
    return ncclCommInitRankConfig(out, n, known, c ? c->rank : rank, cfg);
}
int ncclWinGetUserPtr(comm *c, void *w, void **out) { (void)c; *out = w; return ok; }
int ncclGetLsaDevicePointer(char *w, size_t off, int rank, void **out) { *out = w + off + 1000 * rank; return ok; }
int ncclGetPeerDevicePointer(char *w, size_t off, int rank, void **out) { *out = w + off + 2000 * rank; return ok; }
int ncclGetLsaMultimemDevicePointer(char *w, size_t off, void **out) { *out = w + off + 7; return ok; }
int ncclCommQueryProperties(comm *c, int *p) { p[0] = c->q->n; return ok; }
int ncclPutSignal(const void *src, size_t n, int t, int peer, char *w, size_t off, int sig, int ctx, unsigned flags, comm *c, h q) {
    (void)q;
    memcpy(w + off, src, n * size_of(t));
    return say(ok, "put %zu of type %d to %d signal %d ctx %d flags %u from %d", n, t, peer, sig, ctx, flags, c->rank);
}
int ncclSignal(int peer, int sig, int ctx, unsigned flags, comm *c, h q) { (void)q; return say(ok, "signal %d to %d ctx %d flags %u from %d", sig, peer, ctx, flags, c->rank); }
typedef struct { int n, peer, sig, ctx; } expected;
int ncclWaitSignal(int n, const expected *e, comm *c, h q) { (void)c; (void)q; return say(ok, "wait %d: last %d of %d signal %d ctx %d", n, e[n - 1].n, e[n - 1].peer, e[n - 1].sig, e[n - 1].ctx); }
#endif
#if VERSION >= 22907
int ncclCommSuspend(comm *c, int flags) { return say(ok, "suspend %d flags %d", c->rank, flags); }
int ncclCommResume(comm *c) { return say(ok, "resume %d", c->rank); }
int ncclCommMemStats(comm *c, int stat, uint64_t *v) { (void)c; *v = 1000 + stat; return ok; }
#endif
#if VERSION >= 23004
int ncclParamGetParameter(const char *key, const char **v, int *n) { *v = "42"; *n = 2; return strcmp(key, "NCCL_FAKE") == 0 ? ok : say(bad_argument, "no parameter %s", key); }
int ncclParamGetAllParameterKeys(const char ***table, int *n) {
    static const char *keys[] = {"NCCL_FAKE", "NCCL_OTHER"};
    *table = keys;
    *n = 2;
    return ok;
}
#endif
