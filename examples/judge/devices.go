package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/examples/internal/deploy"
)

// tryDevices finds out whether all layouts can have --devices before the first of them runs.
func (x *experiment) tryDevices(ctx context.Context) error {
	tried := map[int]bool{}
	for _, l := range x.layouts {
		if l.devices == "" || tried[l.Size()] {
			continue
		}
		tried[l.Size()] = true
		if err := deploy.TryDevices(ctx, deploy.Config{Layout: l.Layout, Timeout: x.Timeout, Devices: l.devices}); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}

// addGPU notes what the collectives ran on: the first GPU, and the CUDA version that its driver speaks.
func addGPU(versions map[string]string) {
	if gpus, err := cuda.Devices(); err == nil && len(gpus) > 0 {
		versions["gpu"] = gpus[0].Name
	}
	if v, err := cuda.Version(); err == nil {
		versions["cuda"] = v
	}
}

// printDevices says, for runs with collectives on GPUs, what ran where and whether the answers are those of the CPU.
func printDevices(w io.Writer, devices string, rows []*row) {
	if devices == "" {
		return
	}
	fmt.Fprintf(w, "\nwith %s: the collectives of the model's layers and the engine's agreements run there, each rank's data copied to and\n"+
		"from it; embedding, attention, norms, routers, experts, the sums of an exchanger and sampling still run on the host\n", devices)
	for _, r := range rows {
		if r.Devices == "" {
			continue
		}
		var kinds []string
		for _, c := range r.Counters {
			kinds = append(kinds, fmt.Sprintf("%d %s", c.Calls, c.Kind))
		}
		same := "bit for bit those of the CPU"
		if r.BitsDiffer > 0 {
			same = fmt.Sprintf("NOT THOSE OF THE CPU in %d of %d answers", r.BitsDiffer, r.Requests)
		}
		fmt.Fprintf(w, "  %s: ids and log-probabilities are %s; on the GPUs ran %s\n", r.Name, same, strings.Join(kinds, ", "))
	}
}
