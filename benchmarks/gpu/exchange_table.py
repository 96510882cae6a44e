"""The table of docs/performance.md from a run of exchange.sh: exchange_table.py exchange.jsonl torch.jsonl"""
import json
import sys


def rows(path):
    with open(path) as f:
        return [r for r in map(json.loads, f) if r.get("record") == "row"]


SIZES = [64, 256, 1024, 4096, 8192, 16384, 32768]
NAMES = [
    ("dispatch rows", "dispatch, a row once a rank"),
    ("dispatch expanded", "dispatch, Expanded"),
    ("dispatch rows fp8", "dispatch, fp8 wire"),
    ("combine partial rows", "combine, partial rows"),
    ("combine expert rows pulled", "combine, expert rows where they lie"),
    ("combine expert rows pre-summed", "combine, expert rows summed first"),
    ("rows + partial rows", "dispatch and combine of partial rows"),
    ("dispatch 32-byte rows: index and counts", "dispatch of 32-byte rows: meetings, counts, index"),
]


def main(ours, torch):
    ours = {(r["op"], r["tokens"]): r for r in reversed(rows(ours)) if r["how"].startswith("graph")}  # the first of each
    torch = {(r["op"], r["tokens"]): r["time_us"] for r in rows(torch)}
    print("| tokens of all ranks | " + " | ".join(f"{n:,}" for n in SIZES) + " |")
    print("|---|" + "---|" * len(SIZES))
    for op, label in NAMES:
        cells = []
        for n in SIZES:
            r = ours.get((op, n))
            cells.append("-" if r is None else f"{r['time_us']:.1f}" + (f" ({r['of_floor']:.2f})" if r.get("of_floor") else ""))
        print(f"| {label} | " + " | ".join(cells) + " |")
    peer = [torch["dispatch", n] + torch["combine gather and sum", n] for n in SIZES]
    print("| torch: index_select, then gather and sum | " + " | ".join(f"{t:.0f}" for t in peer) + " |")
    print("| torch / ours, pair | " + " | ".join(f"{t / ours['rows + partial rows', n]['time_us']:.2f}" for t, n in zip(peer, SIZES)) + " |")


if __name__ == "__main__":
    main(*sys.argv[1:])
