//go:build linux && cgo

package twolevel_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/nodes"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/ep/eptest"
	"github.com/weftgo/weft/internal/gputest"
	"github.com/weftgo/weft/internal/proctest"
	"github.com/weftgo/weft/nccl"
	"github.com/weftgo/weft/nccl/ncclworld"
)

// gpuJobs are exchanges of four ranks of two nodes.
func gpuJobs() (list []job) {
	for i, dt := range []dtype.DType{dtype.BF16, dtype.F32, dtype.F16} {
		cfg := ep.Config{NumExperts: 11, TopK: 4, Hidden: 136, DType: dt, Alignment: 4 * i, Layout: ep.Layout(i % 2), Output: ep.Output(i / 2)}
		list = append(list, newJob(cfg, uint64(i), i, 12, 0, 5, 7))
	}
	cfg := ep.Config{NumExperts: 11, TopK: 4, Hidden: 264, DType: dtype.BF16, RankInvariant: true}
	list = append(list, newJob(cfg, 3, 1, 9, 4, 0, 6))
	cfg.Wire = dtype.F8E4M3
	list = append(list, newJob(cfg, 4, 2, 3, 30, 2, 8))
	cfg = ep.Config{NumExperts: 70, TopK: 40, Hidden: 24, DType: dtype.BF16} // more choices than the kernels of one node take
	return append(list, newJob(cfg, 5, 0, 4, 1, 0, 3))
}

func createOnHost(ctx context.Context, c *comm.Comm, cfg ep.Config) (ep.Exchanger, error) {
	x, err := create(ctx, c, cfg)
	if err != nil {
		return nil, err
	}
	return eptest.OnHost(x, c), nil
}

// compare runs the jobs on a world of two nodes of two ranks. Ranks of this process have the bits of the two-level order, or of one
// node with RankInvariant, and receive what one node would.
func compare(t *testing.T, w *comm.World) {
	t.Helper()
	for _, j := range gpuJobs() {
		one, all := j.oneNode(t), make([]outcome, w.Size())
		require.NoError(t, w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
			x, err := createOnHost(ctx, c, j.cfg)
			if err != nil {
				return err
			}
			for range 2 {
				if all[c.Rank()], err = j.one(ctx, c.Rank(), x); err != nil {
					return err
				}
			}
			return x.Close(ctx)
		}), "%v", j)
		for _, c := range w.Local() {
			rank := c.Rank()
			want := one[rank].out
			if !j.cfg.RankInvariant {
				want = j.want(2, rank, nil)
			}
			require.Equal(t, want, all[rank].out, "%v rank %d", j, rank)
			same(t, one[rank], all[rank], rank)
		}
	}
}

const standInEnv = "WEFT_TEST_NCCL_BRIDGE"

// Two nodes of two ranks, each on an emulated GPU of its own, with p2p inside and the NCCL driver over its stand-in between. The
// test runs again in a process that has two GPUs and the library.
func TestNCCLStandIn(t *testing.T) {
	dev := gputest.Device(t)
	if !gputest.Emulated(dev) {
		t.Skip("the stand-in of libnccl is bridged to internal/emulator's libcuda; TestNCCLProcesses is for GPUs")
	}
	if os.Getenv(standInEnv) == "" {
		gcc, err := exec.LookPath("gcc")
		if err != nil {
			t.Skip("this test compiles a library: no gcc")
		}
		dir := t.TempDir()
		cuda := os.Getenv("WEFT_CUDA_LIB")
		out, err := exec.Command(gcc, "-shared", "-fPIC", "-O1", "-ffp-contract=off", "-o", filepath.Join(dir, "libnccl.so.2"), "-Wl,-soname,libnccl.so.2",
			"../../nccl/nccltest/testdata/libnccl.c", "testdata/bridge.c", "-L"+filepath.Dir(cuda), "-l:libcuda.so.1", "-Wl,-rpath,"+filepath.Dir(cuda), "-lpthread", "-lm").CombinedOutput()
		require.NoError(t, err, string(out))
		c := exec.Command(os.Args[0], "-test.run", "^TestNCCLStandIn$", "-test.v", "-test.timeout", "300s")
		c.Env = append(os.Environ(), standInEnv+"=1", "WEFT_EMULATOR_GPUS=2", "WEFT_NCCL_LIB="+dir)
		out, err = c.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "--- PASS: TestNCCLStandIn")
		return
	}
	gpus := []comm.Device{{Kind: comm.CUDA}, {Kind: comm.CUDA, Index: 1}}
	w := matrix(t, 2, 2, func(node int) *comm.World { return ranksOn(t, node, 2, time.Minute) }, func() *comm.World {
		w, err := ncclworld.Open(context.Background(), ncclworld.Config{Devices: gpus, Timeout: time.Minute})
		require.NoError(t, err)
		return w
	})
	compare(t, w)
	require.NoError(t, w.Close(context.Background()))
}

// Two processes of two ranks share GPU 0, with p2p inside and NCCL between.
func TestNCCLProcesses(t *testing.T) {
	dev := gputest.Device(t)
	if gputest.Emulated(dev) {
		t.Skip("the stand-in of libnccl connects the ranks of one process")
	}
	gputest.Library(t, nccl.Init())
	c, _ := proctest.Run(t, proctest.Config{Processes: 2, Timeout: 100 * time.Second, Env: []string{"NCCL_SOCKET_IFNAME=lo", "NCCL_NVLS_ENABLE=0"}})
	if c == nil {
		return
	}
	node := c.Job().Rank
	require.NoError(t, os.Setenv("NCCL_HOSTID", "weft-node-"+strconv.Itoa(node))) // before the first communicator
	n := nodes.Node{Inside: ranksOn(t, 0, 2, time.Minute), Between: make([]*comm.Comm, 2)}
	var columns sync.WaitGroup
	for i := range n.Between {
		columns.Go(func() {
			w, err := ncclworld.Open(t.Context(), ncclworld.Config{Devices: []comm.Device{{Kind: comm.CUDA}}, First: node, Size: 2, Store: c,
				Name: fmt.Sprint("column ", i), Options: nccl.Options{MinCTAs: 1, MaxCTAs: 2, ClusterSize: 1}})
			if err != nil {
				t.Error(err)
				return
			}
			n.Between[i] = w.Local()[0]
		})
	}
	columns.Wait()
	if t.Failed() {
		return
	}
	w, err := nodes.Open(t.Context(), n)
	require.NoError(t, err)
	stop := c.Guard(w)
	compare(t, w)
	stop()
	require.NoError(t, w.Close(t.Context()))
}
