package topo

import (
	"fmt"
	"strings"

	"github.com/weftgo/weft/internal/dl"
)

// Machine is what NVML knows about this machine.
type Machine struct {
	Driver  string       `json:"driver"`  // the kernel driver: 580.159.04
	NVML    string       `json:"nvml"`    // the library's version
	CUDA    string       `json:"cuda"`    // the newest CUDA version that the driver speaks: 13.0
	Path    string       `json:"path"`    // of libnvidia-ml
	Tried   []dl.Attempt `json:"tried"`   // where it was looked for
	Missing []string     `json:"missing"` // functions that this driver lacks, with the driver that has them
	GPUs    []GPU        `json:"gpus"`
	Pairs   []Pair       `json:"pairs"` // A < B
}

// GPU is one GPU.
type GPU struct {
	Index       int     `json:"index"` // NVML's, by PCI address; CUDA may number otherwise
	Name        string  `json:"name"`
	UUID        string  `json:"uuid"`
	PCIBusID    string  `json:"pci_bus_id"`
	MemoryBytes uint64  `json:"memory"`
	Compute     string  `json:"compute"`   // compute capability: 9.0
	NUMANode    int     `json:"numa_node"` // -1: unknown
	NVLink      NVLinks `json:"nvlink"`
	Fabric      string  `json:"fabric"` // state of the NVLink fabric; empty: no such thing
}

// NVLinks are the NVLink connections of a GPU.
type NVLinks struct {
	Active         int     `json:"active"`    // links that are up
	Version        int     `json:"version"`   // NVML's generation number
	ToSwitch       int     `json:"to_switch"` // active links that end in an NVSwitch
	ToGPU          int     `json:"to_gpu"`    // active links that end in another GPU
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// Pair is how two GPUs reach each other.
type Pair struct {
	A, B    int
	Links   int    `json:"links"` // NVLinks between the two, or the smaller number to a switch
	Path    string `json:"path"`  // NVSwitch, NVLink, or where the PCIe paths meet: PIX, PXB, PHB, NODE, SYS
	Read    string `json:"read"`  // peer access as NVML reports it: OK or the reason
	Write   string `json:"write"`
	Atomics string `json:"atomics"`
}

// String returns one line: "0: NVIDIA H200, 00000000:19:00.0, 140.4 GiB, NUMA node 0, 18 NVLinks (18 to switches), 450 GB/s".
func (g GPU) String() string {
	parts := []string{g.Name, g.PCIBusID, fmt.Sprintf("%.1f GiB", float64(g.MemoryBytes)/(1<<30))}
	if g.NUMANode >= 0 {
		parts = append(parts, fmt.Sprintf("NUMA node %d", g.NUMANode))
	}
	switch n := g.NVLink; {
	case n.Active == 0:
		parts = append(parts, "no NVLink")
	default:
		parts = append(parts, fmt.Sprintf("%d NVLinks (%d to switches, %d to GPUs)", n.Active, n.ToSwitch, n.ToGPU))
		if n.BytesPerSecond > 0 {
			parts = append(parts, fmt.Sprintf("%.0f GB/s", n.BytesPerSecond/1e9))
		}
	}
	if g.Fabric != "" {
		parts = append(parts, "fabric "+g.Fabric)
	}
	return fmt.Sprintf("%d: %s", g.Index, strings.Join(parts, ", "))
}

// String returns one line: "0-1: NVSwitch, 18 links, read OK, write OK, atomics OK".
func (p Pair) String() string {
	s := fmt.Sprintf("%d-%d: %s", p.A, p.B, p.Path)
	if p.Links > 0 {
		s += fmt.Sprintf(", %d links", p.Links)
	}
	return s + fmt.Sprintf(", read %s, write %s, atomics %s", p.Read, p.Write, p.Atomics)
}
