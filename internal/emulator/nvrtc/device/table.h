// What a module tells of its kernels: made by the compiler from the list of names that the stand-in of libnvrtc found.
#pragma once
#include "../../module.h"

// weft_emu_bodies call kernel i with its parameters, in each thread.
extern "C" void (*const weft_emu_bodies[])(void *const *params);

// weft_emu_races is 0, or the file with this module's lines, compiled to look for races.
extern "C" const char *const weft_emu_races;

namespace weft_emu {

// Kernel is the type of a kernel's parameters.
template <class F, F *f> struct Kernel;
template <class... P, void (*f)(P...)> struct Kernel<void(P...), f> {
    enum { NUM = sizeof...(P) };
    struct Layout {
        unsigned bytes[NUM + 1], offsets[NUM + 1];
    };
    static constexpr Layout layout() {
        Layout l = {{sizeof(P)..., 0}, {}};
        const unsigned align[] = {alignof(P)..., 1};
        unsigned at = 0;
        for (int i = 0; i < NUM; i++) {
            at = (at + align[i] - 1) / align[i] * align[i];
            l.offsets[i] = at;
            at += l.bytes[i];
        }
        return l;
    }
    static constexpr Layout LAYOUT = layout();
    template <int... I> struct Numbers {};
    template <int... I> static void call(void *const *params, Numbers<I...>) { f(*(P *)params[I]...); }
    static void body(void *const *params) { call(params, Numbers<__integer_pack(NUM)...>()); }
    static constexpr weft_emu_kernel row(const char *name, unsigned static_shared, unsigned max_threads) {
        return {name, NUM, LAYOUT.bytes, LAYOUT.offsets, static_shared, max_threads, 64};
    }
};

constexpr unsigned first(unsigned n, ...) { return n; }

} // namespace weft_emu
