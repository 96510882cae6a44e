#!/bin/bash
# Builds build/carry/eight.tgz: what run.sh needs on a machine with two, four or eight GPUs and no Go.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=build/carry
version=$(bash benchmarks/version.sh)
rm -rf "$out/eight" && mkdir -p "$out/eight"
echo "$version" >"$out/eight/version"
for p in comm/p2p nccl nccl/ncclworld nvshmem symm alltoall alltoall/twolevel agrs; do
	[ -d "$p" ] || continue
	go test -c -ldflags='-s -w' -trimpath -o "$out/eight/${p//\//_}.test" "./$p"
	mkdir -p "$out/eight/tree/$p"
	if [ -d "$p/testdata" ]; then cp -r "$p/testdata" "$out/eight/tree/$p/"; fi
done
for p in benchmarks examples/judge cmd/weft; do
	go build -ldflags='-s -w' -trimpath -o "$out/eight/$(basename "$p")" "./$p"
done
cp benchmarks/eight/run.sh benchmarks/eight/*.py "$out/eight/"
tar czf "$out/eight.tgz" -C "$out" eight
du -sh "$out/eight.tgz"
