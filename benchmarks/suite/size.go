package suite

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, written as nccl-tests takes it: 8, 4K, 128M, 1.5G, where K, M and G are powers of 1024.
type Size int64

// UnmarshalText parses a size.
func (s *Size) UnmarshalText(text []byte) error {
	number, unit := strings.TrimSpace(string(text)), 1.0
	if n := len(number); n > 0 {
		switch number[n-1] {
		case 'k', 'K':
			unit = 1 << 10
		case 'm', 'M':
			unit = 1 << 20
		case 'g', 'G':
			unit = 1 << 30
		}
		if unit > 1 {
			number = strings.TrimSpace(number[:n-1])
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(v) || v < 0 || v*unit >= 1<<50 {
		return fmt.Errorf("size %q is not a number of bytes below 2^50, such as 8, 4K, 128M or 1.5G", text)
	}
	*s = Size(v * unit)
	return nil
}
