// Package calls is how Go reaches libnccl's functions: a table of them in calls.h, one row each, and C functions that make a device
// current, call a row and copy the library's message, all in one C call. Package nccl gives them types and meaning.
//
//	Symbols ── internal/dl ──► Bind          once
//	Run(ctx, Split, words, text)             a row by its number; arguments and results are words of one array
//
// Results are ncclResult_t, and the negative numbers of calls.h: NoLibrary, a row that is not there, libcuda's codes.
package calls

import "bytes"

// NoLibrary is the result of a call without the library or without cgo, NoSymbol of a row that the library lacks. Results from CUDABase
// down are CUDABase minus a CUresult.
const (
	NoLibrary = -1
	NoSymbol  = -2
	CUDABase  = -1000
)

// Text returns what C wrote, up to the NUL, in one line.
func Text(b *[TextBytes]byte) string {
	s, _, _ := bytes.Cut(b[:], []byte{0})
	return string(bytes.TrimSpace(bytes.ReplaceAll(s, []byte{'\n'}, []byte{' '})))
}
