// Package lastwords lets a world that spans processes die in all of them: each process watches one key of the store that they
// share, and the first one that gives the world up writes there why.
//
//	process 0: rank 1 fails ── Tell ──► store "NAME/dead" ──► Listen: process 1's world dies of the same error
//
// The loss of the store, or of a process that the store has found dead, arrives in the same place.
package lastwords
