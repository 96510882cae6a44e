package ncclworld_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
)

// childEnv makes this binary one process of a world instead of a test: see processes_test.go.
const childEnv = "WEFT_TEST_NCCL_CHILD"

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		if err := child(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// gpus are the first n devices.
func gpus(n int) []comm.Device {
	list := make([]comm.Device, n)
	for i := range list {
		list[i] = comm.Device{Kind: comm.CUDA, Index: i}
	}
	return list
}
