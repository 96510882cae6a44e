// Vector types, with the alignment that their loads need on a GPU.
#pragma once

#define WEFT_EMU_VECTOR(T, name)                                                                                               \
    struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                                                         \
    struct name##3 { T x, y, z; };                                                                                             \
    struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) name##4 { T x, y, z, w; };                                         \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                                                 \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                                         \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

WEFT_EMU_VECTOR(signed char, char)
WEFT_EMU_VECTOR(unsigned char, uchar)
WEFT_EMU_VECTOR(short, short)
WEFT_EMU_VECTOR(unsigned short, ushort)
WEFT_EMU_VECTOR(int, int)
WEFT_EMU_VECTOR(unsigned, uint)
WEFT_EMU_VECTOR(long long, longlong)
WEFT_EMU_VECTOR(unsigned long long, ulonglong)
WEFT_EMU_VECTOR(float, float)
WEFT_EMU_VECTOR(double, double)

#undef WEFT_EMU_VECTOR

static_assert(sizeof(uint4) == 16 && alignof(uint4) == 16 && alignof(uint2) == 8 && sizeof(uint3) == 12, "layout of vectors");
