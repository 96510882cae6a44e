package main

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/benchmarks/exchange"
	"github.com/weftgo/weft/benchmarks/suite"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

const about = "Times weft's collectives and counts wrong elements, with the flags and columns of nccl-tests."

// defaultFactor is the step between sizes when neither -i nor -f is given.
const defaultFactor = 4

// flags are those of nccl-tests by their letters and names, then weft's own. --op is the operation to run; the reduction,
// which nccl-tests calls --op, is -o or --redop.
type flags struct {
	NThreads     int        `name:"nthreads" short:"t" default:"0" help:"Ranks = nthreads x ngpus, unless --ranks is given."`
	NGPUs        int        `name:"ngpus" short:"g" default:"0" help:"Ranks per thread; see -t."`
	MinBytes     suite.Size `name:"minbytes" short:"b" default:"8" help:"Smallest size; 128M is 128 x 1024 x 1024 bytes."`
	MaxBytes     suite.Size `name:"maxbytes" short:"e" default:"128M" help:"Largest size."`
	StepBytes    suite.Size `name:"stepbytes" short:"i" default:"0" help:"Fixed step between sizes."`
	StepFactor   float64    `name:"stepfactor" short:"f" default:"0" help:"Factor between sizes (4 when -i is not given either)."`
	Iters        int        `name:"iters" short:"n" default:"0" help:"Timed iterations; 0 means as many as fit --budget, 3 to 2000."`
	Warmup       int        `name:"warmup_iters" short:"w" default:"5" help:"Iterations before the clock starts, at least 1."`
	Agg          int        `name:"agg_iters" short:"m" default:"1" help:"Operations of one iteration."`
	Cycles       int        `name:"run_cycles" short:"N" default:"1" help:"Times to repeat the sweep; 0 means until interrupted."`
	ParallelInit int        `name:"parallel_init" short:"p" default:"0" help:"Refused: a world opens all ranks at once."`
	Check        int        `name:"check" short:"c" default:"1" help:"Checks of each cell, each with fresh inputs; 0 checks nothing."`
	Redop        string     `name:"redop" short:"o" default:"sum" help:"Reduction: sum, prod, min, max, avg or all."`
	DataType     string     `name:"datatype" short:"d" default:"float" help:"Type: float, half, bfloat16, int8, uint8, int32, int64, f8e4m3, f8e5m2 or all."`
	Root         string     `name:"root" short:"r" default:"0" help:"Root rank, or all."`
	Blocking     int        `name:"blocking" short:"z" default:"0" help:"1: a barrier after each operation, inside its time."`
	StreamNull   int        `name:"stream_null" short:"y" default:"0" help:"Refused: weft does not use the legacy stream."`
	Timeout      int        `name:"timeout" short:"T" default:"60" help:"Seconds that a rank waits for another."`
	Graph        int        `name:"cudagraph" short:"G" default:"0" help:"GPUs: launches of a CUDA graph that holds a cell's iterations; 0 means no graph."`
	CPUTime      int        `name:"report_cputime" short:"C" default:"0" help:"GPUs: 1 times the calls on the host, without the work that they enqueue."`
	Average      int        `name:"average" short:"a" default:"1" help:"Time of: 0 rank 0, 1 mean, 2 min, 3 max over the ranks."`
	Register     int        `name:"local_register" short:"R" default:"0" help:"Refused: what the benchmark allocates is registered."`
	CTAPolicy    int        `name:"cta_policy" short:"x" default:"0" help:"Refused: see NCCL_CTA_POLICY, which the nccl driver passes on."`
	DeviceImpl   int        `name:"device_implementation" short:"D" default:"0" help:"Refused: choose a --driver."`
	CTAs         int        `name:"device_cta_count" short:"V" default:"16" help:"Refused: the driver chooses."`
	Output       string     `name:"output_file" short:"J" placeholder:"FILE" help:"Write results as JSON lines."`
	Memory       int        `name:"memory" short:"M" default:"0" help:"1: report the memory of the buffers."`
	Unalign      int        `name:"unalign" short:"u" default:"0" help:"Elements by which buffers are moved off their alignment."`
	PerIter      int        `name:"per_iter_timing" short:"I" default:"0" help:"1: time every iteration; columns min, max, p99, cv."`
	PerIterSkip  int        `name:"per_iter_skip" short:"K" default:"0" help:"Iterations that the columns of -I leave out."`
	Timestamps   int        `name:"report_timestamps" short:"S" default:"0" help:"1: a time stamp on every row."`

	Op      []string      `name:"op" default:"all" help:"What to run, separated by commas: ${ops}, or all."`
	Driver  string        `name:"driver" default:"" help:"local on the CPU; p2p or nccl on GPUs; by default what weft.Open takes for --devices."`
	Devices string        `name:"devices" default:"" help:"Where ranks live: cpu (the default), cuda:0-7, or cuda:0x8 for eight ranks on GPU 0."`
	Ranks   int           `name:"ranks" default:"0" help:"Number of ranks; 0 means one for each of --devices, or on the CPU one for each core, 2 to 8."`
	Skew    float64       `name:"skew" default:"0" help:"Ragged operations: rank 0 owns this share. MoE: its experts are chosen with this share."`
	Zeros   bool          `name:"zeros" help:"Ragged operations: odd ranks own nothing. MoE: odd ranks have no tokens."`
	Budget  time.Duration `name:"budget" default:"40ms" help:"Time for the iterations of one cell when -n is 0."`
	Seed    uint64        `name:"seed" default:"1" help:"Seed of inputs and routing."`

	Tokens       []int    `name:"tokens" default:"1,32,256" help:"MoE: tokens of each rank, a list."`
	Hidden       int      `name:"hidden" default:"1024" help:"MoE: width of a token."`
	Experts      int      `name:"experts" default:"32" help:"MoE: number of experts."`
	TopK         int      `name:"topk" default:"4" help:"MoE: experts of a token."`
	Intermediate int      `name:"intermediate" default:"256" help:"moe_layer: width of an expert."`
	Zipf         float64  `name:"zipf" default:"0" help:"MoE: expert e is chosen in proportion to 1/(e+1)^zipf; 0 is even."`
	FP8          bool     `name:"fp8" help:"MoE: dispatch rows as f8e4m3 with a scale per 128 values."`
	LowLatency   bool     `name:"low-latency" help:"MoE: alltoall's mode for at most 256 tokens a rank; agrs is left out."`
	Backend      []string `name:"backend" default:"agrs,alltoall" help:"MoE: exchange strategies: agrs, alltoall, auto, or vLLM's names."`
}

// onGPU reports whether the ranks live on GPUs.
func (f *flags) onGPU() bool { return strings.HasPrefix(f.Devices, "cuda") }

// refusals are flags of nccl-tests that mean nothing here; other values than these are refused, with the reason.
func (f *flags) refusals() []struct {
	flag      string
	got, only int
	reason    string
} {
	type refusal = struct {
		flag      string
		got, only int
		reason    string
	}
	list := []refusal{
		{"-p/--parallel_init", f.ParallelInit, 0, "weft opens all ranks of a world at once, there is nothing to do in parallel"},
		{"-y/--stream_null", f.StreamNull, 0, "weft refuses the legacy default stream, which serialises ranks that share a device"},
		{"-R/--local_register", f.Register, 0, "ranks of one process address each other's memory, there is nothing to register"},
		{"-x/--cta_policy", f.CTAPolicy, 0, "there is no such policy; NCCL_CTA_POLICY reaches the nccl driver"},
		{"-D/--device_implementation", f.DeviceImpl, 0, "implementations are drivers: use --driver"},
		{"-V/--device_cta_count", f.CTAs, 16, "the driver chooses its CTAs"},
	}
	if f.onGPU() {
		return list
	}
	return append(list,
		refusal{"-G/--cudagraph", f.Graph, 0, "the CPU driver has no CUDA graphs; the operations run as they are called"},
		refusal{"-C/--report_cputime", f.CPUTime, 0, "on the CPU driver an operation runs inside its call, so the time shown is the CPU's"})
}

// check refuses what makes no sense, with the reason, and fills in defaults.
func (f *flags) check() error {
	for _, r := range f.refusals() {
		if r.got != r.only {
			return fmt.Errorf("%s %d: %s", r.flag, r.got, r.reason)
		}
	}
	if f.Ranks == 0 {
		f.Ranks = max(f.NThreads, min(1, f.NGPUs)) * max(f.NGPUs, 1)
	}
	if f.Ranks == 0 && !f.onGPU() { // --devices says how many there are
		f.Ranks = min(max(2, runtime.NumCPU()), 8)
	}
	switch {
	case f.Ranks < 0 || f.NThreads < 0 || f.NGPUs < 0:
		return fmt.Errorf("ranks %d, nthreads %d and ngpus %d must not be negative", f.Ranks, f.NThreads, f.NGPUs)
	case f.MinBytes > f.MaxBytes:
		return fmt.Errorf("-b %d is above -e %d", f.MinBytes, f.MaxBytes)
	case f.StepFactor != 0 && !(f.StepFactor > 1):
		return fmt.Errorf("-f %v: sizes grow by a factor above 1", f.StepFactor)
	case f.StepFactor != 0 && f.StepBytes != 0:
		return fmt.Errorf("-i %d and -f %v: give one of them", f.StepBytes, f.StepFactor)
	case f.Blocking < 0 || f.Blocking > 1:
		return fmt.Errorf("-z/--blocking %d: use 0, or 1 for a barrier after each operation", f.Blocking)
	case f.Check < 0 || f.Cycles < 0 || f.Unalign < 0 || f.PerIterSkip < 0 || f.Timeout < 0:
		return fmt.Errorf("-c %d, -N %d, -u %d, -K %d and -T %d must not be negative", f.Check, f.Cycles, f.Unalign, f.PerIterSkip, f.Timeout)
	}
	for name, v := range map[string]int{"-I": f.PerIter, "-M": f.Memory, "-S": f.Timestamps, "-C": f.CPUTime} {
		if v < 0 || v > 1 {
			return fmt.Errorf("%s %d: use 0 or 1", name, v)
		}
	}
	if err := f.load().Validate(); err != nil {
		return err
	}
	if err := f.checkMoE(); err != nil {
		return err
	}
	return f.timing().Validate()
}

func (f *flags) checkMoE() error {
	for _, name := range f.Backend {
		if _, err := weft.ExchangerStrategy(name); err != nil {
			return fmt.Errorf("--backend: %w", err)
		}
	}
	for _, n := range f.Tokens {
		if n < 0 {
			return fmt.Errorf("--tokens %d must not be negative", n)
		}
	}
	switch {
	case f.Hidden < 1 || f.Experts < 1 || f.Intermediate < 1:
		return fmt.Errorf("--hidden %d, --experts %d and --intermediate %d must be at least 1", f.Hidden, f.Experts, f.Intermediate)
	case f.TopK < 1 || f.TopK > f.Experts:
		return fmt.Errorf("--topk %d is not in [1, --experts %d]", f.TopK, f.Experts)
	case !(f.Zipf >= 0 && f.Zipf <= 10):
		return fmt.Errorf("--zipf %v is not in [0, 10]", f.Zipf)
	case f.Zipf > 0 && f.Skew > 0:
		return fmt.Errorf("--zipf %v and --skew %v both say how often experts are chosen: give one of them", f.Zipf, f.Skew)
	}
	return nil
}

func (f *flags) load() suite.Load { return suite.Load{Skew: f.Skew, Zeros: f.Zeros} }

func (f *flags) timing() suite.Timing {
	return suite.Timing{Warmup: f.Warmup, Iters: f.Iters, Agg: f.Agg, Average: suite.Average(f.Average), PerIter: f.PerIter == 1,
		Blocking: f.Blocking == 1, Budget: f.Budget, Graph: f.Graph, CPUTime: f.CPUTime == 1}
}

// types returns what -d asks for; with "all", those that weft has.
func (f *flags) types() ([]dtype.DType, error) {
	if f.DataType == "all" {
		return dtype.All(), nil
	}
	switch f.DataType {
	case "uint32", "uint64", "double", "float64":
		return nil, fmt.Errorf("-d %s: weft has no such type; a model's tensors and indices need none", f.DataType)
	}
	t, err := dtype.Parse(f.DataType)
	if err != nil {
		return nil, fmt.Errorf("-d: %w", err)
	}
	return []dtype.DType{t}, nil
}

// redops returns what -o asks for.
func (f *flags) redops() ([]comm.ReduceOp, error) {
	all := []comm.ReduceOp{comm.Sum, comm.Prod, comm.Min, comm.Max, comm.Avg}
	if f.Redop == "all" {
		return all, nil
	}
	if f.Redop == "mulsum" {
		return nil, fmt.Errorf("-o mulsum: weft has no sum with a factor; scale the input")
	}
	for _, r := range all {
		if r.String() == f.Redop {
			return []comm.ReduceOp{r}, nil
		}
	}
	return nil, fmt.Errorf("-o %s: use sum, prod, min, max, avg or all", f.Redop)
}

// roots returns what -r asks for.
func (f *flags) roots() ([]int, error) {
	if f.Root == "all" {
		roots := make([]int, f.Ranks)
		for i := range roots {
			roots[i] = i
		}
		return roots, nil
	}
	r, err := strconv.Atoi(f.Root)
	if err != nil || r < 0 || r >= f.Ranks {
		return nil, fmt.Errorf("-r %s: use a rank in [0, %d) or all", f.Root, f.Ranks)
	}
	return []int{r}, nil
}

// ops returns what --op asks for, in the order of the table.
func (f *flags) ops() (collectives []*suite.Operation, moe []string, err error) {
	wanted := map[string]bool{}
	all := append(suite.Names(), exchange.Names()...)
	for _, name := range f.Op {
		known := name == "all"
		for _, n := range all {
			known = known || n == name
			wanted[n] = wanted[n] || name == n || name == "all"
		}
		switch {
		case strings.Contains(" sum prod min max avg ", " "+name+" "):
			return nil, nil, fmt.Errorf("--op %s: --op is the operation to run; the reduction is -o or --redop", name)
		case !known:
			return nil, nil, fmt.Errorf("--op %s: there are %s and all", name, strings.Join(all, ", "))
		}
	}
	for i := range suite.Operations {
		if op := &suite.Operations[i]; wanted[op.Name] {
			collectives = append(collectives, op)
		}
	}
	for _, name := range exchange.Names() {
		if wanted[name] {
			moe = append(moe, name)
		}
	}
	return collectives, moe, nil
}

// sizes lists what -b, -e, -i and -f ask for, in order.
func (f *flags) sizes() []int64 {
	var out []int64
	factor := f.StepFactor
	if factor == 0 && f.StepBytes == 0 {
		factor = defaultFactor
	}
	for n := int64(f.MinBytes); n <= int64(f.MaxBytes); {
		out = append(out, n)
		next := n + int64(f.StepBytes)
		if factor > 1 {
			next = max(n+1, int64(float64(n)*factor))
		}
		if next <= n {
			break
		}
		n = next
	}
	return out
}
