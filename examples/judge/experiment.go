package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/examples/internal/layout"
	"github.com/weftgo/weft/examples/internal/tokenizer"
	"github.com/weftgo/weft/examples/internal/workload"
	"github.com/weftgo/weft/trace"
)

type runCommand struct {
	Layouts     []string      `help:"Layouts to run, the first of which the others are compared with." default:"tp8,tp8+ep8,dp2tp4+ep8,dp4tp2+ep8,dp8,dp8+ep8:agrs,dp8+ep8:alltoall"`
	Profile     string        `help:"short: prompts of 330 to 1,050 tokens, 16 in flight. article: 2,000 to 4,700 tokens, 64 in flight." enum:"short,article" default:"short"`
	Requests    int           `help:"Requests of each layout; 0 means as many as the profile says."`
	Concurrency int           `help:"Requests in flight; 0 means as many as the profile says."`
	Seed        uint64        `help:"Seed of the workload." default:"1"`
	Model       string        `help:"Model folder with a tokenizer; the bundled model if empty." type:"path"`
	MaxTokens   int           `name:"max-num-batched-tokens" help:"Tokens of one step of all ranks together." default:"4096"`
	Timeout     time.Duration `help:"The longest that a rank waits for another one." default:"60s"`
	Devices     string        `help:"GPUs, one for each rank, such as cuda:0x8: each layout runs a second time with its collectives there, and must give the same bits."`
	HTTP        bool          `name:"http" help:"Run the workload through the server too: cold, with shared prefixes, and again in full."`
	JSON        string        `name:"json" help:"Write the results to this file." placeholder:"FILE"`
	Trace       string        `help:"Write what every rank did to this file, which Perfetto (ui.perfetto.dev) opens." placeholder:"FILE"`
	Verbose     bool          `short:"v" help:"Print each layout's counters and time per rank too."`
}

// experiment is the state of one run.
type experiment struct {
	runCommand
	streams
	folder   *checkpoint.Folder
	tok      *tokenizer.Tokenizer
	layouts  []namedLayout
	requests []workload.Request
	inFlight int
	answers  []answer // of the first layout
	onCPU    []answer // of the layout that runs, when it ran on the CPU
	traces   []trace.Part
	served   []*httpRow // the runs of --http
}

// namedLayout is a layout under the name that was asked for.
type namedLayout struct {
	layout.Layout
	name    string
	devices string // that run the collectives; "" for the CPU
}

// answer is what one request got.
type answer struct {
	ids      []int32
	logprobs []float32
	top      [][]float32 // log-probabilities of the best tokens, best first
}

func (r *runCommand) Run(ctx context.Context, s streams) error {
	x, err := r.prepare(ctx, s)
	if err != nil {
		return err
	}
	defer x.folder.Close()
	p := newProgress(s.err, len(x.requests))
	var rows []*row
	for _, l := range x.layouts {
		row, err := x.layout(ctx, l, p)
		if err != nil {
			p.close()
			return fmt.Errorf("%s: %w", l.name, err)
		}
		rows = append(rows, row)
	}
	if r.HTTP {
		if x.served, err = x.http(ctx, x.layouts[0], p); err != nil {
			p.close()
			return fmt.Errorf("%s through the server: %w", x.layouts[0].name, err)
		}
	}
	p.close()
	x.print(rows)
	if err := x.write(rows); err != nil {
		return err
	}
	for _, r := range x.served {
		rows = append(rows, &r.compared)
	}
	return verdict(rows)
}

func (r *runCommand) prepare(ctx context.Context, s streams) (*experiment, error) {
	x := &experiment{runCommand: *r, streams: s}
	profile, err := workload.ByName(r.Profile)
	if err != nil {
		return nil, err
	}
	if r.Requests < 0 || r.Concurrency < 0 {
		return nil, fmt.Errorf("--requests %d, --concurrency %d: neither can be negative", r.Requests, r.Concurrency)
	}
	if r.Requests > 0 {
		profile.NumRequests = r.Requests
	}
	if r.Concurrency > 0 {
		profile.Concurrency = r.Concurrency
	}
	x.inFlight = profile.Concurrency
	if x.requests, err = workload.Requests(profile, r.Seed); err != nil {
		return nil, err
	}
	for _, name := range r.Layouts {
		name = strings.TrimSpace(name)
		l, err := layout.Parse(name)
		if err != nil {
			return nil, err
		}
		x.layouts = append(x.layouts, namedLayout{Layout: l, name: name})
		if r.Devices != "" {
			x.layouts = append(x.layouts, namedLayout{l, name + " " + r.Devices, r.Devices})
		}
	}
	if len(x.layouts) == 0 {
		return nil, errors.New("--layouts is empty")
	}
	if err := x.tryDevices(ctx); err != nil {
		return nil, err
	}
	if x.folder, err = openModel(r.Model); err != nil {
		return nil, err
	}
	if x.tok, err = x.folder.Tokenizer(); err != nil {
		return nil, errors.Join(fmt.Errorf("the judge's prompts are text, and the model has no usable tokenizer: %w", err), x.folder.Close())
	}
	return x, nil
}

func (x *experiment) print(rows []*row) {
	fmt.Fprintf(x.out, "\n%s, %s profile: %d requests a layout, %d in flight; the ranks share %d cores of this machine.\n\n",
		x.folder.Name(), x.Profile, len(x.requests), x.inFlight, runtime.GOMAXPROCS(0))
	printTable(x.out, rows)
	fmt.Fprint(x.out, legend)
	printDevices(x.out, x.Devices, rows)
	if x.Verbose {
		printDetails(x.out, rows)
	}
	printHTTP(x.out, x.served)
}

// results is the JSON file.
type results struct {
	Machine  machine           `json:"machine"`
	Flags    map[string]any    `json:"flags"`
	Layouts  []*row            `json:"layouts"`
	HTTP     []*httpRow        `json:"http,omitempty"` // through the server
	Versions map[string]string `json:"versions"`
}

type machine struct {
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	Cores int    `json:"cores"`
}

func (x *experiment) write(rows []*row) error {
	if x.JSON != "" {
		versions := map[string]string{"weft": "(devel)", "go": runtime.Version()}
		if info, ok := debug.ReadBuildInfo(); ok {
			versions["weft"] = info.Main.Version
		}
		if x.Devices != "" {
			addGPU(versions)
		}
		err := writeFile(x.JSON, func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", " ")
			return e.Encode(results{
				Machine: machine{runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0)},
				Flags: map[string]any{"profile": x.Profile, "requests": len(x.requests), "concurrency": x.inFlight, "seed": x.Seed,
					"max_num_batched_tokens": x.MaxTokens, "model": x.folder.Name(), "devices": x.Devices},
				Layouts:  rows,
				HTTP:     x.served,
				Versions: versions,
			})
		})
		if err != nil {
			return fmt.Errorf("--json: %w", err)
		}
	}
	if x.Trace != "" {
		if err := writeFile(x.Trace, func(w io.Writer) error { return trace.WriteJSON(w, x.traces...) }); err != nil {
			return fmt.Errorf("--trace: %w", err)
		}
	}
	return nil
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// verdict is the exit status.
func verdict(rows []*row) error {
	var bad []string
	for _, r := range rows {
		if len(r.Problems) > 0 {
			bad = append(bad, r.Name)
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("problems in %s; see above", strings.Join(bad, ", "))
	}
	return nil
}
