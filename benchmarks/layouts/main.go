// Layouts times the judge's requests on eight ranks in every layout against one rank: each layout runs between two runs of
// tp1, in several rounds, and the ratio is that of its wall time to the mean of its neighbours'. The table has the median
// over rounds. No run has a prefix cache.
//
//	go run ./benchmarks/layouts --rounds 3 --json benchmarks/results/layouts.jsonl
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weftgo/weft/benchmarks/record"
)

const baseline = "tp1"

func main() {
	layouts := flag.String("layouts", "tp8,tp8+ep8,dp2tp4+ep8,dp4tp2+ep8,dp8,dp8+ep8:agrs,dp8+ep8:alltoall", "layouts to time")
	requests := flag.Int("requests", 32, "requests of each run")
	rounds := flag.Int("rounds", 3, "rounds")
	limit := flag.Float64("limit", 1.6, "exit with an error if a median ratio is larger; 0 means never")
	file := flag.String("json", "", "append one line with the result to this file")
	flag.Parse()
	if err := run(strings.Split(*layouts, ","), *requests, *rounds, *limit, *file); err != nil {
		fmt.Fprintln(os.Stderr, "layouts:", err)
		os.Exit(1)
	}
}

// result is one line of the JSON file.
type result struct {
	Time     string               `json:"time"`
	Go       string               `json:"go"`
	Machine  record.Machine       `json:"machine"`
	Requests int                  `json:"requests"`
	Median   map[string]float64   `json:"median_ratio_to_tp1"`
	Ratios   map[string][]float64 `json:"ratios_to_tp1"`
	TP1      []float64            `json:"tp1_wall_s"`
}

func run(layouts []string, requests, rounds int, limit float64, file string) error {
	dir, err := os.MkdirTemp("", "weft-layouts")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	judge := filepath.Join(dir, "judge")
	build := exec.Command("go", "build", "-o", judge, "github.com/weftgo/weft/examples/judge")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building the judge: %w", err)
	}
	r := result{Time: time.Now().UTC().Format(time.RFC3339), Go: runtime.Version(), Requests: requests,
		Machine: record.ThisMachine(), Median: map[string]float64{}, Ratios: map[string][]float64{}}
	order := []string{baseline}
	for _, l := range layouts {
		order = append(order, l, baseline)
	}
	for i := range rounds {
		walls, err := round(judge, filepath.Join(dir, "out.json"), order, requests)
		if err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		for j, l := range layouts {
			r.Ratios[l] = append(r.Ratios[l], walls[2*j+1]/((walls[2*j]+walls[2*j+2])/2))
		}
		for j := 0; j < len(walls); j += 2 {
			r.TP1 = append(r.TP1, walls[j])
		}
	}
	var over []string
	fmt.Printf("%-18s %8s   %s\n", "layout", "x tp1", "rounds")
	for _, l := range layouts {
		sorted := slices.Sorted(slices.Values(r.Ratios[l]))
		r.Median[l] = sorted[len(sorted)/2]
		fmt.Printf("%-18s %8.2f   %.2f\n", l, r.Median[l], r.Ratios[l])
		if limit > 0 && r.Median[l] > limit {
			over = append(over, l)
		}
	}
	if file != "" {
		if err := appendLine(file, r); err != nil {
			return err
		}
	}
	if over != nil {
		return fmt.Errorf("over %v times one rank: %s", limit, strings.Join(over, ", "))
	}
	return nil
}

// round runs the judge once over all layouts in order and returns the wall time of each, in seconds.
func round(judge, out string, order []string, requests int) ([]float64, error) {
	cmd := exec.Command(judge, "--layouts", strings.Join(order, ","), "--requests", strconv.Itoa(requests), "--json", out)
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	var got struct {
		Layouts []struct {
			Wall float64 `json:"wall_s"`
		}
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		return nil, err
	}
	if len(got.Layouts) != len(order) {
		return nil, fmt.Errorf("%d rows for %d layouts", len(got.Layouts), len(order))
	}
	walls := make([]float64, len(order))
	for i, l := range got.Layouts {
		walls[i] = l.Wall
	}
	return walls, nil
}

func appendLine(file string, r result) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	err = json.NewEncoder(f).Encode(r)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
