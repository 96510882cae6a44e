#!/bin/bash
# run.sh OUT PART [GPUS]: one part of what is measured on several GPUs of one host. Build it with bundle.sh, unpack eight.tgz there.
#
#	eight/run.sh OUT topology      links, pairs that reach each other, copy rates of each pair       about 1 minute
#	eight/run.sh OUT right         every driver against the CPU, one process and one per GPU          about 5 minutes
#	eight/run.sh OUT collectives   times per message size: weft's p2p and nccl, torch, in turns       about 8 minutes
#	eight/run.sh OUT exchange      dispatch, combine, the MoE layer, and the judge in all layouts     about 8 minutes
#
# GPUS is how many to use, by default all. Results are JSON lines and logs in OUT. NVLink multicast stays off throughout:
# creating a multicast object can put shared hardware out of service.
set -u
export NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 WEFT_REQUIRE_GPU=1
out=$(mkdir -p "${1:?the folder for results}" && cd "$1" && pwd)
part=${2:?topology, right, collectives or exchange}
gpus=${3:-$(nvidia-smi -L | wc -l)}
cd "$(dirname "$0")"
here=$PWD
cp version "$out/version"
export WEFT_CACHE_DIR=${WEFT_CACHE_DIR:-$here/cache}
devices=cuda:0-$((gpus - 1))
if [ "$gpus" = 1 ]; then devices=cuda:0x8; fi # a rehearsal: eight ranks share the GPU
failed=0

# step LIMIT NAME COMMAND...: the command's output goes to OUT/NAME.log, its end to the terminal.
step() {
	local limit=$1 name=$2
	shift 2
	timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1
	local rc=$?
	[ $rc = 0 ] || failed=1
	printf '%-28s rc %d  %s\n' "$name" "$rc" "$(tail -1 "$out/$name.log" | cut -c1-120)"
}

case $part in
topology)
	nvidia-smi topo -m >"$out/topology.log" 2>&1
	nvidia-smi nvlink -s >"$out/nvlink.log" 2>&1
	step 30 doctor ./weft doctor
	step 120 copies python3 copies.py
	cat "$out/copies.log"
	;;
right)
	for t in *.test; do
		name=${t%.test}
		step 240 "$name" bash -c "cd '$here/tree/${name//_//}' && '$here/$t' -test.v -test.timeout 230s"
	done
	;;
collectives)
	for round in 1 2 3; do
		for driver in p2p nccl; do
			[ "$driver$gpus" = nccl1 ] && continue # NCCL takes one rank per GPU
			step 120 "$driver-$round" ./benchmarks --driver $driver --devices "$devices" -d bfloat16 -G 3 -c $((round == 1)) -b 1K -e 1G -f 4 \
				--op all_reduce,all_gather,all_gatherv,reduce_scatter,reduce_scatterv,alltoall,barrier -J "$out/$driver-$round.jsonl"
		done
		step 90 "torch-$round" torchrun --nproc-per-node "$gpus" peers.py "$out/torch-$round.jsonl"
	done
	for driver in p2p nccl; do
		[ "$driver$gpus" = nccl1 ] && continue
		step 60 "$driver-skew" ./benchmarks --driver $driver --devices "$devices" -d bfloat16 -G 3 -c 1 -b 1M -e 256M -f 4 --skew 0.5 \
			--op all_gatherv,reduce_scatterv -J "$out/$driver-skew.jsonl"
	done
	;;
exchange)
	for wire in "" --fp8; do
		for hidden in 4096 7168; do
			step 100 "exchange-$hidden$wire" ./benchmarks --devices "$devices" -d bfloat16 --op dispatch,combine --hidden $hidden --experts 128 --topk 8 \
				--tokens 1,8,32,128,512,2048,4096 $wire -J "$out/exchange-$hidden$wire.jsonl"
		done
	done
	step 100 layer ./benchmarks --devices "$devices" -d bfloat16 --op moe_layer --hidden 2048 --experts 128 --topk 8 --intermediate 768 --tokens 1,32,256 -J "$out/layer.jsonl"
	step 200 judge ./judge run --devices "$devices" --json "$out/judge.json"
	;;
*)
	echo "no part $part: topology, right, collectives or exchange" >&2
	exit 2
	;;
esac
exit $failed
