//go:build linux && cgo && weft_cost

package nccl

// RepeatC is repeatC, for the tests outside of the package.
var RepeatC = repeatC
