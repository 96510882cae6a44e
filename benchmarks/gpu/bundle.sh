#!/bin/bash
# Builds the GPU tests and benchmarks into build/carry/gpu.tgz, for a machine with a driver and CUDA's libraries and no Go.
# There:
#
#	tar xzf gpu.tgz && gpu/run.sh OUT
#
# checks everything (WEFT_REQUIRE_GPU=1: a test that cannot run fails) and times it; logs and JSON lines go to OUT. sanitize.sh OUT
# comm_p2p.test in that folder runs the kernels under compute-sanitizer.
# With WEFT_NVRTC_LIB set here, kernels are compiled into the bundle's cache, which saves a minute there.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=build/carry
version=$(bash benchmarks/version.sh)
rm -rf "$out/gpu" && mkdir -p "$out/gpu"
echo "$version" >"$out/gpu/version"
packages=${PACKAGES:-"cuda internal/nvrtc internal/kernels comm/p2p comm/staged symm examples/pointers examples/moelayer weft"}
for p in $packages; do # weft is the root package
	from=./$p
	if [ "$p" = weft ]; then from=.; fi
	go test -c -ldflags='-s -w' -trimpath -o "$out/gpu/${p//\//_}.test" "$from"
	echo "$p" >>"$out/gpu/packages"
	mkdir -p "$out/gpu/tree/$p"
	if [ -d "$from/testdata" ]; then cp -r "$from/testdata" "$out/gpu/tree/$p/"; fi
done
if [ -n "${WEFT_NVRTC_LIB:-}" ]; then
	for own in WEFT_KERNEL_DELAYS=0 WEFT_KERNEL_DELAYS=1 WEFT_KERNEL_GANG=1; do # TestDelays and sanitize.sh have kernels of their own
		env "$own" WEFT_CACHE_DIR="$PWD/$out/gpu/cache" go test -count=1 -run TestCompile ./internal/kernels
	done
fi
cp benchmarks/gpu/torch_chain.py benchmarks/gpu/sanitize.sh "$out/gpu/"
cat >"$out/gpu/run.sh" <<'RUN'
#!/bin/bash
# run.sh OUT [check|time|all]: see bundle.sh.
cd "$(dirname "$0")"
here=$PWD
out=${1:?the folder for results}
what=${2:-all}
mkdir -p "$out" && cp version "$out/version"
# NVLink multicast may put shared hardware out of service.
export NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
export WEFT_REQUIRE_GPU=1 WEFT_CACHE_DIR="$here/cache"
WEFT_DRIVER_VERSION=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)
export WEFT_DRIVER_VERSION
if [ -z "${WEFT_NVRTC_LIB:-}" ]; then # Python's wheels, where there is no toolkit on the loader's path
	WEFT_NVRTC_LIB=$(python3 -c 'import nvidia.cu13, os; print(os.path.join(list(nvidia.cu13.__path__)[0], "lib"))' 2>/dev/null || true)
	if [ -n "$WEFT_NVRTC_LIB" ]; then export WEFT_NVRTC_LIB; else unset WEFT_NVRTC_LIB; fi
fi
status=0
if [ "$what" != time ]; then
	while read -r p; do
		name=${p//\//_}
		(cd "tree/$p" && timeout "${LIMIT:-200}" "$here/$name.test" -test.v -test.timeout "${LIMIT:-200}s" ${RUN_FILTER:+-test.run "$RUN_FILTER"}) >"$out/$name.log" 2>&1
		rc=$?
		printf '%s rc %s, %s passed, %s failed, %s skipped\n' "$p" "$rc" "$(grep -c -- '--- PASS' "$out/$name.log")" \
			"$(grep -c -- '--- FAIL' "$out/$name.log")" "$(grep -c -- '--- SKIP' "$out/$name.log")"
		[ "$rc" = 0 ] || status=1
	done <packages
fi
if [ "$what" != check ]; then
	(cd tree/comm/p2p && WEFT_TIMING="$out/p2p.jsonl" timeout 200 "$here/comm_p2p.test" -test.v -test.run TestTiming -test.timeout 190s) >"$out/timing.log" 2>&1 || status=1
	cat "$out/timing.log"
	if python3 -c 'import torch' 2>/dev/null; then timeout 100 python3 torch_chain.py "$out/torch.jsonl" && cat "$out/torch.jsonl"; fi
fi
exit $status
RUN
chmod +x "$out/gpu/run.sh"
tar czf "$out/gpu.tgz" -C "$out" gpu
du -sh "$out/gpu.tgz"
