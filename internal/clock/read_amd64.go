package clock

import (
	"time"
)

// invariant says that the counter runs at one rate on all cores, whatever their frequency.
var invariant = hasInvariantCounter()

// The leaf of CPUID that tells, and its bit in EDX.
const (
	powerLeaf    = 0x80000007
	invariantBit = 1 << 8
)

func hasInvariantCounter() bool {
	largest, _ := cpuid(0x80000000)
	if largest < powerLeaf {
		return false
	}
	_, edx := cpuid(powerLeaf)
	return edx&invariantBit != 0
}

// Read returns the moment it is called, or one up to a few nanoseconds earlier: the processor may read ahead.
func Read() Stamp {
	if invariant {
		return Stamp(counter())
	}
	return Stamp(time.Since(started))
}

var started = time.Now()

// counter reads the time stamp counter.
func counter() uint64

// cpuid returns EAX and EDX of a leaf.
func cpuid(leaf uint32) (eax, edx uint32)

// Pause tells the processor that the caller waits for another core: it frees what the core's other thread can use, for some tens
// of nanoseconds.
func Pause() { pause() }

func pause()
