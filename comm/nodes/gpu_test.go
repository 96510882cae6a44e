package nodes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/p2p"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/gputest"
	"github.com/weftgo/weft/nccl"
	"github.com/weftgo/weft/nccl/ncclworld"
)

// nodeEnv makes this binary one node of TestGPUTwoNodes: a process of four ranks on GPU 0.
const nodeEnv = "WEFT_TEST_NODE"

const gpuNodes, gpuRanks = 2, 4

// Two processes of four ranks each, p2p inside and NCCL between, have the bits of the two-level order.
func TestGPUTwoNodes(t *testing.T) {
	gputest.Device(t)
	gputest.Library(t, nccl.Init())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	outputs, errs := make([]bytes.Buffer, gpuNodes), make([]error, gpuNodes)
	var wg sync.WaitGroup
	for n := range gpuNodes {
		cmd := exec.Command(os.Args[0])
		cmd.Stdout, cmd.Stderr = &outputs[n], &outputs[n]
		cmd.Env = append(os.Environ(), nodeEnv+"="+strconv.Itoa(n), "WEFT_TEST_ADDRESS="+l.Addr().String(), "NCCL_HOSTID=weft-node-"+strconv.Itoa(n),
			"NCCL_SOCKET_IFNAME=lo", "NCCL_NVLS_ENABLE=0")
		require.NoError(t, cmd.Start())
		wg.Go(func() {
			kill := time.AfterFunc(100*time.Second, func() { _ = cmd.Process.Kill() })
			defer kill.Stop()
			errs[n] = cmd.Wait()
		})
	}
	wg.Wait()
	for n := range gpuNodes {
		t.Logf("node %d: %v\n%s", n, errs[n], strings.TrimSpace(outputs[n].String()))
	}
	for n := range gpuNodes {
		require.NoError(t, errs[n])
		require.Contains(t, outputs[n].String(), "equal the two-level order")
	}
}

// runNode is one process.
func runNode(node int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	client, err := rendezvous.Join(ctx, rendezvous.Job{Rank: node, Size: gpuNodes, LocalRank: node, LocalSize: gpuNodes,
		Address: os.Getenv("WEFT_TEST_ADDRESS"), Token: "test", Family: "weft"}, rendezvous.Config{})
	if err != nil {
		return err
	}
	begin := time.Now()
	w, err := openNode(ctx, node, client)
	if err != nil {
		return errors.Join(err, client.Leave(ctx))
	}
	fmt.Printf("open took %v\n", time.Since(begin).Round(time.Millisecond))
	stop := client.Guard(w)
	begin = time.Now()
	num := 0
	err = w.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		for i, q := range gpuQuestions() {
			got, err := q.ask(ctx, c)
			if err != nil {
				return fmt.Errorf("%+v: %w", q, err)
			}
			for k, v := range q.want(c.Rank(), gpuNodes, gpuRanks) {
				if math.Float32bits(v) != math.Float32bits(got[k]) {
					return fmt.Errorf("rank %d: %+v: element %d: got %v, want %v", c.Rank(), q, k, got[k], v)
				}
			}
			if c.Rank()%gpuRanks == 0 {
				num = i + 1
			}
		}
		return c.Barrier(comm.Stream{})
	})
	if err == nil {
		fmt.Printf("%d operations equal the two-level order in %v\n", num, time.Since(begin).Round(time.Millisecond))
	}
	stop()
	return errors.Join(err, w.Close(ctx), client.Leave(ctx))
}

// gpuQuestions are fewer: each takes tens of milliseconds between processes that share a GPU.
func gpuQuestions() []question {
	equal, ragged := []int{3, 3, 3, 3, 3, 3, 3, 3}, []int{2, 0, 5, 1, 0, 0, 3, 1}
	var list []question
	for k := comm.AllReduce; k <= comm.Reduce; k++ {
		if k == comm.AllToAllV {
			continue
		}
		q := question{kind: k, typ: dtype.BF16, counts: equal, cols: 8, root: 6}
		if k == comm.AllGatherV || k == comm.ReduceScatterV {
			q.counts = ragged
		}
		list = append(list, q)
		q.typ, q.cols, q.gap = dtype.F32, 5, 3
		list = append(list, q)
	}
	return append(list, question{kind: comm.AllReduce, typ: dtype.BF16, counts: []int{64, 0, 0, 0, 0, 0, 0, 0}, cols: 2048})
}

func openNode(ctx context.Context, node int, store rendezvous.Store) (*comm.World, error) {
	gpu := comm.Device{Kind: comm.CUDA}
	inside, err := p2p.Open(ctx, p2p.Config{Devices: []comm.Device{gpu, gpu, gpu, gpu}})
	if err != nil {
		return nil, err
	}
	columns, errs := make([]*comm.Comm, gpuRanks), make([]error, gpuRanks)
	var wg sync.WaitGroup
	for i := range gpuRanks {
		wg.Go(func() {
			w, err := ncclworld.Open(ctx, ncclworld.Config{Devices: []comm.Device{gpu}, First: node, Size: gpuNodes, Store: store,
				Name: "column-" + strconv.Itoa(i), Options: nccl.Options{MinCTAs: 1, MaxCTAs: 2, ClusterSize: 1}})
			if errs[i] = err; err == nil {
				columns[i] = w.Local()[0]
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return Open(ctx, Node{Inside: inside, Between: columns})
}
