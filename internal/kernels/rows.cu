// Rows by lists that the host made: gathered, or added up. Neither kernel waits for anybody. What an exchange between nodes does
// with rows, which is planned on the host (package alltoall/twolevel); twins: exchange.Gatherer and exchange.Sums.
//
// A warp takes a piece of a row at a time, so that few long rows use all warps too.

struct GatherArgs {
    u64 dst, src, list;       // list: int32 [rows]
    i64 dstStride, srcStride; // bytes
    u64 rows, bytes;          // of a row
};

#define GATHER_PIECE 4096u

// zero_bytes writes zeros by the widest unit that p's alignment allows. A whole warp.
__device__ void zero_bytes(u8 *p, u32 n) {
    u32 lane = threadIdx.x & 31, head = min(n, (u32)(-(u64)p & 15)), units = (n - head) / 16, tail = head + units * 16;
    for (u32 i = lane; i < head; i += 32)
        p[i] = 0;
    for (u32 i = lane; i < units; i += 32)
        ((uint4 *)(p + head))[i] = make_uint4(0, 0, 0, 0);
    for (u32 i = tail + lane; i < n; i += 32)
        p[i] = 0;
}

// weft_gather copies row list[i] of src to row i of dst, and zeros where list[i] is negative. Bytes: each row read and written once.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_gather(const __grid_constant__ GatherArgs d) {
    follow();
    u32 lane = threadIdx.x & 31, warps = gridDim.x * (blockDim.x / 32);
    u64 pieces = (d.bytes + GATHER_PIECE - 1) / GATHER_PIECE, end = d.rows * pieces;
    for (u64 i = threadIdx.x / 32 * gridDim.x + blockIdx.x; i < end; i += warps) {
        u64 row = i / pieces, at = i % pieces * GATHER_PIECE;
        u32 n = (u32)min(d.bytes - at, (u64)GATHER_PIECE);
        int from = ((const int *)d.list)[row];
        u8 *to = (u8 *)d.dst + (i64)row * d.dstStride + at;
        Team warp = {lane, 32};
        if (from >= 0)
            copy_rows(to, d.dstStride, (const u8 *)d.src + (i64)from * d.srcStride + at, d.srcStride, 1, n, warp);
        else
            zero_bytes(to, n);
    }
}

struct AddArgs {
    u64 out, rows, start, item, weight; // start: int32 [numRows + 1]; item: int32 [numTerms]; weight: float [numTerms], or 0
    u64 bias[2];
    i64 outStride, rowsStride, biasStride[2]; // bytes
    u64 numRows;
    u32 numBias, hidden, dtype, pad;
};

// put8 writes values [c, c + 8) of a row of hidden values.
template <class N> __device__ __forceinline__ void put8(u8 *row, const float acc[8], u32 c, u32 hidden, bool vector) {
    typedef typename N::Raw Raw;
    Eight<N> x;
#pragma unroll
    for (int i = 0; i < 8; i++)
        x.x[i] = N::down(acc[i]);
    if (vector && c + 8 <= hidden) {
#pragma unroll
        for (int i = 0; i < Eight<N>::UNITS; i++)
            ((uint4 *)((Raw *)row + c))[i] = x.v[i];
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (c + i < hidden)
            ((Raw *)row)[c + i] = x.x[i];
}

// add_rows keeps ADD_DEEP rows on their way to a lane's eight values.
#define ADD_DEEP 4u

template <class N> __device__ void add_rows(const AddArgs &d) {
    u32 lane = threadIdx.x & 31, warps = gridDim.x * (blockDim.x / 32), hidden = d.hidden, steps = (hidden + 255) / 256;
    bool vector = ((d.rows | (u64)d.rowsStride) & 15) == 0, outVector = ((d.out | (u64)d.outStride) & 15) == 0;
    const int *start = (const int *)d.start, *item = (const int *)d.item;
    const float *weight = (const float *)d.weight;
    for (u64 i = threadIdx.x / 32 * gridDim.x + blockIdx.x; i < d.numRows * steps; i += warps) {
        u64 row = i / steps;
        u32 c = (u32)(i % steps) * 256 + lane * 8;
        if (c >= hidden)
            continue;
        float acc[8] = {};
        for (int t = start[row], end = start[row + 1]; t < end; t += ADD_DEEP) {
            Eight<N> x[ADD_DEEP];
            float w[ADD_DEEP];
#pragma unroll
            for (u32 k = 0; k < ADD_DEEP; k++)
                if (t + (int)k < end) {
                    load8<N>(x[k], (const u8 *)d.rows + (i64)item[t + k] * d.rowsStride, c, hidden, vector);
                    w[k] = weight ? weight[t + k] : 0;
                }
#pragma unroll
            for (u32 k = 0; k < ADD_DEEP; k++)
                if (t + (int)k < end) {
#pragma unroll
                    for (int j = 0; j < 8; j++) {
                        float v = N::up(x[k].x[j]);
                        acc[j] = plus(acc[j], weight ? times(w[k], v) : v);
                    }
                }
        }
        for (u32 b = 0; b < d.numBias; b++) {
            Eight<N> x;
            bool biasVector = ((d.bias[b] | (u64)d.biasStride[b]) & 15) == 0;
            load8<N>(x, (const u8 *)d.bias[b] + (i64)row * d.biasStride[b], c, hidden, biasVector);
#pragma unroll
            for (int j = 0; j < 8; j++)
                acc[j] = plus(acc[j], N::up(x.x[j]));
        }
        put8<N>((u8 *)d.out + (i64)row * d.outStride, acc, c, hidden, outVector);
    }
}

// weft_add writes row t of out [numRows, hidden]: in fp32 from +0 the rows item[start[t]], ..., item[start[t + 1] - 1] in that order, each
// times its weight (a product rounded to fp32) where there are weights, then row t of each bias, rounded once. out may be a
// bias. Bytes: each listed row read, each sum written.
extern "C" __global__ void __launch_bounds__(THREADS, 1) weft_add(const __grid_constant__ AddArgs d) {
    follow();
    switch (d.dtype) {
    case F32: add_rows<NumF32>(d); break;
    case BF16: add_rows<NumBF16>(d); break;
    default: add_rows<NumF16>(d);
    }
}
