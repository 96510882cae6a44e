package staged

import (
	"github.com/weftgo/weft/comm"
)

// defaultWorkspace is large enough for the layers of the examples, and small beside a GPU's memory.
const defaultWorkspace = 16 << 20

// Config says how to stage.
type Config struct {
	// Workspace is the bytes of device memory beyond which a rank's call is cut. 0 means 16 MiB.
	Workspace int
}

// Open makes a world of ranks on the CPU whose collectives run on the devices of world, which it takes over: the caller uses
// and closes only what Open returns. When Open fails, world stays the caller's. The driver of world must have memory of its
// device (comm.Memory); without it, and for ranks that are on the CPU already, the error is Invalid.
func Open(world *comm.World, cfg Config) (*comm.World, error) {
	if cfg.Workspace == 0 {
		cfg.Workspace = defaultWorkspace
	}
	if cfg.Workspace < 0 {
		return nil, comm.Errorf("open staged", 0, comm.Invalid, "a workspace of %d bytes", cfg.Workspace)
	}
	var comms []*comm.Comm
	for _, c := range world.Local() {
		conn, err := newConn(c.Conn(), c.Rank(), c.Rank(), c.Size(), cfg.Workspace)
		if err != nil {
			return nil, err
		}
		comms = append(comms, comm.New(conn, c.Rank(), c.Size()))
	}
	return comm.NewWorld(comms), nil
}
