// Checks of libcuda's stand-in, each a process of its own: driver MODULE CASE. WEFT_EMULATOR_SMS is 4, WEFT_EMULATOR_GPUS 2.
#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <unistd.h>

#include "cuda.h"

namespace {
std::string image;
Handle contexts[2], module, arrive, add;

volatile uint32_t &word(Address a) { return *reinterpret_cast<volatile uint32_t *>(a); }

Handle stream(uint32_t flags = 1) {
    Handle s;
    CHECK(OK, cuStreamCreateWithPriority(&s, flags, 0));
    return s;
}

Handle event() {
    Handle e;
    CHECK(OK, cuEventCreate(&e, 2));
    return e;
}

// words returns n words of zeros.
Address words(size_t n) {
    Address a;
    CHECK(OK, cuMemAlloc_v2(&a, 4 * n));
    memset(reinterpret_cast<void *>(a), 0, 4 * n);
    return a;
}

int32_t launch(Handle f, Handle s, uint32_t blocks, Address a, Address b, uint32_t n, uint32_t threads = 256) {
    void *params[] = {&a, &b, &n};
    const LaunchConfig c = {{blocks, 1, 1}, {threads, 1, 1}, 0, s, nullptr, 0};
    return cuLaunchKernelEx(&c, f, params, nullptr);
}

void until(volatile uint32_t &w, uint32_t value) {
    for (int i = 0; w != value && i < 10000; i++)
        usleep(1000);
    CHECK(value, w);
}

// Blocks of 1024 threads: two on each of four SMs. What does not fit waits, also of later launches.
void residency() {
    Address w = words(4);
    Handle a = stream(), b = stream();
    CHECK(OK, launch(arrive, a, 9, w, w + 4, 1, 1024));
    until(word(w), 8);
    CHECK(OK, launch(arrive, b, 1, w + 8, w + 12, 0, 32));
    usleep(50000);
    CHECK(8, word(w));
    CHECK(0, word(w + 8));
    CHECK(NOT_READY, cuStreamQuery(b));
    word(w + 4) = 1;
    CHECK(OK, cuStreamSynchronize(a));
    CHECK(OK, cuStreamSynchronize(b));
    CHECK(9, word(w));
    CHECK(1, word(w + 8));
}

void handles() {
    Handle s = stream(), h;
    Address w = words(2), p;
    CHECK(INVALID_HANDLE, cuStreamQuery(12345));
    CHECK(OK, cuStreamDestroy_v2(s));
    CHECK(INVALID_HANDLE, launch(add, s, 1, w, w, 1));
    CHECK(INVALID_HANDLE, cuModuleUnload(s));
    CHECK(INVALID_HANDLE, launch(module, 0, 1, w, w, 1));
    CHECK(INVALID_VALUE, cuMemFree_v2(w + 4));
    CHECK(LAUNCH_OUT_OF_RESOURCES, launch(add, 0, 1, w, w, 1, 512));
    CHECK(INVALID_VALUE, launch(add, 0, 0, w, w, 1));
    CHECK(INVALID_VALUE, cuMemcpyAsync(w, w, 12, 0));
    CHECK(OUT_OF_MEMORY, cuMemAlloc_v2(&p, size_t(1) << 40));
    CHECK(NOT_FOUND, cuModuleGetFunction(&h, module, "answer"));
    std::string other = image;
    other[18] = char(190);  // the machine: a GPU
    CHECK(NO_BINARY_FOR_GPU, cuModuleLoadData(&h, other.data()));
    other[18] = 3;
    CHECK(INVALID_IMAGE, cuModuleLoadData(&h, other.data()));
    CHECK(INVALID_IMAGE, cuModuleLoadData(&h, ".version 8.0"));
    s = stream();
    CHECK(OK, cuCtxSetCurrent(contexts[1]));
    CHECK(INVALID_HANDLE, launch(add, s, 1, w, w, 1));
    CHECK(INVALID_HANDLE, cuEventRecord(event(), s));
    CHECK(OK, cuCtxEnablePeerAccess(contexts[0], 0));
    CHECK(PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(contexts[0], 0));
    int32_t owner;
    CHECK(OK, cuPointerGetAttribute(&owner, 9, w + 4));
    CHECK(0, owner);
    CHECK(OK, cuCtxSetCurrent(0));
    CHECK(INVALID_CONTEXT, cuMemAlloc_v2(&p, 4));
}

// Each load of a module has variables of its own.
void globals() {
    Handle second;
    Address a, b;
    size_t bytes;
    CHECK(OK, cuModuleLoadData(&second, image.data()));
    CHECK(OK, cuModuleGetGlobal_v2(&a, &bytes, module, "answer"));
    CHECK(OK, cuModuleGetGlobal_v2(&b, nullptr, second, "answer"));
    CHECK(4, bytes);
    CHECK(1, a != b);
    CHECK(OK, cuMemsetD32Async(a, 7, 1, 0));
    CHECK(OK, cuStreamSynchronize(0));
    CHECK(7, word(a));
    CHECK(42, word(b));
    CHECK(OK, cuModuleUnload(second));
    CHECK(INVALID_VALUE, cuMemsetD32Async(b, 7, 1, 0));
}

// The legacy default stream goes in order with blocking streams.
void order() {
    Address w = words(4);
    Handle blocking = stream(0);
    CHECK(OK, cuStreamWaitValue32_v2(blocking, w, 1, 0));
    CHECK(OK, launch(add, 0, 1, w + 4, w + 8, 5));
    usleep(20000);
    CHECK(0, word(w + 4));
    word(w) = 1;
    CHECK(OK, cuStreamSynchronize(0));
    CHECK(5, word(w + 8));
}

// Giving memory back waits for kernels; taking it does not.
void waits() {
    Address w = words(2), more;
    Handle s = stream();
    CHECK(OK, launch(arrive, s, 1, w, w + 4, 1));
    until(word(w), 1);
    CHECK(OK, cuMemAlloc_v2(&more, 1 << 20));
    std::atomic<bool> freed{false};
    std::thread other([&] {
        CHECK(OK, cuCtxSetCurrent(contexts[0]));
        CHECK(OK, cuMemFree_v2(more));
        freed = true;
    });
    usleep(50000);
    CHECK(0, freed.load());
    word(w + 4) = 1;
    other.join();
    CHECK(1, freed.load());
}

void past_end() { word(words(64) + 256) = 1; }
void before_start() { word(words(1024) - 4) = 1; }
void after_free() {
    Address w = words(64);
    CHECK(OK, cuMemFree_v2(w));
    word(w) = 1;
}
void past_end_by_little() {
    Address w = words(65);
    word(w + 4 * 65) = 1;
    cuMemFree_v2(w);
}

Address reserved(size_t bytes, Handle *memory) {
    const AllocationProp prop = {1, 1, {1, 0}, nullptr, {}};
    Address a;
    CHECK(OK, cuMemAddressReserve(&a, bytes, 0, 0, 0));
    CHECK(OK, cuMemCreate(memory, bytes, &prop, 0));
    CHECK(OK, cuMemMap(a, bytes, 0, *memory, 0));
    return a;
}

void no_access() {
    Handle memory;
    word(reserved(2 << 20, &memory)) = 1;
}

void mapping() {
    const size_t n = 2 << 20;
    const AccessDesc all = {{1, 0}, 3};
    Handle memory, same;
    size_t before, after, total;
    CHECK(OK, cuMemGetInfo_v2(&before, &total));
    Address a = reserved(n, &memory), b;
    CHECK(INVALID_VALUE, cuMemMap(a, n, 0, memory, 0));
    CHECK(OK, cuMemSetAccess(a, n, &all, 1));
    CHECK(0xffffffff, word(a + 4096));
    int fd;
    CHECK(OK, cuMemExportToShareableHandle(&fd, memory, 1, 0));
    CHECK(OK, cuMemImportFromShareableHandle(&same, uintptr_t(fd), 1));
    CHECK(INVALID_VALUE, cuMemImportFromShareableHandle(&same, 0, 1));
    close(fd);
    CHECK(OK, cuMemAddressReserve(&b, n, 0, 0, 0));
    CHECK(OK, cuMemMap(b, n, 0, same, 0));
    CHECK(OK, cuMemSetAccess(b, n, &all, 1));
    word(a + 8) = 77;
    CHECK(77, word(b + 8));
    for (Address at : {a, b}) {
        CHECK(INVALID_VALUE, cuMemAddressFree(at, n));
        CHECK(OK, cuMemUnmap(at, n));
        CHECK(OK, cuMemAddressFree(at, n));
    }
    CHECK(OK, cuMemRelease(memory));
    CHECK(OK, cuMemRelease(same));
    CHECK(OK, cuMemGetInfo_v2(&after, &total));
    CHECK(before, after);
    IpcHandle name;
    CHECK(OK, cuIpcGetMemHandle(&name, words(1)));
    CHECK(INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&b, name, 1));  // of this process itself
}

#include "driver_graphs.h"

const std::map<std::string, void (*)()> cases = {
    {"residency", residency}, {"handles", handles}, {"globals", globals}, {"order", order}, {"waits", waits}, {"mapping", mapping},
    {"past_end", past_end}, {"before_start", before_start}, {"after_free", after_free}, {"past_end_by_little", past_end_by_little},
    {"no_access", no_access}, {"branches", branches}, {"refused", refused}, {"captures", captures}, {"updates", updates},
};
}  // namespace

int main(int, char **argv) {
    alarm(60);
    std::ifstream in(argv[1], std::ios::binary);
    image.assign(std::istreambuf_iterator<char>(in), {});
    CHECK(OK, cuInit(0));
    for (int i = 0; i < 2; i++)
        CHECK(OK, cuDevicePrimaryCtxRetain(&contexts[i], i));
    CHECK(OK, cuCtxSetCurrent(contexts[0]));
    CHECK(OK, cuModuleLoadData(&module, image.data()));
    CHECK(OK, cuModuleGetFunction(&arrive, module, "arrive"));
    CHECK(OK, cuModuleGetFunction(&add, module, "add"));
    cases.at(argv[2])();
    puts("done");
    fflush(stdout);
    _exit(0);
}
