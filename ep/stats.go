package ep

import "slices"

// Sub returns what was counted between two snapshots of one exchanger: s is the later one. HeldBytes, which is no count, is s's.
// Exchangers never reset their counters, so that any number of readers can take differences of their own: a metric of a server, and
// whoever moves experts by their loads (routing.Balance).
func (s Stats) Sub(before Stats) Stats {
	s.NumDispatches -= before.NumDispatches
	s.NumTokens -= before.NumTokens
	s.NumCopies -= before.NumCopies
	s.NumCrossCopies -= before.NumCrossCopies
	s.NumNodeCopies -= before.NumNodeCopies
	s.NumCrossNodeCopies -= before.NumCrossNodeCopies
	s.NumSlots -= before.NumSlots
	s.DroppedIDs -= before.DroppedIDs
	s.DroppedCopies -= before.DroppedCopies
	s.ExpertTokens = slices.Clone(s.ExpertTokens)
	for e, n := range before.ExpertTokens {
		s.ExpertTokens[e] -= n
	}
	return s
}
