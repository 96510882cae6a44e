package main

import (
	"fmt"
	"slices"
	"strconv"
)

// found returns the error of a library, empty when it is in use, and its version.
func (r *report) found(name string) (version, problem string) {
	for _, l := range r.Libraries {
		if l.Name == name {
			return l.Version, l.Error
		}
	}
	return "", name + " was not looked for"
}

// judge says what weft can do here and why.
func (r *report) judge() []ability {
	yes := func(what, why string, args ...any) ability { return ability{what, true, fmt.Sprintf(why, args...)} }
	no := func(what, why string, args ...any) ability { return ability{what, false, fmt.Sprintf(why, args...)} }
	out := []ability{yes("ranks on the CPU", "comm/local needs nothing; %d cores", r.CPU.Cores)}

	const gpus = "a GPU"
	switch _, problem := r.found("libcuda"); {
	case problem != "":
		return append(out, no(gpus, "%s", problem))
	case len(r.GPUs) == 0:
		return append(out, no(gpus, "the driver shows none"))
	}
	out = append(out, yes(gpus, "%d x %s, driver for CUDA %s", len(r.GPUs), r.GPUs[0].Name, r.CUDA))
	kernels := r.judgeKernels(yes, no)
	out = append(out, kernels)
	if _, problem := r.found("libcublasLt"); problem != "" {
		out = append(out, no("matrix products by cuBLASLt", "%s", problem))
	} else {
		out = append(out, yes("matrix products by cuBLASLt", "libcublasLt is there"))
	}
	out = append(out, r.judgeMemory(kernels, yes, no)...)
	for _, name := range []string{"libnccl", "libnvshmem_host"} {
		what := "ranks in several processes over " + name
		if version, problem := r.found(name); problem != "" {
			out = append(out, no(what, "%s", problem))
		} else {
			out = append(out, yes(what, "version %s", version))
		}
	}
	return append(out, r.judgeMulticast(no))
}

type verdict func(what, why string, args ...any) ability

func (r *report) judgeKernels(yes, no verdict) ability {
	const what = "weft's kernels"
	if _, problem := r.found("libnvrtc"); problem != "" {
		return no(what, "%s", problem)
	}
	for _, g := range r.GPUs {
		if arch := 10*g.Major + g.Minor; !slices.Contains(r.Archs, arch) && len(r.Archs) > 0 {
			return no(what, "cuda:%d needs sm_%d, this NVRTC compiles for %v; install a newer one", g.Ordinal, arch, r.Archs)
		}
	}
	return yes(what, "NVRTC compiles for %s", r.GPUs[0].Arch())
}

func (r *report) judgeMemory(kernels ability, yes, no verdict) []ability {
	var out []ability
	const one, many = "several ranks on one GPU", "one rank on each of several GPUs, one process"
	if !kernels.Works {
		return append(out, no(one, "it needs weft's kernels"), no(many, "it needs weft's kernels"))
	}
	if i := slices.IndexFunc(r.GPUs, func(g gpu) bool { return !g.VMM }); i >= 0 {
		why := fmt.Sprintf("cuda:%d has no virtual memory management", i)
		return append(out, no(one, "%s", why), no(many, "%s", why))
	}
	g := r.GPUs[0]
	out = append(out, yes(one, "%d SMs: (ranks - 1) x waiting blocks a rank, plus the largest cluster, must fit", g.SMs))
	if len(r.GPUs) == 1 {
		return append(out, no(many, "the driver shows one GPU"))
	}
	for a, row := range r.Peers {
		for b, can := range row {
			if !can {
				return append(out, no(many, "cuda:%d cannot address cuda:%d's memory (peer access)", a, b))
			}
		}
	}
	return append(out, yes(many, "peer access between all %d GPUs", len(r.GPUs)))
}

func (r *report) judgeMulticast(no verdict) ability {
	const what = "reduction by the NVLink switch (multicast)"
	capable := 0
	for _, g := range r.GPUs {
		if g.Multicast {
			capable++
		}
	}
	switch {
	case capable == 0:
		return no(what, "no GPU reports the ability")
	case len(r.GPUs) == 1:
		return no(what, "the GPU reports the ability, and one GPU has no peers")
	}
	return no(what, "%d of %d GPUs report the ability; this version of weft never creates multicast objects", capable, len(r.GPUs))
}

// matrix returns the peer table as rows of text.
func (r *report) matrix() [][]string {
	head := []string{"from \\ to"}
	for b := range r.Peers {
		head = append(head, strconv.Itoa(b))
	}
	rows := [][]string{head}
	for a, row := range r.Peers {
		line := []string{strconv.Itoa(a)}
		for b, can := range row {
			switch {
			case a == b:
				line = append(line, "-")
			case can:
				line = append(line, "yes")
			default:
				line = append(line, "no")
			}
		}
		rows = append(rows, line)
	}
	return rows
}
