#!/bin/bash
# run.sh OUT [flags]: see bundle.sh. Tables and JSON lines go to OUT.
cd "$(dirname "$0")"
here=$PWD
out=${1:?the folder for results}
shift
mkdir -p "$out/bin" && out=$(cd "$out" && pwd)
cp version "$out/version"
export PATH=$out/bin:$PATH OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_rmaps_base_oversubscribe=1

# Two CPUs that are no threads of one core, of one package, if there are such; not the first, which takes interrupts.
cpus=$(python3 - <<'PY' 2>/dev/null || echo 0,1
import os
def read(cpu, name): return open(f"/sys/devices/system/cpu/cpu{cpu}/topology/{name}").read().strip()
allowed = sorted(os.sched_getaffinity(0))
first = allowed[2] if len(allowed) > 3 else allowed[0]
place = lambda c: (read(c, "physical_package_id"), read(c, "core_id"))
rest = [c for c in allowed if c > first and place(c)[0] == place(first)[0] and place(c)[1] != place(first)[1]]
print(f"{first},{rest[0] if rest else allowed[1]}")
PY
)
lscpu >"$out/lscpu.txt" 2>&1
echo "cpus $cpus" >>"$out/lscpu.txt"
mpirun --version 2>&1 | head -1
command -v mpirun.openmpi >/dev/null || ln -sf "$(command -v mpirun)" "$out/bin/mpirun.openmpi"
program=$here/peer.openmpi
if sh build.sh openmpi "$out/bin/peer" 2>"$out/build.log"; then program=$out/bin/peer; fi
for binary in peers.*; do
	name=${binary#peers.}
	case $name in weft) continue ;; esac
	command -v mpicc.openmpi >/dev/null || ln -sf "$(command -v mpicc || echo /bin/false)" "$out/bin/mpicc.openmpi"
	timeout "${LIMIT:-60}" taskset -c "$cpus" "./$binary" --lib openmpi -J "$out/peers.$name.jsonl" "$@" >"$out/peers.$name.txt" 2>"$out/peers.$name.log" ||
		tail -3 "$out/peers.$name.log"
done
timeout "${LIMIT:-60}" taskset -c "$cpus" ./peers.weft --lib openmpi --built "openmpi=$program" -J "$out/peers.jsonl" "$@" >"$out/peers.txt" 2>"$out/peers.log" ||
	tail -3 "$out/peers.log"
rm -rf "$out/bin"
for f in "$out"/peers*.txt; do
	echo "$(basename "$f"): $(tail -1 "$f")"
done
