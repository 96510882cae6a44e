package nccl_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/weftgo/weft/comm"
)

// childEnv makes this binary one process of a world instead of a test: see processes_test.go.
const childEnv = "WEFT_TEST_NCCL_CHILD"

// fakes holds the stand-ins that the tests have built.
var fakes string

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		if err := child(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	var err error
	if fakes, err = os.MkdirTemp("", "weft-nccl-"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(fakes)
		os.Exit(code)
	}))
}

// gpus are the first n devices.
func gpus(n int) []comm.Device {
	list := make([]comm.Device, n)
	for i := range list {
		list[i] = comm.Device{Kind: comm.CUDA, Index: i}
	}
	return list
}
