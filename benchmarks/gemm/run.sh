#!/usr/bin/env bash
# Compares internal/gemm with OpenBLAS on one thread: prints GFLOP/s of both and their ratio, and appends JSON lines to
# benchmarks/results/gemm.jsonl: bash benchmarks/gemm/run.sh. Needs Go, a C compiler and OpenBLAS's header:
#
#     apt-get install gcc libopenblas-dev
#
# What the ratio compares: weft packs the weight once, before the clock starts, as a model does when it loads; OpenBLAS is
# given the plain matrix and packs it in every call, which weighs most where m is small.
#
# The bar is a ratio of 0.6 at 512 x 512 x 512. Arguments go to the Go program, e.g. --turns 9.
set -euo pipefail
cd "$(dirname "$0")"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cc=${CC:-cc}
cflags=(-O2)
if ! "$cc" "${cflags[@]}" peer/openblas.c -o "$tmp/openblas" -lopenblas; then
	echo "run.sh: cannot build against OpenBLAS; try: apt-get install gcc libopenblas-dev" >&2
	exit 1
fi
# A forced kernel or cache size would slow OpenBLAS down: let it look at the processor itself.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
export OPENBLAS_NUM_THREADS=1
mkdir -p ../results
go build -o "$tmp/gemm" .
"$tmp/gemm" --openblas "$tmp/openblas" --out ../results/gemm.jsonl \
	--flags "$("$cc" --version | head -n 1);${cflags[*]}" "$@"
