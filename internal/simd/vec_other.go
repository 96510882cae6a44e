//go:build !amd64

package simd

import "fmt"

// There is assembly for amd64 only. Elsewhere the level is always Go, and these forward to the twins.

func addVec(dst, a []float32)                       { addGo(dst, a) }
func mulVec(dst, a []float32)                       { mulGo(dst, a) }
func scaleVec(dst []float32, a float32)             { scaleGo(dst, a) }
func axpyVec(dst, x []float32, a float32)           { axpyGo(dst, x, a) }
func scaleMulVec(dst, x, w []float32, a float32)    { scaleMulGo(dst, x, w, a) }
func rotateVec(lo, hi, cos, sin []float32)          { rotateGo(lo, hi, cos, sin) }
func dotVec(a, b []float32) float32                 { return dotGo(a, b) }
func sumSquaresVec(a []float32) float32             { return dotGo(a, a) }
func maxVec(a []float32) float32                    { return maxGo(a) }
func maxAbsVec(a []float32) float32                 { return maxAbsGo(a) }
func expSumVec(dst, x []float32, m float32) float32 { return expSumGo(dst, x, m) }
func swiGLUVec(dst, gate, up []float32)             { swiGLUGo(dst, gate, up) }
func sumRanksVec(dst []float32, srcs [][]float32)   { sumRanksGo(dst, srcs) }

func addSumSquaresVec(dst, _ []float32) float32                      { return unreachable(len(dst)) }
func swiGLURowsVec(_ []float32, numRows, _, _ int)                   { unreachable(numRows) }
func topKVec(_ []int32, x []float32)                                 { unreachable(len(x)) }
func weightedSumVec(dst, _ []float32, _ int, _ []int32, _ []float32) { unreachable(len(dst)) }

func sumHalvesVec(dst []uint16, _ [][]uint16, _ half) { unreachable(len(dst)) }
func widenVec(dst []float32, _ []uint16, _ half)      { unreachable(len(dst)) }
func narrowVec(dst []uint16, _ []float32, _ half)     { unreachable(len(dst)) }

// unreachable guards the wrappers whose callers do the whole slice themselves at the level Go.
func unreachable(n int) float32 {
	panic(fmt.Sprintf("simd: assembly asked for %d values on a processor without", n))
}
