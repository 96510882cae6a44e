package main

import (
	"bufio"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"

	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/examples/internal/deploy"
	"github.com/weftgo/weft/examples/internal/model"
)

// fit refuses a configuration that needs more than available bytes (0: no limit), before anything is allocated, and says
// what would fit. It sets the size of the cache.
func fit(c *deploy.Config, m *checkpoint.Config, available int64) error {
	if err := parts(c, c.MaxBatchedTokens).Check(m, c.Layout.Size()); err != nil {
		return fmt.Errorf("layout %v: %w", c.Layout, err)
	}
	need := demand(c, m, c.MaxBatchedTokens)
	if available > 0 && need > available {
		// The largest budget that fits; sort.Search finds the first that does not.
		n := sort.Search(c.MaxBatchedTokens, func(i int) bool { return demand(c, m, i+1) > available })
		if n >= c.Layout.DP {
			return fmt.Errorf("--max-num-batched-tokens %d in layout %v needs %s of memory, of which %s are available; the largest that fits is %d",
				c.MaxBatchedTokens, c.Layout, gib(need), gib(available), n)
		}
		return fmt.Errorf("layout %v needs at least %s of memory, of which %s are available; %s",
			c.Layout, gib(demand(c, m, c.Layout.DP)), gib(available), smaller(c, m, available))
	}
	c.CacheTokens = cacheTokens(c, c.MaxBatchedTokens)
	return nil
}

// smaller finds the most replicas that fit with the same tensor parallelism.
func smaller(c *deploy.Config, m *checkpoint.Config, available int64) string {
	for dp := c.Layout.DP - 1; dp >= 1; dp-- {
		try := *c
		try.Layout.DP = dp
		if parts(&try, dp).Check(m, try.Layout.Size()) == nil && demand(&try, m, dp) <= available {
			return fmt.Sprintf("the largest that fits has --data-parallel-size %d", dp)
		}
	}
	return "nothing fits with --tensor-parallel-size " + strconv.Itoa(c.Layout.TP) + "; lower --max-model-len or --kv-cache-tokens"
}

func cacheTokens(c *deploy.Config, budget int) int {
	if c.CacheTokens > 0 {
		return c.CacheTokens
	}
	return max(c.MaxModelLen, 4*budget)
}

// parts is what every rank's model is made of with a budget of tokens.
func parts(c *deploy.Config, budget int) model.Config {
	return model.Config{Parallel: c.Layout.Parallel, Backend: c.Layout.Backend, BlockSize: c.BlockSize,
		NumBlocks: (cacheTokens(c, budget) + c.BlockSize - 1) / c.BlockSize, MaxBatchedTokens: max(1, budget/c.Layout.DP)}
}

// demand is the memory of all ranks together: weights, caches, scratch and rows of logits.
func demand(c *deploy.Config, m *checkpoint.Config, budget int) int64 {
	p := parts(c, budget)
	const logitBytes = 256 << 20 // what the engine bounds a step's rows by
	rows := min(p.MaxBatchedTokens, max(c.MaxSeqs, logitBytes/(4*m.VocabSize)))
	total := int64(0)
	for rank := range c.Layout.Size() {
		total += p.Memory(m, rank).Total() + 4*int64(rows)*int64(m.VocabSize)
	}
	return total
}

func gib(n int64) string { return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30)) }

// availableMemory returns the bytes that this process may still take by the system's account and its control group's; 0 if
// neither tells.
func availableMemory() int64 {
	free := int64(0)
	if f, err := os.Open("/proc/meminfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if rest, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
				kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
				free = kib << 10
			}
		}
	}
	if most, ok := readNumber("/sys/fs/cgroup/memory.max"); ok {
		used, _ := readNumber("/sys/fs/cgroup/memory.current")
		if left := max(most-used, 1); free == 0 || left < free {
			free = left
		}
	}
	return free
}

func readNumber(path string) (int64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil // "max" is no number
}
