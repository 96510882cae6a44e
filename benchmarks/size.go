package main

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

// sizes lists what -b, -e, -i and -f ask for, in order.
func (f *flags) sizes() []int64 {
	var out []int64
	factor := f.StepFactor
	if factor == 0 && f.StepBytes == 0 {
		factor = defaultFactor
	}
	for n := int64(f.MinBytes); n <= int64(f.MaxBytes); {
		out = append(out, n)
		next := n + int64(f.StepBytes)
		if factor > 1 {
			next = max(n+1, int64(float64(n)*factor))
		}
		if next <= n {
			break
		}
		n = next
	}
	return out
}
