#include "module.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture.h"
#include "device.h"
#include "handles.h"
#include "ranges.h"
#include "stream.h"

namespace {
auto &modules = *new Handles<Module>;
auto &functions = *new Handles<Function>;

constexpr uint16_t cuda_machine = 190;
#if defined(__x86_64__)
constexpr uint16_t host_machine = EM_X86_64;
#else
constexpr uint16_t host_machine = EM_AARCH64;
#endif

// check tells the size of an image, which ends with its table of sections.
int32_t check(const char *image, size_t *bytes) {
    if (image == nullptr || memcmp(image, ELFMAG, SELFMAG) != 0)
        return INVALID_IMAGE;
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof head);
    if (head.e_machine == cuda_machine)
        return NO_BINARY_FOR_GPU;
    if (head.e_machine != host_machine || head.e_type != ET_DYN || head.e_shoff == 0)
        return INVALID_IMAGE;
    *bytes = head.e_shoff + size_t(head.e_shnum) * head.e_shentsize;
    return OK;
}

// open_copy opens a copy of the image, so that each load has variables of its own. The loader knows libraries by name and
// file: both are new.
void *open_copy(const char *image, size_t bytes) {
    const char *folder = getenv("TMPDIR");
    std::string path = std::string(folder && *folder ? folder : "/tmp") + "/weft-emulator-XXXXXX";
    int fd = mkostemp(path.data(), 02000000);
    if (fd < 0)
        return nullptr;
    fchmod(fd, 0700);
    bool all = true;
    for (size_t at = 0; all && at < bytes;) {
        ssize_t n = write(fd, image + at, bytes - at);
        all = n > 0;
        at += size_t(n > 0 ? n : 0);
    }
    close(fd);
    void *library = all ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (library == nullptr)
        fprintf(stderr, "weft emulator: cannot load a module: %s\n", all ? dlerror() : "its copy could not be written");
    unlink(path.c_str());
    return library;
}
}  // namespace

Module::~Module() {
    if (library != nullptr)
        dlclose(library);
}

std::shared_ptr<Function> function_of(Handle handle) { return functions.get(handle); }

// Loading and unloading wait for the kernels of the device, as measured on a GPU.
API cuModuleLoadData(Handle *out, const char *image) {
    Device *d = current();
    if (d == nullptr)
        return INVALID_CONTEXT;
    if (int32_t r = refuse_while_capturing())
        return r;
    size_t bytes = 0;
    if (int32_t r = check(image, &bytes))
        return r;
    drain(*d);
    auto m = std::make_shared<Module>();
    m->device = d;
    m->library = open_copy(image, bytes);
    if (m->library == nullptr)
        return INVALID_IMAGE;
    auto kernels = reinterpret_cast<decltype(&weft_emu_kernels)>(dlsym(m->library, "weft_emu_kernels"));
    m->block = reinterpret_cast<decltype(&weft_emu_block)>(dlsym(m->library, "weft_emu_block"));
    if (kernels == nullptr || m->block == nullptr)
        return INVALID_IMAGE;
    m->kernels = kernels(&m->num_kernels);
    *out = modules.add(m);
    return OK;
}

API cuModuleUnload(Handle module) {
    auto m = modules.get(module);
    if (m == nullptr)
        return INVALID_HANDLE;
    if (int32_t r = refuse_while_capturing())
        return r;
    drain(*m->device);
    if (modules.take(module) == nullptr)
        return INVALID_HANDLE;
    std::lock_guard lock(m->mu);
    for (auto &[index, handle] : m->functions)
        functions.take(handle);
    for (uintptr_t addr : m->globals)
        take_range(addr, Range::Global);
    return OK;
}

API cuModuleGetFunction(Handle *out, Handle module, const char *name) {
    auto m = modules.get(module);
    if (m == nullptr)
        return INVALID_HANDLE;
    std::lock_guard lock(m->mu);
    for (uint32_t i = 0; i < m->num_kernels; i++) {
        if (strcmp(m->kernels[i].name, name) != 0)
            continue;
        Handle &h = m->functions[i];
        if (h == 0) {
            auto f = std::make_shared<Function>();
            f->module = m;
            f->index = i;
            f->max_shared = default_shared - std::min(default_shared, m->kernels[i].static_shared);
            h = functions.add(f);
        }
        *out = h;
        return OK;
    }
    return NOT_FOUND;
}

API cuModuleGetGlobal_v2(uintptr_t *addr, size_t *bytes, Handle module, const char *name) {
    auto m = modules.get(module);
    if (m == nullptr)
        return INVALID_HANDLE;
    void *p = dlsym(m->library, name);
    Dl_info info;
    const ElfW(Sym) *symbol = nullptr;
    if (p == nullptr || dladdr1(p, &info, reinterpret_cast<void **>(const_cast<ElfW(Sym) **>(&symbol)), RTLD_DL_SYMENT) == 0 || symbol == nullptr)
        return NOT_FOUND;
    Range r;
    r.base = r.map_base = reinterpret_cast<uintptr_t>(p);
    r.bytes = r.map_bytes = symbol->st_size;
    r.kind = Range::Global;
    r.device = m->device->ordinal;
    std::lock_guard lock(m->mu);
    m->globals.push_back(r.base);
    add_range(r);
    if (addr != nullptr)
        *addr = r.base;
    if (bytes != nullptr)
        *bytes = r.bytes;
    return OK;
}

API cuFuncGetParamInfo(Handle function, size_t index, size_t *offset, size_t *bytes) {
    auto f = function_of(function);
    if (f == nullptr)
        return INVALID_HANDLE;
    const weft_emu_kernel &k = f->kernel();
    if (index >= k.num_params)
        return INVALID_VALUE;
    *offset = k.param_offsets[index];
    if (bytes != nullptr)
        *bytes = k.param_bytes[index];
    return OK;
}

API cuFuncGetAttribute(int32_t *value, int32_t id, Handle function) {
    auto f = function_of(function);
    if (f == nullptr)
        return INVALID_HANDLE;
    const weft_emu_kernel &k = f->kernel();
    switch (id) {
    case 0: *value = int32_t(k.max_threads); return OK;
    case 1: *value = int32_t(k.static_shared); return OK;
    case 2: case 3: case 7: *value = 0; return OK;
    case 4: *value = int32_t(k.num_regs); return OK;
    case 5: case 6: *value = 90; return OK;
    case 8: *value = int32_t(f->max_shared); return OK;
    case 14: *value = 0; return OK;
    }
    return INVALID_VALUE;
}

API cuFuncSetAttribute(Handle function, int32_t id, int32_t value) {
    auto f = function_of(function);
    if (f == nullptr)
        return INVALID_HANDLE;
    if (id == 14)
        return NOT_SUPPORTED;
    if (id != 8)
        return id == 9 ? OK : INVALID_VALUE;
    if (value < 0 || uint32_t(value) + f->kernel().static_shared > most_shared)
        return INVALID_VALUE;
    f->max_shared = uint32_t(value);
    return OK;
}
