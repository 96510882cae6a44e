//go:build !amd64

package simd

func sumAllVec(dsts, _ [][]float32, _ int, _ bool)    { unreachable(len(dsts[0])) }
func sumAllBF16Vec(dsts, _ [][]uint16, _ int, _ bool) { unreachable(len(dsts[0])) }

func sumAllBytesStep() int { return 1 }
