package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/dl"
	"github.com/weftgo/weft/internal/envknob"
	"github.com/weftgo/weft/topo"
)

func TestDoctorHere(t *testing.T) {
	var out, errs bytes.Buffer
	require.Zero(t, run([]string{"doctor", "--json"}, &out, &errs), errs.String())
	var r report
	require.NoError(t, json.Unmarshal(out.Bytes(), &r))
	require.Positive(t, r.CPU.Cores)
	require.True(t, r.Abilities[0].Works, "the CPU driver works everywhere")
	names := map[string]library{}
	for _, l := range r.Libraries {
		names[l.Name] = l
		require.False(t, l.Path == "" && l.Error == "", "%s: found, or a reason", l.Name)
	}
	for _, name := range []string{"libcuda", "libnvrtc", "libcublasLt", "libnvidia-ml", "libnccl", "libnvshmem_host"} {
		require.Contains(t, names, name)
	}
	t.Log(names["libnvshmem_host"]) // TestDoctorOverride reads this
	out.Reset()
	require.Zero(t, run([]string{"doctor"}, &out, &errs), errs.String())
	for _, section := range []string{"libraries\n", "GPUs\n", "environment\n", "what works here\n", "WEFT_CUDA_LIB", "WEFT_NCCL_LIB", "WEFT_NVSHMEM_LIB",
		"WEFT_COMBINE_PULL", "WEFT_TUNE", "WEFT_KERNEL_STAMPS", "CUDA_VISIBLE_DEVICES"} {
		require.Contains(t, out.String(), section)
	}
}

// A missing library shows every path that was tried and the variable that names it; one that lacks another shows that alone.
func TestDoctorMissing(t *testing.T) {
	tried := []dl.Attempt{{Path: "libnone.so.7", Why: "absent"}}
	err := &dl.NotFoundError{Spec: dl.Spec{Name: "libnone", Env: envknob.Knob{Name: "WEFT_NONE_LIB"}}, Tried: tried}
	r := &report{}
	r.add("libnone", "nothing", "", "", fmt.Errorf("none: %w", err), nil)
	r.add("libother", "nothing", "", "", fmt.Errorf("other: %w", err), tried)
	require.Equal(t, "none: libnone not found; tried 1 paths; set WEFT_NONE_LIB to the file or its folder", r.Libraries[0].Error)
	require.Equal(t, tried, r.Libraries[0].Tried)
	require.Equal(t, "other: libnone not found; tried 1 paths", r.Libraries[1].Error)
	require.Empty(t, r.Libraries[1].Tried)
}

// The doctor looks where the packages look: a wrong file of WEFT_NVSHMEM_LIB is the only one that is tried.
func TestDoctorOverride(t *testing.T) {
	file := filepath.Join(t.TempDir(), "libnvshmem_host.so.3")
	require.NoError(t, os.WriteFile(file, []byte("no library"), 0o600))
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDoctorHere$", "-test.v")
	cmd.Env = append(os.Environ(), "WEFT_NVSHMEM_LIB="+file)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), file)
}

func eight() *report {
	r := &report{CUDA: "13.0", Archs: []int{80, 90, 100}, CPU: processor{Cores: 64}}
	for i := range 8 {
		r.GPUs = append(r.GPUs, cuda.Info{Ordinal: i, Name: "NVIDIA H200", Major: 9, SMs: 132, VMM: true, Cluster: true, Multicast: true})
		row := make([]bool, 8)
		for j := range row {
			row[j] = true
		}
		r.Peers = append(r.Peers, row)
	}
	for _, name := range []string{"libcuda", "libnvrtc", "libcublasLt", "libnccl", "libnvshmem_host"} {
		r.add(name, "", "/lib/"+name, "1", nil, nil)
	}
	return r
}

func verdicts(r *report) string {
	var b strings.Builder
	for _, a := range r.judge() {
		b.WriteString("[" + yesNo(a.Works) + "] " + a.What + ": " + a.Why + "\n")
	}
	return b.String()
}

func TestJudge(t *testing.T) {
	require.Equal(t, `[yes] ranks on the CPU: comm/local needs nothing; 64 cores
[yes] a GPU: 8 x NVIDIA H200, driver for CUDA 13.0
[yes] weft's kernels: NVRTC compiles for sm_90a
[yes] matrix products by cuBLASLt: libcublasLt is there
[yes] several ranks on one GPU: 132 SMs: (ranks - 1) x waiting blocks a rank, plus the largest cluster, must fit
[yes] one rank on each of several GPUs, one process: peer access between all 8 GPUs
[yes] ranks in several processes over libnccl: version 1
[yes] ranks in several processes over libnvshmem_host: version 1
[no] reduction by the NVLink switch (multicast): 8 of 8 GPUs report the ability; this version of weft never creates multicast objects
`, verdicts(eight()))
	for text, change := range map[string]func(*report){
		"[no] one rank on each of several GPUs, one process: cuda:3 cannot address cuda:5's memory": func(r *report) { r.Peers[3][5] = false },
		"[no] several ranks on one GPU: cuda:2 has no virtual memory management":                    func(r *report) { r.GPUs[2].VMM = false },
		"[no] one rank on each of several GPUs, one process: the driver shows one GPU":              func(r *report) { r.GPUs, r.Peers = r.GPUs[:1], r.Peers[:1] },
		"[no] weft's kernels: cuda:7 needs sm_121, this NVRTC compiles for [80 90 100]":             func(r *report) { r.GPUs[7].Major, r.GPUs[7].Minor = 12, 1 },
		"[no] weft's kernels: gone":                              func(r *report) { r.Libraries[1].Error = "gone" },
		"[no] several ranks on one GPU: it needs weft's kernels": func(r *report) { r.Libraries[1].Error = "gone" },
		"[no] matrix products by cuBLASLt: old":                  func(r *report) { r.Libraries[2].Error = "old" },
		"[no] a GPU: the driver shows none\n":                    func(r *report) { r.GPUs = nil },
		"[no] a GPU: cuInit failed\n":                            func(r *report) { r.Libraries[0].Error = "cuInit failed" },
		"multicast): no GPU reports the ability": func(r *report) {
			for i := range r.GPUs {
				r.GPUs[i].Multicast = false
			}
		},
		"[no] ranks in several processes over libnccl: absent": func(r *report) { r.Libraries[3].Error = "absent" },
	} {
		r := eight()
		change(r)
		require.Contains(t, verdicts(r), text)
	}
}

func TestDoctorText(t *testing.T) {
	r := eight()
	r.Peers[0][1] = false
	r.Topology = &topo.Machine{Driver: "580.1", NVML: "13", Missing: []string{"nvmlX (driver 550)"}, GPUs: []topo.GPU{{Name: "NVIDIA H200"}},
		Pairs: []topo.Pair{{A: 0, B: 1, Path: "NVSwitch", Links: 18, Read: "OK", Write: "OK", Atomics: "OK"}}}
	var out bytes.Buffer
	require.NoError(t, r.print(&out, true))
	for _, line := range []string{"cuda:7 NVIDIA H200", "compute 9.0 (sm_90a), 132 SMs", "multicast yes", "  0          -    no ", "  7          yes  yes",
		"0-1: NVSwitch, 18 links, read OK, write OK, atomics OK", "this driver lacks nvmlX (driver 550)", "topology (driver 580.1, NVML 13)"} {
		require.Contains(t, out.String(), line)
	}
}
