//go:build !(linux && cgo) || !weft_nvml

package topo

import "errors"

// Read asks NVML, which this build leaves out.
func Read() (Machine, error) {
	return Machine{}, errors.New("topo: this program was built without NVML; build it for Linux with cgo and -tags weft_nvml")
}
