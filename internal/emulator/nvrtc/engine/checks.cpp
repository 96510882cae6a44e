// What the compiler's checks call when kernels do what is undefined in C++ and wrong on a GPU, or another thing there than here:
// misaligned and null addresses, indices outside of arrays, shifts by the width or more, divisions by zero.
#include "block.h"

#include <stdio.h>

namespace {

// As the compiler lays them out.
struct Place {
    const char *file;
    uint32_t line, column;
};
struct Type {
    uint16_t kind, info;
    char name[1];
};
struct Mismatch {
    Place place;
    const Type *type;
    unsigned char log_align, kind;
};

[[noreturn]] void found(const Place &p, const char *what, const char *type, uint64_t a, uint64_t b) {
    fprintf(stderr, "emulator: %s line %u: %s%s\n", p.file, p.line, what, type);
    weft_emu::fail(what, a, b);
}

} // namespace

extern "C" {

void __ubsan_handle_type_mismatch_v1_abort(Mismatch *m, uintptr_t address) {
    found(m->place, address ? "a misaligned access of " : "a null access of ", m->type->name, address, uint64_t(1) << m->log_align);
}
void __ubsan_handle_out_of_bounds_abort(Place *p, uintptr_t index) { found(*p, "an index outside of its array", "", index, 0); }
void __ubsan_handle_shift_out_of_bounds_abort(Place *p, uintptr_t value, uintptr_t by) { found(*p, "a shift by the width or more", "", value, by); }
void __ubsan_handle_divrem_overflow_abort(Place *p, uintptr_t a, uintptr_t b) { found(*p, "a division by zero", "", a, b); }

} // extern "C"
