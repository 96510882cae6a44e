// Command gemm compares the matrix kernel of internal/gemm with OpenBLAS on one thread. Start it by its script, which builds
// the other side and passes its arguments on:
//
//	bash benchmarks/gemm/run.sh --turns 9
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weftgo/weft/internal/gemm"
	"github.com/weftgo/weft/internal/simd"
)

// A result is one line of the JSON file: one shape, both kernels.
type result struct {
	M        int     `json:"m"`
	N        int     `json:"n"`
	K        int     `json:"k"`
	Weft     float64 `json:"weft_gflops"`
	OpenBLAS float64 `json:"openblas_gflops"`
	Ratio    float64 `json:"ratio"` // median over the turns of weft / OpenBLAS
	Turns    int     `json:"turns"`
	machine
}

type machine struct {
	Time     string `json:"time"`
	CPU      string `json:"cpu"`
	Go       string `json:"go"`
	SIMD     string `json:"simd"`
	Peer     string `json:"openblas"`
	Compiler string `json:"compiler"`
	Flags    string `json:"flags"`
}

// shapes: the square one is the bar; the others are slices that tensor-parallel ranks of a small model see.
func shapes() [][3]int {
	s := [][3]int{{512, 512, 512}}
	for _, nk := range [][2]int{{192, 10}, {20, 192}, {192, 80}, {160, 192}, {32, 192}} {
		for _, m := range []int{1, 8, 64, 1000} {
			s = append(s, [3]int{m, nk[0], nk[1]})
		}
	}
	return s
}

func main() {
	peer := flag.String("openblas", "", "program built from peer/openblas.c")
	turns := flag.Int("turns", 5, "how often both kernels take turns")
	out := flag.String("out", "", "file to append JSON lines to")
	flags := flag.String("flags", "", "compiler and flags of the peer, recorded in the file")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "start it as: bash benchmarks/gemm/run.sh [--turns 9], which builds OpenBLAS's side and gives --openblas, --out and --flags")
		flag.PrintDefaults()
	}
	flag.Parse()
	log.SetFlags(0)
	if *peer == "" {
		log.Fatal("gemm: no --openblas; start it as: bash benchmarks/gemm/run.sh")
	}
	if *turns < 1 {
		log.Fatalf("gemm: --turns %d: at least 1", *turns)
	}
	runtime.GOMAXPROCS(1)
	info := machine{
		Time: time.Now().UTC().Format(time.RFC3339), CPU: cpuName(), Go: runtime.Version(), SIMD: simd.Describe(),
		Peer: run(*peer, "0", "0", "0", "0"),
	}
	info.Compiler, info.Flags, _ = strings.Cut(*flags, ";")
	fmt.Printf("%s\n%s\n%s\n\n%6s %6s %6s %10s %10s %7s\n", info.CPU, info.SIMD, info.Peer, "m", "n", "k", "weft", "OpenBLAS", "ratio")
	var lines []byte
	for _, s := range shapes() {
		r := compare(*peer, s, *turns)
		r.machine = info
		fmt.Printf("%6d %6d %6d %10.1f %10.1f %7.2f\n", r.M, r.N, r.K, r.Weft, r.OpenBLAS, r.Ratio)
		line, err := json.Marshal(r)
		if err != nil {
			log.Fatal(err)
		}
		lines = append(append(lines, line...), '\n')
	}
	if *out == "" {
		return
	}
	f, err := os.OpenFile(*out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := f.Write(lines); err != nil {
		log.Fatal(err)
	}
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}
}

// compare lets both kernels take turns, so that other load on the machine hits both alike. Rates are the best of all turns,
// the ratio is the median of the turns' ratios.
func compare(peer string, s [3]int, turns int) result {
	const rounds = "20"
	r := result{M: s[0], N: s[1], K: s[2], Turns: turns}
	var ratios []float64
	for range turns {
		ours := measure(s[0], s[1], s[2], 20)
		text := run(peer, strconv.Itoa(s[0]), strconv.Itoa(s[1]), strconv.Itoa(s[2]), rounds)
		theirs, err := strconv.ParseFloat(text, 64)
		if err != nil {
			log.Fatalf("gemm: %s printed %q: %v", peer, text, err)
		}
		r.Weft, r.OpenBLAS = max(r.Weft, ours), max(r.OpenBLAS, theirs)
		ratios = append(ratios, ours/theirs)
	}
	slices.Sort(ratios)
	r.Ratio = ratios[len(ratios)/2]
	return r
}

// measure returns the best rate of Mul in GFLOP/s, in the same way as peer/openblas.c does.
func measure(m, n, k, rounds int) float64 {
	a, w, c := make([]float32, m*k), make([]float32, n*k), make([]float32, m*n)
	for i := range a {
		a[i] = float32(i % 7)
	}
	for i := range w {
		w[i] = float32(i % 5)
	}
	p := gemm.Pack(w, n, k, k)
	flop := 2 * float64(m) * float64(n) * float64(k)
	inner := int(2e7/flop) + 1
	best := 0.0
	for r := range rounds + 1 {
		t0 := time.Now()
		for range inner {
			p.Mul(c, n, a, k, m, false)
		}
		if rate := flop * float64(inner) / time.Since(t0).Seconds() / 1e9; r > 0 {
			best = max(best, rate)
		}
	}
	return best
}

func run(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		log.Fatalf("gemm: run %s: %v; start it as: bash benchmarks/gemm/run.sh", name, err)
	}
	return strings.TrimSpace(string(out))
}

// cpuName returns the model name that Linux reports.
func cpuName() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.Trim(name, "\t :\n")
		}
	}
	return runtime.GOARCH
}
