package deploy

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/examples/internal/bundled"
	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/examples/internal/engine"
	"github.com/weftgo/weft/examples/internal/layout"
	"github.com/weftgo/weft/examples/internal/prompts"
	"github.com/weftgo/weft/examples/internal/sampling"
	"github.com/weftgo/weft/internal/race"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// postings returns the prompts of families of candidates, four that begin alike after four, of about as many words.
func postings(t testing.TB, f *checkpoint.Folder, families, words int) (ids [][]int32) {
	tok, err := f.Tokenizer()
	require.NoError(t, err)
	for seed := range families {
		family := prompts.Group(uint64(seed)+77, words)
		for i := range prompts.NumCandidates {
			ids = append(ids, tok.Encode(family.Prompt(i)))
		}
	}
	return ids
}

// open puts the bundled model into service until the test ends.
func open(t testing.TB, f *checkpoint.Folder, name string, cfg Config) *Deployment {
	l, err := layout.Parse(name)
	require.NoError(t, err)
	cfg.Layout, cfg.CacheTokens = l, 16384
	d, err := Open(context.Background(), f, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, d.Close(ctx))
	})
	return d
}

// answer sends all requests at once and returns what came, with the prompt tokens that the cache saved.
func answer(t testing.TB, d *Deployment, reqs []engine.Request) (outs []engine.Output, cached int) {
	outs = make([]engine.Output, len(reqs))
	var wg sync.WaitGroup
	for i, req := range reqs {
		h, err := d.Engine.Submit(t.Context(), req)
		require.NoError(t, err)
		wg.Go(func() {
			var err error
			outs[i], err = h.Wait(t.Context())
			require.NoError(t, err)
		})
	}
	wg.Wait()
	for _, o := range outs {
		cached += o.Usage.CachedTokens
	}
	return outs, cached
}

// sameBits holds everything that a request gives against that of another run.
func sameBits(t *testing.T, want, got *engine.Output, text string) {
	require.Equal(t, want.IDs, got.IDs, text)
	for i, lp := range want.Logprobs {
		require.Equal(t, math.Float32bits(lp), math.Float32bits(got.Logprobs[i]), "%s: output token %d: %v and %v", text, i, lp, got.Logprobs[i])
	}
	require.Len(t, got.Echo, len(want.Echo), text)
	for i, lp := range want.Echo {
		require.Equal(t, math.Float32bits(lp), math.Float32bits(got.Echo[i]), "%s: prompt token %d: %v and %v", text, i, lp, got.Echo[i])
	}
	require.Equal(t, want.Top, got.Top, text)
	require.Equal(t, want.Reason, got.Reason, text)
}

// The bundled model says the same to the bit, whether prompts come whole or in chunks, and whether their beginnings are computed
// or found.
func TestPrefixCacheKeepsTheBits(t *testing.T) {
	f, err := checkpoint.OpenFS(bundled.FS(), bundled.Name)
	require.NoError(t, err)
	defer f.Close()
	families, words, layouts := 2, 200, []string{"tp1", "dp2+ep2"}
	if testing.Short() || race.Enabled {
		families, words = 1, 60
	}
	var reqs []engine.Request
	for i, ids := range postings(t, f, families, words) {
		req := engine.Request{IDs: ids, MaxTokens: 4, Logprobs: 5 * (i % 2), Echo: i%4 == 1}
		if i%4 == 2 {
			seed := int64(i)
			req.Sampling = sampling.Params{Temperature: 1, Seed: &seed}
		}
		reqs = append(reqs, req)
	}
	for _, name := range layouts {
		t.Run(name, func(t *testing.T) {
			var want []engine.Output
			for _, c := range []Config{
				{MaxBatchedTokens: 4096},
				{MaxBatchedTokens: 200},
				{MaxBatchedTokens: 4096, PrefixCaching: true, WaitForPrefix: true, Policy: engine.PrefixAware(2000)},
				{MaxBatchedTokens: 200, PrefixCaching: true},
			} {
				c.BlockSize = 16
				d := open(t, f, name, c)
				for pass := range 2 {
					if pass == 1 && !c.PrefixCaching {
						continue
					}
					got, cached := answer(t, d, reqs)
					if want == nil {
						want = got
					}
					text := fmt.Sprintf("%s: %d tokens a step, cache %v, pass %d", name, c.MaxBatchedTokens, c.PrefixCaching, pass)
					for i := range got {
						sameBits(t, &want[i], &got[i], fmt.Sprintf("%s: request %d", text, i))
						require.Zero(t, got[i].Usage.CachedTokens*len(got[i].Echo), "scored prompts run every token")
					}
					require.Equal(t, c.PrefixCaching, cached > 0, text)
				}
				require.NoError(t, d.Stop(t.Context()))
				require.Equal(t, d.Formula(), d.Measured(), "the collectives of the tokens that ran")
			}
		})
	}
}
