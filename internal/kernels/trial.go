package kernels

// Trial changes how kernels are launched, for timings that compare ways (ep/eptest's TestTiming). No bit of a result depends on it. It
// is set while nothing runs.
var Trial struct {
	PartialThreads int  // of a block of Partials: a multiple of 32 up to 768; 0: by size
	NarrowByUnits  bool // dispatch narrows rows to fp8 through registers where it could through shared memory and by bulk copies
}

// partialThreads is the threads of a block of Partials. The choice is a guess until both are timed of this kernel: large calls
// had been faster with 512 (1,539 us at 32,768 tokens, against 2,152 with 768), small ones with 768, but of kernels that differed in
// more than that.
func (s *ExchangeSet) partialThreads(maxRows int) int {
	switch {
	case Trial.PartialThreads > 0:
		return Trial.PartialThreads
	case maxRows > 64*s.numSMs:
		return Threads
	}
	return expertThreads
}
