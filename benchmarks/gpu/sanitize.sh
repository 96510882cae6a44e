#!/bin/bash
# Runs the kernels under compute-sanitizer and prints a line for each tool:
#
#	benchmarks/gpu/sanitize.sh [OUT [TEST BINARY]]
#
# memcheck finds accesses outside of allocations, racecheck hazards in shared memory, synccheck barriers that not all threads
# reach. The calls are small and few (TestSanitized of comm/p2p; FILTER='^TestBrief.*GPU$' of ep/eptest), because everything is some
# hundred times slower, and deadlines are long. The tool runs one kernel at a time: WEFT_KERNEL_GANG makes one launch of the
# kernels that wait for each other. Errors that the driver's calls return are not counted:
# the tests provoke some. OUT gets the logs; the default is a temporary folder. The binary is built when none is given.
# The exit status is not zero if a tool found something, or did not run.
set -uo pipefail
out=$(readlink -f "${1:-$(mktemp -d)}")
binary=${2:-}
if [ -z "$binary" ]; then
	binary=$out/p2p.test
	(cd "$(dirname "$0")/../.." && go test -c -o "$binary" ./comm/p2p) || exit 1
fi
binary=$(readlink -f "$binary")
tool=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
[ -x "$tool" ] || { echo "sanitize: no compute-sanitizer; it comes with the CUDA toolkit" >&2; exit 1; }
# NVLink multicast may put shared hardware out of service.
export NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 WEFT_REQUIRE_GPU=1
# The tool initialises the driver before weft can ask for these.
export WEFT_KERNEL_GANG=1 CUDA_MODULE_LOADING=EAGER CUDA_DEVICE_MAX_CONNECTIONS=32
mkdir -p "$out"
status=0
for what in ${TOOLS:-memcheck racecheck synccheck}; do
	log=$out/$what.log
	start=$SECONDS
	timeout -k 5 "${LIMIT:-40}" "$tool" --tool "$what" --report-api-errors no --print-limit 20 \
		"$binary" -test.v -test.run "${FILTER:-^TestSanitized\$}" >"$log" 2>&1
	rc=$?
	errors=$(sed -n 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p; s/.*RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$log" | tail -1)
	printf '%-9s rc %s, %s errors, %s tests passed, %s failed, %s s\n' "$what" "$rc" "${errors:-no count of}" \
		"$(grep -c -- '--- PASS' "$log")" "$(grep -c -- '--- FAIL' "$log")" $((SECONDS - start))
	[ "$rc" = 0 ] && [ "${errors:-1}" = 0 ] || status=1
done
exit $status
