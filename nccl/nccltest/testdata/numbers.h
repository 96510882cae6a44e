// Element types of the stand-in: to and from fp32 with one rounding to the nearest, ties to even, as package dtype has it.
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { I8, U8, I32, U32, I64, U64, F16, F32, F64, BF16, E4M3, E5M2 };

static size_t size_of(int t) { return t == F64 || t == I64 || t == U64 ? 8 : t == F32 || t == I32 || t == U32 ? 4 : t == F16 || t == BF16 ? 2 : 1; }
static int is_float(int t) { return t >= F16; }

// A small format: exponent bits, mantissa bits; infinite says whether the top exponent is infinity and NaN.
typedef struct { int exponent, mantissa, infinite; } format;
static format format_of(int t) {
    return t == F16 ? (format){5, 10, 1} : t == E4M3 ? (format){4, 3, 0} : t == E5M2 ? (format){5, 2, 1} : (format){8, 7, 1};
}

static float widen(format f, unsigned x) {
    int bias = (1 << (f.exponent - 1)) - 1, e = x >> f.mantissa & ((1 << f.exponent) - 1), m = x & ((1 << f.mantissa) - 1);
    float sign = x >> (f.exponent + f.mantissa) ? -1 : 1;
    if (e == (1 << f.exponent) - 1 && (f.infinite || m == (1 << f.mantissa) - 1)) {
        if (!f.infinite)
            return NAN;
        return m ? NAN : sign * INFINITY;
    }
    return e == 0 ? sign * ldexpf(m, 1 - bias - f.mantissa) : sign * ldexpf(m + (1 << f.mantissa), e - bias - f.mantissa);
}

static unsigned narrow(format f, float v) {
    int bias = (1 << (f.exponent - 1)) - 1, top = (1 << f.exponent) - 1, eight = 1 + f.exponent + f.mantissa == 8;
    unsigned sign = signbit(v) ? 1u << (f.exponent + f.mantissa) : 0, largest;
    largest = f.infinite ? ((unsigned)top << f.mantissa) - 1 : ((unsigned)top << f.mantissa | ((1u << f.mantissa) - 2));
    if (isnan(v))
        return sign | (f.infinite ? (unsigned)top << f.mantissa | 1u << (f.mantissa - 1) : (unsigned)top << f.mantissa | ((1u << f.mantissa) - 1));
    double a = fabs((double)v);
    if (isinf(v))
        return sign | (f.infinite ? (unsigned)top << f.mantissa : largest);
    if (a == 0)
        return sign;
    int e;
    frexp(a, &e); // a in [2^(e-1), 2^e)
    int low = 1 - bias;
    int scale = (e - 1 < low ? low : e - 1) - f.mantissa;
    double n = nearbyint(ldexp(a, -scale)); // ties to even
    uint64_t bits = (uint64_t)n;
    // The encoding of n * 2^scale: the exponent field grows by itself when the rounding carries.
    uint64_t code = e - 1 < low ? bits : ((uint64_t)(e - 1 - low) << f.mantissa) + bits;
    if (code > largest)
        code = eight ? largest : (uint64_t)top << f.mantissa; // fp8 saturates
    return sign | (unsigned)code;
}

static float load(int t, const void *p, size_t i) {
    if (t == F32)
        return ((const float *)p)[i];
    if (t == F64)
        return (float)((const double *)p)[i];
    return widen(format_of(t), size_of(t) == 2 ? ((const uint16_t *)p)[i] : ((const uint8_t *)p)[i]);
}

static void store(int t, void *p, size_t i, float v) {
    if (t == F32)
        ((float *)p)[i] = v;
    else if (t == F64)
        ((double *)p)[i] = v;
    else if (size_of(t) == 2)
        ((uint16_t *)p)[i] = narrow(format_of(t), v);
    else
        ((uint8_t *)p)[i] = narrow(format_of(t), v);
}

static int64_t load_int(int t, const void *p, size_t i) {
    switch (t) {
    case I8: return ((const int8_t *)p)[i];
    case U8: return ((const uint8_t *)p)[i];
    case I32: return ((const int32_t *)p)[i];
    case U32: return ((const uint32_t *)p)[i];
    }
    return ((const int64_t *)p)[i];
}

static void store_int(int t, void *p, size_t i, int64_t v) { memcpy((char *)p + i * size_of(t), &v, size_of(t)); }

// reduce combines element i of n ranks: floats in fp32 in rank order, sums from +0, rounded once; integers modulo their width.
// Operations: 0 sum, 1 prod, 2 max, 3 min, 4 avg. scale multiplies each input first, when it is not NULL.
static void reduce(int t, int op, int n, const void **src, void *dst, size_t count, const float *scale) {
    for (size_t i = 0; i < count; i++) {
        if (!is_float(t)) {
            int64_t acc = load_int(t, src[0], i);
            for (int r = 1; r < n; r++) {
                int64_t v = load_int(t, src[r], i);
                acc = op == 1 ? (int64_t)((uint64_t)acc * (uint64_t)v) : op == 2 ? (acc > v ? acc : v) : op == 3 ? (acc < v ? acc : v) : (int64_t)((uint64_t)acc + (uint64_t)v);
            }
            store_int(t, dst, i, acc);
            continue;
        }
        float acc = 0;
        for (int r = 0; r < n; r++) {
            float v = load(t, src[r], i);
            if (scale)
                v *= scale[r];
            if (op == 0 || op == 4)
                acc = acc + v;
            else if (r == 0)
                acc = v;
            else if (op == 1)
                acc = acc * v;
            else if (isnan(acc) || isnan(v))
                acc = NAN;
            else if (acc == v)
                acc = (op == 3 ? signbit(v) : signbit(acc)) ? (op == 3 ? v : acc == 0 ? v : acc) : acc;
            else
                acc = op == 2 ? (acc > v ? acc : v) : (acc < v ? acc : v);
        }
        store(t, dst, i, op == 4 ? acc / n : acc);
    }
}
