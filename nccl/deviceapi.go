package nccl

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/weftgo/weft/nccl/internal/calls"
)

// The host side of NCCL's device API. Structs of its headers are the caller's C memory, which is passed on as it is: their
// layouts change with every minor version, and the caller's kernels were compiled with one.

// Team is a regular set of ranks of a communicator: Rank is this one's number in it, Stride the distance of neighbours in
// the communicator's numbers.
type Team struct{ NumRanks, Rank, Stride int32 }

// words returns the struct as the words of a call.
func (t Team) words() (w [2]uint64) {
	*(*Team)(unsafe.Pointer(&w)) = t
	return w
}

func (c *Communicator) team(call int) (Team, error) {
	var t Team
	if err := needs(call); err != nil {
		return t, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone.Load() {
		return t, &Error{Call: "a team", Result: InvalidArgument}
	}
	return t, check(Result(calls.Team(call, c.Handle(), unsafe.Pointer(&t))), "a team", c.msg)
}

// WorldTeam is all ranks.
func (c *Communicator) WorldTeam() (Team, error) { return c.team(calls.TeamWorld) }

// LSATeam is the ranks that load and store each other's memory.
func (c *Communicator) LSATeam() (Team, error) { return c.team(calls.TeamLsa) }

// RailTeam is the ranks of equal number in their LSA teams.
func (c *Communicator) RailTeam() (Team, error) { return c.team(calls.TeamRail) }

// answer runs a row that returns a number instead of a result.
func answer(ctx uintptr, call int, a []uint64) (int, error) {
	if err := needs(call); err != nil {
		return 0, err
	}
	var msg [calls.TextBytes]byte
	n := run(ctx, call, a, &msg)
	if n < 0 {
		return 0, &Error{Call: loaded.rows[call].Name, Result: n}
	}
	return int(n), nil
}

func (c *Communicator) rankOf(call int, t Team, rank int) (int, error) {
	if c.gone.Load() {
		return 0, &Error{Call: "a rank of a team", Result: InvalidArgument}
	}
	w := t.words()
	return answer(c.dev.Context(), call, []uint64{c.handle(), w[0], w[1], uint64(rank)})
}

// WorldRank returns the communicator's number of a rank of a team.
func (c *Communicator) WorldRank(t Team, rank int) (int, error) {
	return c.rankOf(calls.TeamRankToWorld, t, rank)
}

// LSARank returns the LSA team's number of a rank of a team.
func (c *Communicator) LSARank(t Team, rank int) (int, error) {
	return c.rankOf(calls.TeamRankToLsa, t, rank)
}

// LSABarriers fills the caller's handle and ncclDevResourceRequirements for n barriers of a team.
func LSABarriers(t Team, n int, handle, requirements uintptr) error {
	w := t.words()
	return static(calls.LsaBarrier, "LsaBarrierCreateRequirement", []uint64{w[0], w[1], uint64(n), uint64(handle), uint64(requirements)})
}

// static runs a row that no communicator is needed for.
func static(call int, name string, a []uint64) error {
	if err := needs(call); err != nil {
		return err
	}
	var msg [calls.TextBytes]byte
	return check(run(0, call, a, &msg), name, &msg)
}

// GINBarriers is LSABarriers for a team across the network.
func (c *Communicator) GINBarriers(t Team, n int, handle, requirements uintptr) error {
	w := t.words()
	a := []uint64{c.handle(), w[0], w[1], uint64(n), uint64(handle), uint64(requirements)}
	return c.call(calls.GinBarrier, fmt.Sprintf("GinBarrierCreateRequirement of %d", n), a)
}

// LLA2ASlots returns the slots of a low-latency all-to-all of so many elements of so many bytes.
func LLA2ASlots(elements, bytes int) (int, error) {
	return answer(0, calls.CalcSlots, []uint64{uint64(elements), uint64(bytes)})
}

// LLA2A fills the caller's handle and ncclDevResourceRequirements for such an all-to-all.
func LLA2A(blocks, slots int, handle, requirements uintptr) error {
	return static(calls.LLA2A, "LLA2ACreateRequirement", []uint64{uint64(blocks), uint64(slots), uint64(handle), uint64(requirements)})
}

// CreateDevComm fills the caller's ncclDevComm at out for the caller's ncclDevCommRequirements.
func (c *Communicator) CreateDevComm(ctx context.Context, requirements, out uintptr) error {
	a := [3]uint64{c.handle(), uint64(requirements), uint64(out)}
	if err := c.call(calls.DevCommCreate, "DevCommCreate", a[:]); err != nil {
		return err
	}
	return c.Ready(ctx)
}

// DestroyDevComm undoes CreateDevComm.
func (c *Communicator) DestroyDevComm(devComm uintptr) error {
	a := [2]uint64{c.handle(), uint64(devComm)}
	return c.call(calls.DevCommDestroy, "DevCommDestroy", a[:])
}

// QueryProperties fills the caller's ncclCommProperties, initialised as its header says.
func (c *Communicator) QueryProperties(properties uintptr) error {
	a := [2]uint64{c.handle(), uint64(properties)}
	return c.call(calls.QueryProperties, "CommQueryProperties", a[:])
}
