// Compiles checks.cu with the stand-in of libnvrtc, and runs a kernel, or every kernel whose name does not begin with bad_, each
// block on a thread.
//
//	run compile libnvrtc.so.13 checks.cu module.so
//	run module.so [kernel]
#include "../module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

typedef void *Program;

template <class F> static F *find(void *library, const char *name) {
    F *f = (F *)dlsym(library, name);
    if (!f) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return f;
}

static std::string compile(const char *library, const char *path) {
    void *lib = dlopen(library, RTLD_NOW);
    if (!lib) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    std::ifstream in(path);
    std::ostringstream text;
    text << in.rdbuf();
    Program p;
    find<int(Program *, const char *, const char *, int, const char **, const char **)>(lib, "nvrtcCreateProgram")(&p, text.str().c_str(), path, 0, nullptr, nullptr);
    const char *options[] = {"--gpu-architecture=sm_90a", "--std=c++17"};
    int code = find<int(Program, int, const char **)>(lib, "nvrtcCompileProgram")(p, 2, options);
    size_t n = 0;
    find<int(Program, size_t *)>(lib, "nvrtcGetProgramLogSize")(p, &n);
    std::string log(n, 0), image;
    find<int(Program, char *)>(lib, "nvrtcGetProgramLog")(p, log.data());
    if (code != 0) {
        fprintf(stderr, "code %d\n%s\n", code, log.c_str());
        exit(2);
    }
    find<int(Program, size_t *)>(lib, "nvrtcGetCUBINSize")(p, &n);
    image.resize(n);
    find<int(Program, char *)>(lib, "nvrtcGetCUBIN")(p, image.data());
    return image;
}

int main(int argc, char **argv) {
    if (argc == 5) {
        std::string image = compile(argv[2], argv[3]);
        return !std::ofstream(argv[4], std::ios::binary).write(image.data(), image.size());
    }
    if (argc < 2)
        return 2;
    void *module = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    auto run = find<decltype(weft_emu_block)>(module, "weft_emu_block");
    uint32_t num = 0;
    const weft_emu_kernel *kernels = find<decltype(weft_emu_kernels)>(module, "weft_emu_kernels")(&num);
    int bad = 0;
    for (uint32_t k = 0; k < num; k++) {
        if (argc > 2 ? strcmp(kernels[k].name, argv[2]) : !strncmp(kernels[k].name, "bad_", 4))
            continue;
        for (uint32_t blocks : {1u, 2u, 5u}) {
            uint32_t *faults = (uint32_t *)calloc(4, 4);
            uint64_t *words = (uint64_t *)aligned_alloc(4096, 1 << 20);
            memset(words, 0, 1 << 20);
            std::vector<std::thread> threads;
            for (uint32_t i = 0; i < blocks; i++)
                threads.emplace_back([=] {
                    const uint32_t grid[] = {blocks, 1, 1}, block[] = {32, 7, 1}, index[] = {i, 0, 0};
                    void *params[] = {(void *)&faults, (void *)&words};
                    run(k, grid, block, index, 4096, params);
                });
            for (auto &t : threads)
                t.join();
            if (faults[0]) {
                printf("%s, %u blocks: %u faults, one in line %u\n", kernels[k].name, blocks, faults[0], faults[1]);
                bad = 1;
            }
            free(faults);
            free(words);
        }
        printf("%s: %u parameters, %u bytes shared, %u threads\n", kernels[k].name, kernels[k].num_params, kernels[k].static_shared, kernels[k].max_threads);
    }
    return bad;
}
