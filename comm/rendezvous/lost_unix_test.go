//go:build unix

package rendezvous

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/internal/patience"
)

func TestProcessIsLost(t *testing.T) {
	tests := []struct {
		name   string
		victim int
		signal syscall.Signal
		want   []string
	}{
		{"killed", 2, syscall.SIGKILL, []string{"remote of process 2: ", "process 2 (", ") is lost: its connection ended without Leave"}},
		{"killed, and served the store", 0, syscall.SIGKILL, []string{"remote of process 0: ", "lost the store at", "which process 0 serves"}},
		{"stopped", 3, syscall.SIGSTOP, []string{"remote of process 3: ", "silent for "}},
		{"stopped, and served the store", 0, syscall.SIGSTOP, []string{"remote of process 0: ", "lost the store at", "silent for "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			patience.Try(t, time.Second, func(t testing.TB, silence time.Duration) {
				lose(t, silence, tt.victim, tt.signal, tt.want)
			})
		})
	}
}

// lose signals one process of a job that counts silence as loss, and wants the others to say so in time.
func lose(t testing.TB, silence time.Duration, victim int, signal syscall.Signal, wants []string) {
	within := silence
	if signal == syscall.SIGSTOP {
		within = 4 * silence
	}
	children := startJob(t, silence)
	start := time.Now()
	require.NoError(t, children[victim].cmd.Process.Signal(signal))
	for rank, c := range children {
		if rank == victim {
			continue
		}
		line := c.next()
		for _, want := range wants {
			if strings.HasSuffix(want, "silent for ") {
				want += silence.String()
			}
			require.Contains(t, line, want, "rank %d", rank)
		}
	}
	t.Log("all survivors know after", time.Since(start))
	require.Less(t, time.Since(start), within+2*time.Second, "two seconds for a busy machine")
}
