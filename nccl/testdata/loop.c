// loop LIBNCCL BURST BLOCKING: the host time of one ncclAllReduce of 1024 floats on a communicator of one rank, in
// nanoseconds: the fastest of 40 bursts. The yardstick for the Go binding.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct { char b[128]; } uid;
typedef struct { size_t size; unsigned magic, version; int v[20]; } config; // 96 bytes

static int (*all_reduce)(const void *, void *, size_t, int, int, void *, void *);
static int (*state_of)(void *, int *);

#define LOAD(lib, f, name) if ((*(void **)&(f) = dlsym(lib, name)) == NULL) { fprintf(stderr, "no %s\n", name); return 1; }
#define MUST(x) do { int r_ = (x); if (r_ != 0 && r_ != 7) { fprintf(stderr, "%s: %d\n", #x, r_); return 1; } } while (0)

static void settle(void *comm) {
    int state = 7;
    while (state == 7)
        if (state_of(comm, &state) != 0)
            exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *nccl;
    int (*init)(unsigned), (*retain)(void **, int), (*current)(void *), (*alloc)(uint64_t *, size_t), (*stream_new)(void **, unsigned), (*sync)(void *);
    int (*get_id)(uid *), (*comm_init)(void **, int, uid, int, config *), (*destroy)(void *);
    void *ctx, *stream, *comm = NULL;
    uint64_t buf;
    uid id;
    config cfg = {sizeof cfg, 0xcafebeef, 23007, {0}};
    int burst, blocking;
    double least = 1e18;
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (argc < 4 || cuda == NULL || (nccl = dlopen(argv[1], RTLD_NOW)) == NULL) {
        fprintf(stderr, "usage: loop LIBNCCL BURST BLOCKING: %s\n", dlerror());
        return 1;
    }
    burst = atoi(argv[2]);
    blocking = strcmp(argv[3], "true") == 0;
    LOAD(cuda, init, "cuInit") LOAD(cuda, retain, "cuDevicePrimaryCtxRetain") LOAD(cuda, current, "cuCtxSetCurrent")
    LOAD(cuda, alloc, "cuMemAlloc_v2") LOAD(cuda, stream_new, "cuStreamCreate") LOAD(cuda, sync, "cuStreamSynchronize")
    LOAD(nccl, get_id, "ncclGetUniqueId") LOAD(nccl, comm_init, "ncclCommInitRankConfig") LOAD(nccl, all_reduce, "ncclAllReduce")
    LOAD(nccl, state_of, "ncclCommGetAsyncError") LOAD(nccl, destroy, "ncclCommDestroy")
    MUST(init(0));
    MUST(retain(&ctx, 0));
    MUST(current(ctx));
    MUST(alloc(&buf, 8192));
    MUST(stream_new(&stream, 1));
    for (int i = 0; i < 20; i++)
        cfg.v[i] = -2147483647 - 1;
    cfg.v[0] = blocking;
    memset(&cfg.v[4], 0, 8); // two pointers among the integers
    memset(&cfg.v[8], 0, 8);
    MUST(get_id(&id));
    MUST(comm_init(&comm, 1, id, 0, &cfg));
    settle(comm);
    for (int i = 0; i < 40; i++) {
        double begin = now();
        for (int k = 0; k < burst; k++) {
            MUST(all_reduce((void *)buf, (void *)(buf + 4096), 1024, 7, 0, comm, stream));
            if (!blocking)
                settle(comm);
        }
        double took = (now() - begin) / burst;
        if (took < least)
            least = took;
        MUST(sync(stream));
    }
    MUST(destroy(comm));
    printf("%.1f\n", least);
    return 0;
}
