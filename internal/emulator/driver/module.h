// Loaded modules and their kernels.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "../module.h"
#include "abi.h"

struct Device;

// Module is an opened shared object.
struct Module {
    Device *device = nullptr;
    void *library = nullptr;
    const weft_emu_kernel *kernels = nullptr;
    uint32_t num_kernels = 0;
    decltype(&weft_emu_block) block = nullptr;
    std::mutex mu;
    std::map<uint32_t, Handle> functions;  // that were asked for, by index; under mu
    std::vector<uintptr_t> globals;        // that were asked for; under mu
    ~Module();
};

struct Function {
    std::shared_ptr<Module> module;
    uint32_t index = 0;
    uint32_t max_shared = 0;  // dynamic bytes of a block
    const weft_emu_kernel &kernel() const { return module->kernels[index]; }
    uint32_t param_bytes() const {
        const weft_emu_kernel &k = kernel();
        return k.num_params ? k.param_offsets[k.num_params - 1] + k.param_bytes[k.num_params - 1] : 0;
    }
};

std::shared_ptr<Function> function_of(Handle handle);

constexpr uint32_t default_shared = 48 << 10, most_shared = 227 << 10;
