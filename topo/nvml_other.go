//go:build !(linux && cgo) || weft_nonvml

package topo

import "errors"

// Read asks NVML, which this build leaves out.
func Read() (Machine, error) {
	return Machine{}, errors.New("topo: this program was built without NVML: not for Linux, with CGO_ENABLED=0, or with -tags weft_nonvml")
}
