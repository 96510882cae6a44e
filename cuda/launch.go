package cuda

import "unsafe"

// Launch is the shape of a launch.
type Launch struct {
	Grid        [3]uint32 // blocks; none of them zero
	Block       [3]uint32 // threads of a block; none of them zero
	Shared      uint32    // bytes of dynamic shared memory
	Cluster     uint32    // blocks of a cluster, along x; 0 and 1 mean none
	Cooperative uint32    // 1: all blocks are resident at once or the launch fails

	// RemoteDomain 1 puts the kernel in the memory domain of kernels that talk to peers: its system-wide fences do not wait
	// for the stores of other kernels. It needs compute capability 9.0.
	RemoteDomain uint32
	// Overlap 1 lets the kernel begin before the one in front of it ends; it waits itself (griddepcontrol.wait) before it
	// reads what that one wrote. It needs compute capability 9.0.
	Overlap uint32
}

// Linear is a one-dimensional launch.
func Linear(blocks, threads int) Launch {
	return Launch{Grid: [3]uint32{uint32(blocks), 1, 1}, Block: [3]uint32{uint32(threads), 1, 1}}
}

// Launch enqueues a kernel: one cgo call, no allocation. params points to its parameters packed as C lays out a struct of
// them, which is how Go lays out a struct of the same types; they are copied before it returns. A size that does not match
// the kernel's, but for padding at the end, is comm.Invalid.
func (s *Stream) Launch(f *Function, l *Launch, params unsafe.Pointer, bytes uintptr) error {
	if f.params >= 0 {
		if d := int(bytes) - f.params; d < 0 || d >= 8 {
			return f.mismatch(bytes)
		}
		bytes = uintptr(f.params)
	}
	if c := launchKernel(s.dev.ctx, s.handle, f.handle, l, params, bytes); c != success {
		return s.dev.checkf(c, "launch %s <<<%v, %v, %d>>> cluster %d cooperative %d, %d bytes of parameters",
			f.name, l.Grid, l.Block, l.Shared, l.Cluster, l.Cooperative, bytes)
	}
	return nil
}

func (f *Function) mismatch(bytes uintptr) error {
	return f.dev.checkf(InvalidValue, "launch %s: the caller packs %d bytes of parameters, the kernel takes %d", f.name, bytes, f.params)
}

// Run is Launch with the parameters' type: P is a struct without pointers, device addresses being uintptr; struct{} where
// the kernel has none.
func Run[P any](s *Stream, f *Function, l *Launch, params *P) error {
	return s.Launch(f, l, unsafe.Pointer(params), unsafe.Sizeof(*params))
}
