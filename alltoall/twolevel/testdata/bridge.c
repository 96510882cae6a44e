// What the stand-in of libnccl (nccl/nccltest) needs of its libcuda, made of another libcuda's functions: internal/emulator's. A task
// of a stream runs on a thread of its own, between a write and a wait of the stream.
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

typedef uint64_t h;

extern int cuCtxGetCurrent(h *), cuCtxSetCurrent(h), cuStreamGetCtx(h, h *), cuDeviceGetCount(int *), cuDeviceGet(int *, int);
extern int cuDevicePrimaryCtxRetain(h *, int), cuDevicePrimaryCtxRelease_v2(int), cuMemHostAlloc(h *, size_t, unsigned);
extern int cuStreamWriteValue32_v2(h, h, uint32_t, unsigned), cuStreamWaitValue32_v2(h, h, uint32_t, unsigned);

// The device of the calling thread's context.
int fake_device(void) {
    h now = 0, other = 0;
    int n = 0, found = -1;
    cuCtxGetCurrent(&now);
    cuDeviceGetCount(&n);
    for (int i = 0; i < n && found < 0; i++) {
        int device;
        if (cuDeviceGet(&device, i) == 0 && cuDevicePrimaryCtxRetain(&other, device) == 0) {
            if (other == now)
                found = i;
            cuDevicePrimaryCtxRelease_v2(device);
        }
    }
    return found;
}

typedef struct {
    void (*run)(void *);
    void *arg;
    h ctx;
    volatile uint32_t *flags; // begun by the stream, done by the thread
} task;

static void *do_task(void *p) {
    task *t = p;
    struct timespec pause = {0, 20000};
    cuCtxSetCurrent(t->ctx);
    while (__atomic_load_n(&t->flags[0], __ATOMIC_ACQUIRE) == 0)
        nanosleep(&pause, NULL);
    t->run(t->arg);
    __atomic_store_n(&t->flags[1], 1, __ATOMIC_RELEASE);
    free(t); // the flags stay: the stream may look at them later
    return NULL;
}

void fake_push(h stream, void (*run)(void *), void *arg, int waits) {
    (void)waits;
    task *t = malloc(sizeof *t);
    h flags = 0;
    *t = (task){run, arg, 0, NULL};
    cuStreamGetCtx(stream, &t->ctx);
    cuMemHostAlloc(&flags, 64, 0);
    t->flags = (volatile uint32_t *)flags;
    t->flags[0] = t->flags[1] = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, do_task, t);
    pthread_detach(thread);
    cuStreamWriteValue32_v2(stream, flags, 1, 0);
    cuStreamWaitValue32_v2(stream, flags + 4, 1, 0); // greater or equal
}
