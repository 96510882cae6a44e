"""torch.distributed's collectives per message size, as lines that benchmarks/report reads beside weft's own.

    torchrun --nproc-per-node 8 peers.py OUT.jsonl [largest size in bytes]

NCCL's collectives are captured in a CUDA graph; symmetric memory's two-shot and one-shot all-reduce too, where torch has them.
Times are medians of replays on the slowest rank, in microseconds of one operation. NVLink multicast stays off: the caller
exports NCCL_NVLS_ENABLE=0 and TORCH_SYMM_MEM_DISABLE_MULTICAST=1, and without them nothing runs.
"""
import json
import os
import sys

import torch
import torch.distributed as dist

if os.environ.get("NCCL_NVLS_ENABLE") != "0" or os.environ.get("TORCH_SYMM_MEM_DISABLE_MULTICAST") != "1":
    sys.exit("export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 first")
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
largest = int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 30
out = open(sys.argv[1], "w") if rank == 0 else None


def write(line):
    if out:
        print(json.dumps(line), file=out, flush=True)


def graph_us(op, repeat):
    """Microseconds of one call of op, repeat of them in a graph: the median of replays, of the slowest rank."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            op()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeat):
            op()
    times = []
    for _ in range(13):
        dist.barrier()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / repeat)
    worst = torch.tensor(sorted(times[3:])[5], device="cuda")
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return worst.item()


def row(op, driver, bytes, us, factor, skew=0.0):
    write({"record": "row", "op": op, "size": bytes, "count": bytes // 2, "type": "bf16", "redop": "sum" if "reduce" in op else "",
           "driver": driver, "ranks": size, "in_place": False, "time_us": round(us, 3), "algbw": bytes / us / 1e3,
           "busbw": bytes / us / 1e3 * factor, "wrong": None, "skew": skew})


def ragged(bytes, skew):
    """all_gather of unequal parts as grouped sends and receives, rank 0 owning the share skew."""
    n = bytes // 2
    first = int(n * skew)
    counts = [first] + [(n - first) // max(1, size - 1)] * (size - 1)
    mine = torch.randn(counts[rank], device="cuda", dtype=torch.bfloat16)
    parts = [torch.empty(c, device="cuda", dtype=torch.bfloat16) for c in counts]

    def op():
        ops = []
        for peer in range(size):
            if peer != rank:
                ops += [dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, parts[peer], peer)]
        parts[rank].copy_(mine)
        if ops:
            for w in dist.batch_isend_irecv(ops):
                w.wait()

    return op


def main():
    versions = {"torch": torch.__version__, "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    write({"record": "header", "tool": "peers.py", "weft": "", "args": sys.argv[1:], "machine": {"gpus": [torch.cuda.get_device_name()], "cuda": torch.version.cuda},
           "seed": 0, "time": "0001-01-01T00:00:00Z", "peers": versions})
    twice, once = 2 * (size - 1) / size, (size - 1) / size
    bytes = 1 << 10
    while bytes <= largest:
        n = bytes // 2
        repeat = 20 if bytes <= 1 << 20 else 4
        x = torch.randn(n, device="cuda", dtype=torch.bfloat16)
        part = torch.randn(n // size, device="cuda", dtype=torch.bfloat16)
        whole = torch.empty(n // size * size, device="cuda", dtype=torch.bfloat16)
        sent = torch.randn(n // size * size, device="cuda", dtype=torch.bfloat16)
        row("all_reduce", "torch-nccl", bytes, graph_us(lambda: dist.all_reduce(x), repeat), twice)
        row("all_gather", "torch-nccl", bytes, graph_us(lambda: dist.all_gather_into_tensor(whole, part), repeat), once)
        row("reduce_scatter", "torch-nccl", bytes, graph_us(lambda: dist.reduce_scatter_tensor(part, sent), repeat), once)
        row("alltoall", "torch-nccl", bytes, graph_us(lambda: dist.all_to_all_single(whole, sent), repeat), once)
        if bytes >= 1 << 20:
            row("all_gatherv", "torch-sendrecv", bytes, graph_us(ragged(bytes, 0.5), repeat), once, 0.5)
        try:
            import torch.distributed._symmetric_memory as symmetric
            y = symmetric.empty(n, device="cuda", dtype=torch.bfloat16)
            symmetric.rendezvous(y, dist.group.WORLD.group_name)
            name = dist.group.WORLD.group_name
            row("all_reduce", "torch-two-shot", bytes, graph_us(lambda: torch.ops.symm_mem.two_shot_all_reduce_(y, "sum", name), repeat), twice)
            if bytes <= 1 << 20:
                row("all_reduce", "torch-one-shot", bytes, graph_us(lambda: torch.ops.symm_mem.one_shot_all_reduce(y, "sum", name), repeat), twice)
        except Exception as e:  # an older torch, or one rank
            if rank == 0:
                print("symmetric memory:", e, file=sys.stderr)
        bytes *= 4
    dist.destroy_process_group()


main()
