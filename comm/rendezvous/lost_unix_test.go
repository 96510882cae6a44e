//go:build unix

package rendezvous

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProcessIsLost(t *testing.T) {
	tests := []struct {
		name   string
		victim int
		signal syscall.Signal
		within time.Duration
		want   []string
	}{
		{"killed", 2, syscall.SIGKILL, time.Second, []string{"remote of process 2: ", "process 2 (", ") is lost: its connection ended without Leave"}},
		{"killed, and served the store", 0, syscall.SIGKILL, time.Second, []string{"remote of process 0: ", "lost the store at", "which process 0 serves"}},
		{"stopped", 3, syscall.SIGSTOP, 4 * time.Second, []string{"remote of process 3: ", "silent for 1s"}},
		{"stopped, and served the store", 0, syscall.SIGSTOP, 4 * time.Second, []string{"remote of process 0: ", "lost the store at", "silent for 1s"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			children := startJob(t)
			start := time.Now()
			require.NoError(t, children[tt.victim].cmd.Process.Signal(tt.signal))
			for rank, c := range children {
				if rank == tt.victim {
					continue
				}
				line := c.next()
				for _, want := range tt.want {
					require.Contains(t, line, want, "rank %d", rank)
				}
			}
			t.Log("all survivors know after", time.Since(start))
			require.Less(t, time.Since(start), tt.within+2*time.Second, "two seconds for a busy machine")
		})
	}
}
