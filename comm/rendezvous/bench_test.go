package rendezvous

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Round trips to a store over TCP on the loopback device.
func BenchmarkTCP(b *testing.B) {
	c := joinAll(b, 1, Config{})[0]
	value := make([]byte, 128)
	for name, op := range map[string]func() error{
		"set": func() error { return c.Set(b.Context(), "key", value) },
		"add": func() error { _, err := c.Add(b.Context(), "n", 1); return err },
		"get": func() error { _, err := c.Get(b.Context(), "key"); return err },
	} {
		b.Run(name, func(b *testing.B) {
			require.NoError(b, c.Set(b.Context(), "key", value))
			for b.Loop() {
				require.NoError(b, op())
			}
		})
	}
	for _, size := range []int{2, 8, 64} {
		b.Run(fmt.Sprintf("exchange%d", size), func(b *testing.B) {
			clients := joinAll(b, size, Config{})
			errs := make([]error, size)
			b.ResetTimer()
			var wg sync.WaitGroup
			for rank, c := range clients {
				wg.Go(func() {
					for range b.N {
						if _, errs[rank] = Exchange(b.Context(), c, "x", rank, size, value); errs[rank] != nil {
							return
						}
					}
				})
			}
			wg.Wait()
			require.NoError(b, errors.Join(errs...))
		})
	}
}
