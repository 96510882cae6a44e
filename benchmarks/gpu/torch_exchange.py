"""Dispatch and combine of eight virtual ranks as torch ops in a CUDA graph: the peers of alltoall on one GPU.

    python3 torch_exchange.py OUT.jsonl

dispatch: one index_select that lays the copies of all ranks behind each other. combine: index_add_ (fp32 accumulator, then a
cast), and a gather with a sum over padded lists, which needs no atomics. Medians of replays, random data, H 4096, 128
experts, top-8, bf16.
"""
import json
import sys

import torch

H, E, K, P = 4096, 128, 8, 8


def median_us(fn, reps=7):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            fn()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fn()
    times = []
    for _ in range(reps + 2):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        graph.replay()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) * 1e3)
    return sorted(times[2:])[reps // 2]


def main(path):
    out = open(path, "w")

    def add(op, n, us, note=""):
        line = {"record": "row", "op": op, "how": "graph", "tokens": n, "ranks": P, "time_us": us, "note": note, "peer": "torch " + torch.__version__}
        out.write(json.dumps(line) + "\n")
        print(f"torch {op:24s} {n:6d} tokens {us:9.2f} us")

    torch.manual_seed(1)
    for n in [64, 256, 1024, 4096, 8192, 16384, 32768]:
        x = torch.randn(n, H, device="cuda", dtype=torch.bfloat16)
        ids = torch.rand(n, E, device="cuda").topk(K, dim=1).indices
        hit = torch.zeros(n, P, device="cuda", dtype=torch.bool)
        hit.scatter_(1, ids // (E // P), True)
        rows = hit.t().nonzero()[:, 1].contiguous()  # token of each copy, rank by rank
        copies = rows.numel()
        y = torch.randn(copies, H, device="cuda", dtype=torch.bfloat16)
        got = torch.empty(copies, H, device="cuda", dtype=torch.bfloat16)
        add("dispatch", n, median_us(lambda: torch.index_select(x, 0, rows, out=got)), f"copies {copies / n:.3f}")
        acc = torch.zeros(n, H, device="cuda", dtype=torch.float32)
        done = torch.empty(n, H, device="cuda", dtype=torch.bfloat16)

        def scatter():
            acc.zero_()
            acc.index_add_(0, rows, y.float())
            done.copy_(acc)

        if n <= 8192:
            add("combine index_add", n, median_us(scatter))
        where = torch.full((n, P), copies, device="cuda", dtype=torch.long)  # the last row is zeros
        where[hit] = torch.cumsum(hit.t().reshape(-1), 0).reshape(P, n).t()[hit] - 1
        where = where.sort(dim=1).values[:, : int(hit.sum(1).max())].contiguous()
        padded = torch.cat([y, torch.zeros(1, H, device="cuda", dtype=torch.bfloat16)])
        flat = where.reshape(-1)

        def gather():
            torch.sum(padded.index_select(0, flat).view(n, -1, H), dim=1, dtype=torch.float32, out=acc)
            done.copy_(acc)

        add("combine gather and sum", n, median_us(gather))
        del x, y, got, acc, done, padded
    out.close()


if __name__ == "__main__":
    main(sys.argv[1])
