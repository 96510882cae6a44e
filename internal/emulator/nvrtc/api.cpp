// The functions of libnvrtc that weft calls. A "cubin" is a shared object for the host: see module.h.
#include "program.h"

#include <stdlib.h>
#include <string.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

// The version that is given: 13, and a number of the sources of which this library was made, so that neither the cubins of a GPU
// nor those of another emulator are taken for its own in a cache.
#ifndef WEFT_EMULATOR_ID
#define WEFT_EMULATOR_ID 0
#endif

enum { OK, OUT_OF_MEMORY, CREATION, INVALID_INPUT, INVALID_PROGRAM, INVALID_OPTION, COMPILATION };

static const int archs[] = {80, 86, 89, 90, 100, 103, 120};

// weftEmulatedNVRTC is there for those who must know.
EXPORT int weftEmulatedNVRTC() { return 1; }

EXPORT int nvrtcVersion(int *major, int *minor) {
    *major = 13;
    *minor = WEFT_EMULATOR_ID * 2 + looks_for_races();
    return OK;
}

EXPORT const char *nvrtcGetErrorString(int code) {
    static const char *const names[] = {"NVRTC_SUCCESS", "NVRTC_ERROR_OUT_OF_MEMORY", "NVRTC_ERROR_PROGRAM_CREATION_FAILURE", "NVRTC_ERROR_INVALID_INPUT",
                                        "NVRTC_ERROR_INVALID_PROGRAM", "NVRTC_ERROR_INVALID_OPTION", "NVRTC_ERROR_COMPILATION"};
    return code >= 0 && code < 7 ? names[code] : "NVRTC_ERROR unknown";
}

EXPORT int nvrtcGetNumSupportedArchs(int *n) {
    *n = sizeof archs / sizeof *archs;
    return OK;
}

EXPORT int nvrtcGetSupportedArchs(int *out) {
    memcpy(out, archs, sizeof archs);
    return OK;
}

EXPORT int nvrtcCreateProgram(Program **out, const char *source, const char *name, int num, const char *const *texts, const char *const *names) {
    if (!out || !source || num < 0)
        return INVALID_INPUT;
    Program *p = new Program;
    p->source = source;
    p->name = name ? name : "default_program";
    for (int i = 0; i < num; i++)
        p->headers.emplace_back(names[i], texts[i]);
    *out = p;
    return OK;
}

EXPORT int nvrtcDestroyProgram(Program **p) {
    delete *p;
    *p = nullptr;
    return OK;
}

// arch_of returns 90 for sm_90a, or 0: PTX (compute_90) is not made.
static int arch_of(const std::vector<std::string> &options) {
    int arch = 80;
    for (const std::string &o : options) {
        const std::string prefix = "--gpu-architecture=";
        if (o.rfind(prefix, 0) != 0)
            continue;
        std::string name = o.substr(prefix.size());
        int given = name.rfind("sm_", 0) == 0 ? atoi(name.c_str() + 3) : 0;
        arch = 0;
        for (int a : archs)
            if (a == given)
                arch = a;
    }
    return arch;
}

EXPORT int nvrtcCompileProgram(Program *p, int num, const char *const *options) {
    if (!p)
        return INVALID_PROGRAM;
    std::vector<std::string> all(options, options + num);
    int arch = arch_of(all);
    if (!arch)
        return INVALID_OPTION;
    try {
        return compile(*p, arch, all) ? OK : COMPILATION;
    } catch (const std::exception &e) {
        p->log = e.what();
        return COMPILATION;
    }
}

static int copy(const std::string &s, char *out) {
    memcpy(out, s.c_str(), s.size() + 1);
    return OK;
}

EXPORT int nvrtcGetProgramLogSize(Program *p, size_t *n) {
    *n = p->log.size() + 1;
    return OK;
}
EXPORT int nvrtcGetProgramLog(Program *p, char *out) { return copy(p->log, out); }

EXPORT int nvrtcGetCUBINSize(Program *p, size_t *n) {
    *n = p->image.size();
    return OK;
}
EXPORT int nvrtcGetCUBIN(Program *p, char *out) {
    memcpy(out, p->image.data(), p->image.size());
    return OK;
}

EXPORT int nvrtcGetPTXSize(Program *, size_t *n) {
    *n = 1;
    return OK;
}
EXPORT int nvrtcGetPTX(Program *, char *out) {
    *out = 0;
    return OK;
}
