package cublaslt

import (
	"errors"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
)

// DefaultWorkspace is enough for every algorithm on GPUs from compute capability 9.0, in bytes.
const DefaultWorkspace = 32 << 20

// alignment is what the heuristic may assume about addresses and rows, in bytes: rows of an expert begin anywhere.
const alignment = 16

// Handle runs matrix products on one device, from one goroutine at a time and on one stream at a time: they share its
// workspace.
type Handle struct {
	dev       *cuda.Device
	handle    uintptr
	workspace uintptr
	bytes     int
	plans     map[Problem]*plans
	warming   bool // in Warm, whose caller knows that no rank waits
}

// New makes a handle with a workspace of so many bytes of device memory, 0 for DefaultWorkspace. The caller calls Close
// before it closes dev.
func New(dev *cuda.Device, workspace int) (h *Handle, err error) {
	if err := initContext(); err != nil {
		return nil, err
	}
	if workspace == 0 {
		workspace = DefaultWorkspace
	}
	h = &Handle{dev: dev, bytes: workspace, plans: map[Problem]*plans{}}
	if h.workspace, err = dev.Alloc(workspace); err != nil {
		return nil, fmt.Errorf("cublaslt: workspace: %w", err)
	}
	if err := check(createHandle(dev.Context(), &h.handle), "create a handle on device %d", dev.Ordinal()); err != nil {
		return nil, errors.Join(err, dev.Free(h.workspace))
	}
	return h, nil
}

// plans are the algorithms of one shape and bucket: one for all M of the bucket, and one for each M that it refuses.
type plans struct {
	top   *plan
	exact map[int]*plan
}

// find returns the algorithm for p, asking the library the first time.
func (h *Handle) find(p Problem) (*plans, *plan, error) {
	key := p.dense()
	key.M = Bucket(p.M)
	set := h.plans[key]
	if set == nil {
		if !h.warming && h.dev.Held() {
			return nil, nil, &Error{Text: fmt.Sprintf("[%d, %d] x [%d, %d] of %v was never run, and its first run would wait for kernels that may wait for this rank; call Warm before ranks wait for each other",
				p.M, p.K, p.K, p.N, p.Type), Code: comm.Invalid}
		}
		top, err := h.newPlan(key)
		if err != nil {
			return nil, nil, err
		}
		set = &plans{top: top}
		h.plans[key] = set
	}
	if set.exact != nil {
		if pl := set.exact[p.M]; pl != nil {
			return set, pl, nil
		}
	}
	return set, set.top, nil
}

// exactly gives one M an algorithm of its own.
func (h *Handle) exactly(set *plans, p Problem) (*plan, error) {
	pl, err := h.newPlan(p.dense())
	if err != nil {
		return nil, err
	}
	if set.exact == nil {
		set.exact = map[int]*plan{}
	}
	set.exact[p.M] = pl
	return pl, nil
}

func (h *Handle) newPlan(p Problem) (*plan, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	in, _ := typeCode(p.Type)
	out, _ := typeCode(p.Out)
	s := shape{
		m: int64(p.M), n: int64(p.N), k: int64(p.K), lda: int64(p.LDA), ldb: int64(p.LDB), ldd: int64(p.LDD),
		strideA: int64(p.StrideA), strideB: int64(p.StrideB), strideD: int64(p.StrideD),
		workspace: uint64(h.bytes), in: in, out: out, batch: int32(p.Batch), alignment: alignment,
	}
	if p.TransB {
		s.transB = 1
	}
	pl, status := createPlan(h.dev.Context(), h.handle, &s)
	if err := check(status, "%v x %v into %v, [%d, %d] x [%d, %d], strides %d, %d, %d, batch %d: no algorithm", p.Type, p.Type, p.Out, p.M, p.K,
		p.K, p.N, p.LDA, p.LDB, p.LDD, p.Batch); err != nil {
		return nil, err
	}
	return pl, nil
}

// Matmul enqueues D = alpha · A · B + beta · D on s: one cgo call and no allocation once p's bucket is planned. Addresses
// and row strides are multiples of 16 bytes. M = 0 is nothing to do. On a device whose kernels may wait for each other
// (cuda.Device.Hold: a world of several ranks is open) a product that was not warmed is Invalid.
func (h *Handle) Matmul(s *cuda.Stream, p Problem, d, a, b uintptr, alpha, beta float32) error {
	if p.M == 0 {
		return nil
	}
	if (d|a|b)%alignment != 0 {
		return &Error{Text: fmt.Sprintf("addresses %#x, %#x, %#x are not multiples of %d", d, a, b, alignment), Code: comm.Invalid}
	}
	set, pl, err := h.find(p)
	if err != nil {
		return err
	}
	status := h.run(s, pl, p.M, d, a, b, alpha, beta)
	if status == notSupported && pl == set.top {
		if pl, err = h.exactly(set, p); err != nil {
			return err
		}
		status = h.run(s, pl, p.M, d, a, b, alpha, beta)
	}
	if status != 0 {
		return check(status, "[%d, %d] x [%d, %d]", p.M, p.K, p.K, p.N)
	}
	return nil
}

// notSupported is what the library answers, before it enqueues anything, when an algorithm does not do a shape.
const notSupported = 15

func (h *Handle) run(s *cuda.Stream, pl *plan, m int, d, a, b uintptr, alpha, beta float32) int32 {
	return matmul(h.dev.Context(), h.handle, pl, int64(m), d, a, b, alpha, beta, h.workspace, uint64(h.bytes), s.Handle())
}

// Warm plans the buckets of p for M from 1 to p.M, checks which M each bucket's algorithm refuses, and runs every algorithm
// once on scratch memory, so that no later product plans anything or loads code. It returns when they are done.
func (h *Handle) Warm(s *cuda.Stream, p Problem) (err error) {
	h.warming = true
	defer func() { h.warming = false }()
	q := p.dense()
	size := int(p.Type.Size())
	span := func(rows, ld, stride int) int { return ((q.Batch-1)*stride + rows*ld) * size }
	rowsB := q.K
	if q.TransB {
		rowsB = q.N
	}
	top := Bucket(p.M)
	scratch := make([]uintptr, 3)
	defer func() {
		for _, addr := range scratch {
			err = errors.Join(err, h.dev.Free(addr))
		}
	}()
	for i, bytes := range []int{span(top, q.LDD, q.StrideD) / size * int(p.Out.Size()), span(top, q.LDA, q.StrideA), span(rowsB, q.LDB, q.StrideB)} {
		if scratch[i], err = h.dev.Alloc(bytes); err != nil {
			return err
		}
		if err := s.Fill(scratch[i], 0, bytes); err != nil {
			return err
		}
	}
	for low := 1; low <= top; low = Bucket(low) + 1 {
		if err := h.warmBucket(s, q, low, Bucket(low), scratch); err != nil {
			return err
		}
	}
	return s.Synchronize()
}

// warmBucket warms the bucket of M from low to high.
func (h *Handle) warmBucket(s *cuda.Stream, q Problem, low, high int, scratch []uintptr) error {
	q.M = high
	if err := h.Matmul(s, q, scratch[0], scratch[1], scratch[2], 1, 0); err != nil {
		return err
	}
	set, _, err := h.find(q)
	if err != nil {
		return err
	}
	for q.M = low; ; q.M++ {
		if q.M = firstRefused(h.dev.Context(), h.handle, set.top, uint64(h.bytes), q.M, high); q.M > high {
			return nil
		}
		if _, err := h.exactly(set, q); err != nil {
			return err
		}
		if err := h.Matmul(s, q, scratch[0], scratch[1], scratch[2], 1, 0); err != nil {
			return err
		}
	}
}

// Close frees the workspace and the plans. None of its products may be running.
func (h *Handle) Close() error {
	for _, set := range h.plans {
		destroyPlan(set.top)
		for _, pl := range set.exact {
			destroyPlan(pl)
		}
	}
	h.plans = nil
	err := errors.Join(check(destroyHandle(h.dev.Context(), h.handle), "destroy a handle"), h.dev.Free(h.workspace))
	h.handle, h.workspace = 0, 0
	return err
}
