//go:build linux && cgo

#include "driver.h"

#include <string.h>

#define REQUIRED 0
#define OPTIONAL 1
#define POINTER(name, symbol, params, args, need, since) static int (*p_##name) params;
WEFT_CALLS(POINTER)
WEFT_OWN(POINTER)

typedef struct { const char *name, *since; int32_t optional; void *pointer; } row;
#define ROW(name, symbol, params, args, need, since) {#symbol, since, need, &p_##name},
static const row rows[] = {WEFT_CALLS(ROW) WEFT_OWN(ROW)};

int32_t weft_num_symbols(void) { return sizeof rows / sizeof rows[0]; }

const char *weft_symbol(int32_t i, int32_t *optional, const char **since) {
    *optional = rows[i].optional;
    *since = rows[i].since;
    return rows[i].name;
}

void weft_bind(int32_t i, uintptr_t address) { memcpy(rows[i].pointer, &address, sizeof address); }

// enter makes ctx the thread's current context. The goroutine may have moved to this thread since its last call, so every
// shim begins with it; a cgo call cannot move while it runs.
static inline int enter(uintptr_t ctx) {
    uintptr_t now = 0;
    if (ctx == 0 || (p_cuCtxGetCurrent(&now) == 0 && now == ctx))
        return 0;
    return p_cuCtxSetCurrent(ctx);
}

#define SHIM(name, symbol, params, args, need, since)                 \
    int32_t weft_##name(uintptr_t ctx, WEFT_STRIP params) {           \
        if (p_##name == NULL)                                         \
            return weft_missing;                                      \
        int r = enter(ctx);                                           \
        return r ? r : p_##name args;                                 \
    }
WEFT_CALLS(SHIM)

// weft_error_text copies the library's name and sentence for a code: they depend on nothing but the code.
int32_t weft_error_text(int32_t code, char *name, size_t name_size, char *text, size_t text_size) {
    const char *s = NULL;
    if (p_cuGetErrorName != NULL && p_cuGetErrorName(code, &s) == 0 && s != NULL)
        strncpy(name, s, name_size - 1);
    s = NULL;
    if (p_cuGetErrorString != NULL && p_cuGetErrorString(code, &s) == 0 && s != NULL)
        strncpy(text, s, text_size - 1);
    return 0;
}

static weft_prop prop(int32_t device, int32_t handles) {
    weft_prop p = {.type = 1, .handles = handles, .location = {1, device}};
    return p;
}

int32_t weft_mem_create(uintptr_t ctx, uintptr_t *out, size_t bytes, int32_t device, int32_t handles) {
    weft_prop p = prop(device, handles);
    int r = enter(ctx);
    return r ? r : p_cuMemCreate(out, bytes, &p, 0);
}

int32_t weft_granularity(size_t *out, int32_t device, int32_t handles) {
    weft_prop p = prop(device, handles);
    return p_cuMemGetAllocationGranularity(out, &p, 1);
}

int32_t weft_set_access(uintptr_t ctx, uintptr_t addr, size_t bytes, const int32_t *devices, size_t n) {
    weft_access access[64];
    if (n > 64)
        return 1;
    for (size_t i = 0; i < n; i++)
        access[i] = (weft_access){{1, devices[i]}, 3};
    int r = enter(ctx);
    return r ? r : p_cuMemSetAccess(addr, bytes, access, n);
}

int32_t weft_ipc_open(uintptr_t ctx, uintptr_t *out, const void *handle) {
    weft_ipc h;
    memcpy(&h, handle, sizeof h);
    int r = enter(ctx);
    return r ? r : p_cuIpcOpenMemHandle(out, h, 1);
}

// weft_copy_host copies between the device (dst or src) and host memory that the caller may move or reuse afterwards.
int32_t weft_copy_host(uintptr_t ctx, uintptr_t dst, uintptr_t src, void *host, size_t bytes, uintptr_t stream) {
    int r = enter(ctx);
    if (r == 0)
        r = dst ? p_cuMemcpyAsync(dst, (uintptr_t)host, bytes, stream) : p_cuMemcpyAsync((uintptr_t)host, src, bytes, stream);
    return r ? r : p_cuStreamSynchronize(stream);
}

int32_t weft_exec_update(uintptr_t ctx, uintptr_t exec, uintptr_t graph, int32_t *result) {
    weft_update info = {0};
    int r = enter(ctx);
    if (r == 0)
        r = p_cuGraphExecUpdate(exec, graph, &info);
    *result = info.result;
    return r;
}

enum { max_attributes = 4 };

static void add_number(weft_config *c, int32_t id, uint32_t number) {
    if (number != 0) {
        weft_attribute *a = &c->attributes[c->num++];
        a->id = id;
        a->value.number = number;
    }
}

static weft_config config(const weft_shape *s, uintptr_t stream, weft_attribute *attributes) {
    const int32_t cooperative = 2, cluster = 4, overlap = 6, domain = 10;
    weft_config c = {s->grid[0], s->grid[1], s->grid[2], s->block[0], s->block[1], s->block[2], s->shared, stream, attributes, 0};
    if (s->cluster > 1) {
        weft_attribute *a = &attributes[c.num++];
        a->id = cluster;
        a->value.dim.x = s->cluster;
        a->value.dim.y = a->value.dim.z = 1;
    }
    add_number(&c, cooperative, s->cooperative);
    add_number(&c, domain, s->remote);
    add_number(&c, overlap, s->overlap);
    return c;
}

// weft_launch passes the kernel's parameters as one packed buffer, whose size the library checks.
int32_t weft_launch(uintptr_t ctx, uintptr_t stream, uintptr_t f, const void *shape, void *params, size_t bytes) {
    weft_attribute attributes[max_attributes] = {0};
    weft_config c = config(shape, stream, attributes);
    void *extra[] = {(void *)1, params, (void *)2, &bytes, (void *)0};
    int r = enter(ctx);
    return r ? r : p_cuLaunchKernelEx(&c, f, NULL, bytes ? extra : NULL);
}

int32_t weft_max_clusters(uintptr_t ctx, uintptr_t f, const void *shape, int32_t *n) {
    weft_attribute attributes[max_attributes] = {0};
    weft_config c = config(shape, 0, attributes);
    if (p_cuOccupancyMaxActiveClusters == NULL)
        return weft_missing;
    int r = enter(ctx);
    return r ? r : p_cuOccupancyMaxActiveClusters(n, f, &c);
}
