#!/bin/bash
# Builds the tests and timings of dispatch and combine into build/carry/exchange.tgz, for a machine with a driver and CUDA's
# libraries and no Go. There:
#
#	tar xzf exchange.tgz && exchange/run.sh OUT
#
# With WEFT_NVRTC_LIB set here, kernels are compiled into the bundle's cache.
set -euo pipefail
cd "$(dirname "$0")/../.."
b=build/carry/exchange
version=$(bash benchmarks/version.sh)
rm -rf "$b" && mkdir -p "$b/tree"
echo "$version" >"$b/version"
go test -c -ldflags='-s -w' -trimpath -o "$b/eptest.test" ./ep/eptest
if [ -n "${WEFT_NVRTC_LIB:-}" ]; then
	WEFT_CACHE_DIR="$PWD/$b/cache" go test -count=1 -run 'TestCompile' ./internal/kernels
fi
cp benchmarks/gpu/torch_exchange.py "$b/"
cat >"$b/run.sh" <<'RUN'
#!/bin/bash
# run.sh OUT: see exchange.sh.
cd "$(dirname "$0")"
here=$PWD
out=${1:?the folder for results}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cp version "$out/version"
# NVLink multicast may put shared hardware out of service.
export NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
export WEFT_REQUIRE_GPU=1 WEFT_CACHE_DIR="$here/cache"
cd tree
timeout 240 "$here/eptest.test" -test.v -test.run 'GPU' >"$out/tests.log" 2>&1
echo "tests rc $?, $(grep -c -- '--- PASS' "$out/tests.log") passed, $(grep -c -- '--- FAIL' "$out/tests.log") failed"
WEFT_TIMING="$out/exchange.jsonl" timeout 90 "$here/eptest.test" -test.v -test.run TestTiming >"$out/timing.log" 2>&1
echo "timing rc $?"
grep ' tokens ' "$out/timing.log"
if python3 -c 'import torch' 2>/dev/null; then timeout 100 python3 "$here/torch_exchange.py" "$out/torch.jsonl"; fi
RUN
chmod +x "$b/run.sh"
tar czf build/carry/exchange.tgz -C build/carry exchange
du -sh build/carry/exchange.tgz
