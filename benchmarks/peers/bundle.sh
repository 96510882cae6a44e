#!/bin/bash
# Builds build/carry/peers.tgz: the comparison with Open MPI for a machine with mpirun and no Go. There:
#
#	tar xzf peers.tgz && peers/run.sh OUT [flags of the command]
#
# It runs on two CPUs of different cores, which it chooses, and compiles the MPI program there if it can. Binaries named
# peers.NAME in the folder $BEFORE go along and run first, for a comparison of two versions in one run.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=build/carry
version=$(bash benchmarks/version.sh)
rm -rf "$out/peers" && mkdir -p "$out/peers"
echo "$version" >"$out/peers/version"
CGO_ENABLED=0 go build -ldflags='-s -w' -trimpath -o "$out/peers/peers.weft" ./benchmarks/peers
if [ -n "${BEFORE:-}" ]; then cp "$BEFORE"/peers.* "$out/peers/"; fi
sh benchmarks/peers/mpi/build.sh openmpi "$PWD/$out/peers/peer.openmpi"
cp benchmarks/peers/mpi/peer.c benchmarks/peers/mpi/build.sh "$out/peers/"
cp benchmarks/peers/run.sh "$out/peers/run.sh"
tar -C "$out" -czf "$out/peers.tgz" peers
ls -l "$out/peers.tgz"
