package main

import (
	"io"

	"github.com/weftgo/weft/cuda"
)

type gpu = cuda.Info

// print writes the report for people.
func (r *report) print(w io.Writer, verbose bool) error {
	p := &printer{w: w}
	p.f("weft %s, %s, %s/%s\n", r.Program.Version, r.Program.Go, r.Program.OS, r.Program.Arch)
	p.f("CPU: %d cores, vector kernels: %s\n", r.CPU.Cores, r.CPU.Kernels)
	p.f("\nlibraries\n")
	for _, l := range r.Libraries {
		p.library(l, verbose)
	}
	p.f("\nGPUs\n")
	if len(r.GPUs) == 0 {
		p.f("  none\n")
	}
	for _, g := range r.GPUs {
		p.f("  cuda:%d %s, %s, %s, compute %d.%d (%s), %d SMs, %.1f GiB, L2 %d MiB, %d KiB shared a block\n", g.Ordinal, g.Name, g.PCIBusID, g.UUID,
			g.Major, g.Minor, g.Arch(), g.SMs, float64(g.MemoryBytes)/gib, g.L2Bytes/mib, g.SharedBytes>>10)
		p.f("         virtual memory %s, cooperative launch %s, clusters %s, multicast %s\n", yesNo(g.VMM), yesNo(g.Cooperative), yesNo(g.Cluster), yesNo(g.Multicast))
	}
	if len(r.GPUs) > 1 {
		p.f("\npeer access\n")
		p.table(r.matrix())
	}
	if t := r.Topology; t != nil {
		p.f("\ntopology (driver %s, NVML %s)\n", t.Driver, t.NVML)
		for _, g := range t.GPUs {
			p.f("  %v\n", g)
		}
		for _, pair := range t.Pairs {
			p.f("  %v\n", pair)
		}
		for _, m := range t.Missing {
			p.f("  this driver lacks %s\n", m)
		}
	}
	p.f("\nenvironment\n")
	for _, v := range r.Env {
		value := "(not set)"
		if v.Value != "" {
			value = v.Value
		}
		p.f("  %s=%s\n      %s\n", v.Name, value, v.Doc)
	}
	p.f("\nwhat works here\n")
	for _, a := range r.Abilities {
		p.f("  [%s] %s: %s\n", yesNo(a.Works), a.What, a.Why)
	}
	return p.err
}

func (p *printer) library(l library, verbose bool) {
	if l.Error == "" {
		p.f("  %s (%s): %s %s\n", l.Name, l.For, l.Path, l.Version)
	} else {
		p.f("  %s (%s): %s\n", l.Name, l.For, l.Error)
	}
	if l.Error != "" || verbose {
		for _, a := range l.Tried {
			why := a.Why
			if why == "" {
				why = "opened"
			}
			p.f("      %s: %s\n", a.Path, why)
		}
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
