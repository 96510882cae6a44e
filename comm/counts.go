package comm

import "fmt"

// Counts is rows per rank of a ragged collective, any of them zero: known to the host ([Host]) or on the device
// ([OnDevice]). The zero value is "no counts".
type Counts struct {
	host     []int
	own, all Buffer
	max      int
	isHost   bool
	isDevice bool
}

// Host gives everyone's counts: n[i] rows of rank i. All ranks must give the same to AllGatherV and ReduceScatterV.
// The slice is read during the call only.
func Host(n []int) Counts { return Counts{host: n, isHost: true} }

// OnDevice gives counts that the host need not know; they travel with the data.
//
// For AllGatherV and ReduceScatterV own is int32 [1, 1], this rank's rows, and all is int32 [1, size], filled with
// everyone's. For AllToAllV the send counts have own int32 [1, size], rows to each rank (all is not used), and the
// receive counts have all int32 [1, size], filled with the rows from each rank (own is not used).
// max is the most rows of one entry; a destination must hold size x max rows, though only the sum of the counts is
// written, without gaps, in rank order. An own count outside [0, max] is an error of the call on every rank.
func OnDevice(own, all Buffer, max int) Counts {
	return Counts{own: own, all: all, max: max, isDevice: true}
}

// Host returns the counts if the host knows them.
func (c Counts) Host() (n []int, ok bool) { return c.host, c.isHost }

// Device returns the parts of OnDevice counts.
func (c Counts) Device() (own, all Buffer, max int) { return c.own, c.all, c.max }

// set is an assignment that does not copy buffers where there are none.
func (c *Counts) set(v *Counts) {
	if c.isDevice || v.isDevice {
		*c = *v
		return
	}
	c.host, c.isHost = v.host, v.isHost
}

// IsZero reports whether no counts were given.
func (c Counts) IsZero() bool { return !c.isHost && c.own.IsZero() && c.all.IsZero() }

// total returns the sum of host counts, or an error that names a bad entry.
func total(n []int, size int) (int, error) {
	if len(n) != size {
		return 0, fmt.Errorf("%d counts for %d ranks", len(n), size)
	}
	sum := 0
	for i, x := range n {
		if x < 0 {
			return 0, fmt.Errorf("count %d of rank %d is negative", x, i)
		}
		if sum += x; sum < 0 {
			return 0, fmt.Errorf("the sum of the counts overflows at rank %d", i)
		}
	}
	return sum, nil
}
