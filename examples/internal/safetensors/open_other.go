//go:build !unix

package safetensors

import (
	"fmt"
	"os"
)

// Open reads the whole file at path, since this system offers no memory mapping here, and its header.
func Open(path string) (*File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	return Parse(data, path)
}
