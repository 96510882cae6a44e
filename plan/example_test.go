package plan_test

import (
	"fmt"

	"github.com/weftgo/weft/plan"
)

// The article's question: Qwen3-235B-A22B as a reward judge on one node of eight H200.
func Example() {
	model, _ := plan.Preset("qwen3-235b-a22b")
	cluster, _ := plan.ClusterPreset("8xh200", 0)
	judge, _ := plan.WorkloadPreset("judge")
	report, err := plan.New(plan.Request{Model: model, Cluster: cluster, Workload: judge, Tokens: 32768})
	if err != nil {
		fmt.Println(err)
		return
	}
	const gib = 1 << 30
	for _, row := range report.Rows {
		v := row.Traffic[0]
		fmt.Printf("%-18s %5.1f GiB of weights, %5.1f GiB moved per GPU (%s), fits %v\n", row.Layout,
			float64(row.Memory.Weights)/gib, v.PerGPU/gib, v.Counting, row.Memory.Fits)
	}
	fmt.Println("try first:", report.Verdict.Layout)
	// Output:
	// tp8                 54.9 GiB of weights,  82.2 GiB moved per GPU (ring), fits true
	// tp8+ep8             54.9 GiB of weights,  82.2 GiB moved per GPU (ring), fits true
	// dp2tp4+ep8:agrs     56.7 GiB of weights,  58.8 GiB moved per GPU (ring), fits true
	// dp4tp2+ep8:agrs     60.4 GiB of weights,  47.0 GiB moved per GPU (ring), fits true
	// dp8+ep8:agrs        67.8 GiB of weights,  41.1 GiB moved per GPU (ring), fits true
	// dp8+ep8:alltoall    67.8 GiB of weights,  30.9 GiB moved per GPU (self), fits true
	// dp8                 67.8 GiB of weights,  41.1 GiB moved per GPU (ring), fits true
	// dp8:replicas       437.9 GiB of weights,   0.0 GiB moved per GPU (ring), fits false
	// tp4pp2+ep4          54.8 GiB of weights,  35.3 GiB moved per GPU (ring), fits true
	// try first: tp8+ep8
}
