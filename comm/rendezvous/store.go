package rendezvous

import "context"

// Store is a table of small values that all processes of a job see. Any goroutine may call it. Each wait ends with its ctx,
// or with the job; without a deadline it may last for ever;
// errors are [comm.Error]s: Timeout when ctx's deadline passes, Aborted when it is cancelled, Remote when a process or the
// store is lost, Invalid for keys and values beyond the store's limits.
type Store interface {
	// Set gives key a value, which may be empty. A second Set replaces the first.
	Set(ctx context.Context, key string, value []byte) error
	// Get waits until key is set and returns a copy of its value.
	Get(ctx context.Context, key string) ([]byte, error)
	// Add adds delta to the number at key, 0 when it is not set, and returns the sum. Get returns the number as decimal
	// text. A key whose value is no number is Invalid.
	Add(ctx context.Context, key string, delta int64) (int64, error)
}

// Gatherer is an optional power of a Store: Exchange in one round trip, which leaves nothing behind in the store. The stores
// of this package have it.
type Gatherer interface {
	// Gather is what Exchange calls. Its arguments have been checked.
	Gather(ctx context.Context, name string, rank, size int, mine []byte) ([][]byte, error)
}

// Job says who this process is among those that were started together, and where their store is.
type Job struct {
	Rank, Size           int    // this process among all of the job, in [0, Size)
	LocalRank, LocalSize int    // among those of its node
	Address              string // host:port of the store; empty only when Size is 1
	Token                string // who does not know it is not let in
	Family               string // where this was read: "weft", "torchrun", "openmpi", "mpich", "slurm", "lws", or "single"
	Served               bool   // someone else, such as weft launch, serves the store; otherwise process 0 does
}
