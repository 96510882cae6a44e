"""The rate of copies between each pair of GPUs, one way and both ways at once, in GB/s: the ceiling for everything between GPUs.

    python3 copies.py [bytes]
"""
import sys
import time

import torch

n = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 28
gpus = torch.cuda.device_count()
buffers = [[torch.zeros(n, dtype=torch.uint8, device=f"cuda:{i}") for _ in range(2)] for i in range(gpus)]


def rate(pairs):
    for repeats in (2, 10):
        for i in range(gpus):
            torch.cuda.synchronize(i)
        start = time.perf_counter()
        for _ in range(repeats):
            for a, b in pairs:
                with torch.cuda.device(a):
                    buffers[b][1].copy_(buffers[a][0], non_blocking=True)
        for i in range(gpus):
            torch.cuda.synchronize(i)
        seconds = time.perf_counter() - start
    return len(pairs) * 10 * n / seconds / 1e9


print("one way / both ways, GB/s;", gpus, "x", torch.cuda.get_device_name(0))
for a in range(gpus):
    print(f"cuda:{a}", " ".join("   -   " if a == b else f"{rate([(a, b)]):.0f}/{rate([(a, b), (b, a)]):.0f}" for b in range(gpus)))
