package published

import (
	"embed"
	"encoding/json"
	"fmt"
	"path"

	"github.com/weftgo/weft/plan"
)

//go:embed tables/*.json
var files embed.FS

// A Table is one published table.
type Table struct {
	Name   string `json:"name"`
	Title  string `json:"title"`
	Source string `json:"source"`
	Kind   string `json:"kind"`   // exchange or collective
	System string `json:"system"` // whose constants predict it (exchange); rows of collectives name their own
	Counts string `json:"counts"` // what the source's GB/s count; empty when it gives times

	Experts        int     `json:"experts"`
	ExpertsPerRank int     `json:"experts_per_rank"`
	TopK           int     `json:"top_k"`
	Hidden         int     `json:"hidden"`
	PerNode        int     `json:"per_node"`
	Groups         string  `json:"groups"` // nodes4: a token goes to at most four nodes
	LinkGBs        float64 `json:"link_gbs"`
	NetGBs         float64 `json:"net_gbs"`
	Rows           []Row   `json:"rows"`
}

// A Row is one published number: microseconds, or a rate.
type Row struct {
	System string  `json:"system,omitempty"`
	Op     string  `json:"op"`
	Wire   string  `json:"wire,omitempty"` // fp8 or bf16
	Ranks  int     `json:"ranks"`
	Tokens int     `json:"tokens,omitempty"` // per rank
	SMs    int     `json:"sms,omitempty"`
	Bytes  float64 `json:"bytes,omitempty"`
	Us     float64 `json:"us,omitempty"`
	GBs    float64 `json:"gbs,omitempty"`
	BusBW  float64 `json:"busbw,omitempty"`
	Use    string  `json:"use"` // fit or test
}

// Tables returns all tables, sorted by name. It panics if a file does not parse; a test reads them all.
func Tables() []Table {
	entries, err := files.ReadDir("tables")
	if err != nil {
		panic(err)
	}
	var ts []Table
	for _, e := range entries {
		data, err := files.ReadFile(path.Join("tables", e.Name()))
		if err != nil {
			panic(err)
		}
		var t Table
		if err := json.Unmarshal(data, &t); err != nil {
			panic(fmt.Sprintf("published: %s: %v", e.Name(), err))
		}
		ts = append(ts, t)
	}
	return ts
}

// SystemOf returns the system whose constants predict the row.
func (t Table) SystemOf(r Row) string {
	if r.System != "" {
		return r.System
	}
	return t.System
}

// rowBytes returns the bytes of one token's row: fp8 with an f32 scale per 128 values, or bf16.
func (t Table) rowBytes(r Row) float64 {
	if r.Wire == "fp8" {
		return float64(t.Hidden + t.Hidden/128*4)
	}
	return float64(2 * t.Hidden)
}

// Load returns what an exchange row measured.
func (t Table) Load(r Row) plan.Load {
	rt := plan.Routing{Experts: t.Experts, TopK: t.TopK}
	if t.ExpertsPerRank > 0 {
		rt.Experts = t.ExpertsPerRank * r.Ranks
	}
	if nodes := r.Ranks / t.PerNode; t.Groups == "nodes4" && nodes > 4 {
		rt.Groups, rt.TopGroups = nodes, 4
	}
	return plan.Load{Routing: rt, Tokens: float64(r.Tokens), RowBytes: t.rowBytes(r), Ranks: r.Ranks, PerNode: t.PerNode, SMs: r.SMs,
		Combine: r.Op == "combine"}
}

// Micros returns the published time of a row.
func (t Table) Micros(r Row, scheme plan.Scheme) float64 {
	if r.Us > 0 {
		return r.Us
	}
	if t.Kind == "collective" {
		n := float64(r.Ranks)
		factor := (n - 1) / n
		if r.Op == "all_reduce" {
			factor *= 2
		}
		return factor * r.Bytes / r.BusBW / 1e3
	}
	l := t.Load(r)
	return l.Routing.Copies(scheme, l.Ranks, l.PerNode).Logical * l.Tokens * l.RowBytes / r.GBs / 1e3
}
