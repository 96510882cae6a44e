"""What the all-reduce of eight virtual ranks costs as a chain of torch operations, captured in a CUDA graph: stack, sum, and a
copy to each rank. Prints JSON lines; times are medians of replays, in microseconds."""
import json
import sys

import torch

out = open(sys.argv[1], "w") if len(sys.argv) > 1 else sys.stdout
print(json.dumps({"record": "header", "tool": "torch chain", "torch": torch.__version__, "gpu": torch.cuda.get_device_name()}), file=out)
ranks = 8
for size in (1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20):
    xs = [torch.randn(size // 2, device="cuda", dtype=torch.bfloat16) for _ in range(ranks)]
    ys = [torch.empty_like(x) for x in xs]
    repeat = 20 if size <= 1 << 20 else 4

    def chain():
        total = torch.stack(xs).sum(0)
        for y in ys:
            y.copy_(total)

    chain()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeat):
            chain()
    times = []
    for i in range(25):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / repeat)
    us = sorted(times[4:])[len(times[4:]) // 2]
    print(json.dumps({"record": "row", "op": "all_reduce", "how": "graph", "driver": "torch", "type": "bf16", "ranks": ranks, "size": size, "time_us": round(us, 2)}), file=out)
