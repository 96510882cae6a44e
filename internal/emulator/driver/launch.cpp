// Launches of kernels.
#include <cstring>

#include "capture.h"
#include "device.h"
#include "module.h"
#include "multiprocessors.h"
#include "settings.h"
#include "threads.h"

namespace {
struct Launch : Op {
    std::shared_ptr<Function> function;
    uint32_t grid[3], block[3], shared;
    std::vector<char> bytes;  // parameters, as they were at the call
    Launch() : Op(Kernel) {}
    void run(Device &d) override {
        const weft_emu_kernel &k = function->kernel();
        std::vector<void *> params(k.num_params);
        for (uint32_t i = 0; i < k.num_params; i++)
            params[i] = bytes.data() + k.param_offsets[i];
        Blocks b;
        b.total = grid[0] * grid[1] * grid[2];
        b.threads = block[0] * block[1] * block[2];
        b.shared = k.static_shared + shared;
        b.run = [&](uint32_t i) {
            const uint32_t index[3] = {i % grid[0], i / grid[0] % grid[1], i / grid[0] / grid[1]};
            function->module->block(function->index, grid, block, index, shared, params.data());
        };
        d.sms.run(b);
    }
};

// copy_params takes the parameters from a packed buffer or from an array of pointers.
int32_t copy_params(const Function &f, void **params, void **extra, std::vector<char> *out) {
    const weft_emu_kernel &k = f.kernel();
    out->assign(f.param_bytes(), 0);
    if (params != nullptr) {
        for (uint32_t i = 0; i < k.num_params; i++)
            memcpy(out->data() + k.param_offsets[i], params[i], k.param_bytes[i]);
        return OK;
    }
    const void *buffer = nullptr;
    size_t size = 0;
    for (; extra != nullptr && *extra != nullptr; extra += 2) {
        const auto what = reinterpret_cast<uintptr_t>(extra[0]);
        if (what == 1)
            buffer = extra[1];
        else if (what == 2)
            size = *static_cast<const size_t *>(extra[1]);
        else
            return INVALID_VALUE;
    }
    if (size != out->size())
        return INVALID_VALUE;
    if (size > 0)
        memcpy(out->data(), buffer, size);
    return OK;
}

struct Attributes { bool cooperative = false; uint32_t cluster = 1; };

int32_t read(const LaunchConfig &c, Attributes *a) {
    constexpr int32_t cooperative = 2, cluster = 4, last = 16;
    for (uint32_t i = 0; i < c.num; i++) {
        const LaunchAttribute &x = c.attributes[i];
        if (x.id == cooperative)
            a->cooperative = x.value.number != 0;
        else if (x.id == cluster)
            a->cluster = x.value.dim.x * x.value.dim.y * x.value.dim.z;
        else if (x.id < 0 || x.id > last)
            return INVALID_VALUE;  // the others change the time that it takes, and nothing else
    }
    return OK;
}
}  // namespace

API cuLaunchKernelEx(const LaunchConfig *c, Handle function, void **params, void **extra) {
    Device *d = current();
    if (d == nullptr)
        return INVALID_CONTEXT;
    auto f = function_of(function);
    if (f == nullptr || f->module->device != d)
        return INVALID_HANDLE;
    uint64_t threads = 1, blocks = 1;
    for (int i = 0; i < 3; i++) {
        threads *= c->block[i];
        blocks *= c->grid[i];
        if (c->block[i] > 1024 || (i > 0 && c->grid[i] > 65535))
            return INVALID_VALUE;
    }
    if (threads == 0 || blocks == 0 || blocks > 0x7fffffff || c->block[2] > 64 || threads > 1024 || c->shared > f->max_shared)
        return INVALID_VALUE;
    if (threads > f->kernel().max_threads)
        return LAUNCH_OUT_OF_RESOURCES;
    Attributes a;
    if (int32_t r = read(*c, &a))
        return r;
    if (a.cluster > 1)
        return NOT_SUPPORTED;
    const uint64_t fit = uint64_t(settings().sms) * occupancy(uint32_t(threads), f->kernel().static_shared + c->shared);
    if (a.cooperative && blocks > fit)
        return COOPERATIVE_LAUNCH_TOO_LARGE;
    auto op = std::make_shared<Launch>();
    op->function = f;
    memcpy(op->grid, c->grid, sizeof op->grid);
    memcpy(op->block, c->block, sizeof op->block);
    op->shared = c->shared;
    if (int32_t r = copy_params(*f, params, extra, &op->bytes))
        return r;
    return submit(c->stream, d, std::move(op));
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int32_t *n, Handle function, int32_t threads, size_t shared) {
    auto f = function_of(function);
    if (f == nullptr)
        return INVALID_HANDLE;
    if (threads < 1)
        return INVALID_VALUE;
    const bool fits = uint32_t(threads) <= f->kernel().max_threads && shared <= f->max_shared;
    *n = fits ? int32_t(occupancy(uint32_t(threads), f->kernel().static_shared + uint32_t(shared))) : 0;
    return OK;
}

API cuOccupancyMaxActiveClusters(int32_t *n, Handle, const LaunchConfig *) {
    *n = 0;
    return NOT_SUPPORTED;
}
