package plan

import (
	"fmt"
	"strings"
)

// A Cluster is nodes of equal GPUs. Rates are one way, per GPU.
type Cluster struct {
	Name         string  `json:"name"`
	GPUsPerNode  int     `json:"gpus_per_node"`
	Nodes        int     `json:"nodes"`
	MemoryBytes  int64   `json:"memory_bytes"` // per GPU
	LinkGBs      float64 `json:"link_gbs"`     // inside a node, line rate
	NetGBs       float64 `json:"net_gbs"`      // between nodes, line rate
	MemoryGBs    float64 `json:"memory_gbs"`   // HBM, achieved
	TFLOPs       float64 `json:"tflops"`       // dense bf16 matrix products, achieved
	FP8TFLOPs    float64 `json:"fp8_tflops"`
	Multicast    bool    `json:"multicast"`     // the switch can reduce and multicast (NVLS)
	Utilization  float64 `json:"utilization"`   // share of memory that a server may use
	RuntimeBytes int64   `json:"runtime_bytes"` // context, graphs, communicators, fragmentation
	ExpertChunk  int     `json:"expert_chunk"`  // rows for which experts keep intermediates at once; 0: all of a forward
	Source       string  `json:"source"`
}

// GPUs returns the number of GPUs.
func (c Cluster) GPUs() int { return c.GPUsPerNode * c.Nodes }

// UsableBytes returns what a server may use of one GPU's memory.
func (c Cluster) UsableBytes() int64 { return int64(float64(c.MemoryBytes) * c.Utilization) }

// Validate returns an error for a cluster without GPUs, memory or rates.
func (c Cluster) Validate() error {
	switch {
	case c.GPUsPerNode <= 0 || c.Nodes <= 0:
		return fmt.Errorf("plan: cluster %q has %d nodes of %d GPUs; want at least one GPU", c.Name, c.Nodes, c.GPUsPerNode)
	case c.GPUsPerNode > maxGPUs || c.Nodes > maxGPUs || c.GPUs() > maxGPUs:
		return fmt.Errorf("plan: cluster %q has %d nodes of %d GPUs; want at most %d GPUs", c.Name, c.Nodes, c.GPUsPerNode, maxGPUs)
	case c.ExpertChunk < 0:
		return fmt.Errorf("plan: cluster %q works on %d rows of experts at once; want 0 (all) or more", c.Name, c.ExpertChunk)
	case c.MemoryBytes <= 0 || c.Utilization <= 0 || c.Utilization > 1:
		return fmt.Errorf("plan: cluster %q has %d bytes a GPU and uses the share %g of it; want more than 0, and a share in (0, 1]",
			c.Name, c.MemoryBytes, c.Utilization)
	case c.LinkGBs <= 0 || c.MemoryGBs <= 0 || c.TFLOPs <= 0:
		return fmt.Errorf("plan: cluster %q needs positive rates: link %g GB/s, memory %g GB/s, %g TFLOP/s",
			c.Name, c.LinkGBs, c.MemoryGBs, c.TFLOPs)
	case c.Nodes > 1 && c.NetGBs <= 0:
		return fmt.Errorf("plan: cluster %q has %d nodes and no network rate", c.Name, c.Nodes)
	}
	return nil
}

const (
	runtimeBytes = 3 * perGiB
	expertChunk  = 32768
	maxGPUs      = 1 << 16
)

var clusters = map[string]Cluster{
	"h200": {GPUsPerNode: 8, MemoryBytes: 141e9, LinkGBs: 450, NetGBs: 50, MemoryGBs: 4300, TFLOPs: 788, FP8TFLOPs: 1450,
		Multicast: true, Source: "data sheet 141 GB, NVLink 4; HBM copy and GEMM rates measured (4.29 TB/s; 769-798 TFLOP/s on random data)"},
	"h100": {GPUsPerNode: 8, MemoryBytes: 80e9, LinkGBs: 450, NetGBs: 50, MemoryGBs: 3000, TFLOPs: 760, FP8TFLOPs: 1400,
		Multicast: true, Source: "data sheet 80 GB, 3.35 TB/s, NVLink 4; achieved rates: fast.cu README (763-808 TFLOP/s, 3.24 TB/s read)"},
	"mi300x": {GPUsPerNode: 8, MemoryBytes: 192e9, LinkGBs: 448, NetGBs: 50, MemoryGBs: 4000, TFLOPs: 650, FP8TFLOPs: 1200,
		Source: "data sheet 192 GB, 5.3 TB/s, 7 Infinity Fabric links of 64 GB/s; achieved rates assumed at 0.75 and 0.5 of peak"},
	"b200": {GPUsPerNode: 8, MemoryBytes: 180e9, LinkGBs: 900, NetGBs: 50, MemoryGBs: 6800, TFLOPs: 1700, FP8TFLOPs: 3300,
		Multicast: true, Source: "data sheet 180 GB, 8 TB/s, NVLink 5; achieved rates assumed at 0.85 and 0.75 of peak"},
	"gb200": {GPUsPerNode: 72, MemoryBytes: 186e9, LinkGBs: 900, NetGBs: 50, MemoryGBs: 6800, TFLOPs: 1800, FP8TFLOPs: 3500,
		Multicast: true, Source: "data sheet 186 GB, 8 TB/s, NVL72: one NVLink domain; achieved rates assumed"},
}

// ClusterNames returns the names of the GPU kinds.
func ClusterNames() []string { return names(clusters, nil) }

// ClusterPreset returns gpus GPUs of a kind (h200, h100, mi300x, ...): whole nodes, or a part of one. The form 8xh200 or
// 4x8xh200 names its own number of GPUs; then gpus may be 0.
func ClusterPreset(name string, gpus int) (Cluster, error) {
	kind, n, nodes := strings.ToLower(name), 0, 1
	if parts := strings.Split(kind, "x"); len(parts) > 1 && parts[0] != "" && parts[0][0] >= '0' && parts[0][0] <= '9' {
		var err error
		if n, nodes, kind, err = splitCluster(kind); err != nil {
			return Cluster{}, err
		}
		if n*nodes <= 0 {
			return Cluster{}, fmt.Errorf("plan: cluster %q has zero GPUs", name)
		}
		if gpus != 0 && gpus != n*nodes {
			return Cluster{}, fmt.Errorf("plan: cluster %q has %d GPUs, but %d were asked for", name, n*nodes, gpus)
		}
		gpus = n * nodes
	}
	c, ok := clusters[kind]
	if !ok {
		return Cluster{}, fmt.Errorf("plan: no cluster preset %q; have %s, alone or as in 8xh200 and 4x8xh200", name,
			strings.Join(ClusterNames(), ", "))
	}
	if gpus <= 0 {
		return Cluster{}, fmt.Errorf("plan: %d GPUs; want at least 1", gpus)
	}
	if n > 0 {
		c.GPUsPerNode, c.Nodes = n, nodes
	} else if gpus <= c.GPUsPerNode {
		c.GPUsPerNode, c.Nodes = gpus, 1
	} else if gpus%c.GPUsPerNode != 0 {
		return Cluster{}, fmt.Errorf("plan: %d GPUs are not whole nodes of %d %s; give a multiple, or NODESxGPUSx%s", gpus,
			c.GPUsPerNode, kind, kind)
	} else {
		c.Nodes = gpus / c.GPUsPerNode
	}
	c.Name, c.Utilization, c.RuntimeBytes = fmt.Sprintf("%dx%s", gpus, kind), 0.9, runtimeBytes
	c.ExpertChunk = expertChunk
	if c.Nodes > 1 {
		c.Name = fmt.Sprintf("%dx%dx%s", c.Nodes, c.GPUsPerNode, kind)
	}
	return c, nil
}

func splitCluster(s string) (n, nodes int, kind string, err error) {
	if k, _ := fmt.Sscanf(s, "%dx%dx%s", &nodes, &n, &kind); k == 3 {
		return n, nodes, kind, nil
	}
	if k, _ := fmt.Sscanf(s, "%dx%s", &n, &kind); k == 2 {
		return n, 1, kind, nil
	}
	return 0, 0, "", fmt.Errorf("plan: cluster %q; want a kind (h200), GPUSxKIND (8xh200) or NODESxGPUSxKIND (4x8xh200)", s)
}
