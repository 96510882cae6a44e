package simd

import (
	"fmt"
	"os"

	"github.com/weftgo/weft/internal/envknob"
)

// A Level names the instruction set that the kernels use.
type Level uint8

// The levels, slowest first. Go is portable and needs nothing of the processor.
const (
	Go     Level = iota
	AVX2         // AVX2, FMA and F16C
	AVX512       // AVX-512 F, DQ, BW and VL, and what AVX2 needs
)

// EnvLevel is the environment variable that forces a lower level: avx512, avx2 or go. It is read once, at start.
const EnvLevel = "WEFT_SIMD"

var (
	knob            = envknob.Register(EnvLevel, "instruction set of the CPU kernels, at most what the processor has", "avx512", "avx2", "go")
	supported       = detect()
	current, choice = choose(os.Getenv(knob.Name), supported)
)

// String returns the level's name as WEFT_SIMD spells it.
func (l Level) String() string {
	switch l {
	case Go:
		return "go"
	case AVX2:
		return "avx2"
	case AVX512:
		return "avx512"
	}
	return fmt.Sprintf("level %d", uint8(l))
}

// Current returns the level in use: the best that this processor has, unless WEFT_SIMD asks for a lower one.
func Current() Level { return current }

// Supported returns the best level that this processor has.
func Supported() Level { return supported }

// Describe says in one line which level is used and why, for logs.
func Describe() string { return choice }

// Force makes the kernels of this process use a level until restore is called. It panics if the processor lacks the
// level. It exists for tests and benchmarks: no kernel may run meanwhile on another goroutine.
func Force(l Level) (restore func()) {
	if l > supported {
		panic(fmt.Sprintf("simd: level %v forced on a processor that has %v", l, supported))
	}
	old := current
	current = l
	return func() { current = old }
}

// choose applies the value of WEFT_SIMD. A value that cannot be honoured changes nothing but the description.
func choose(env string, best Level) (Level, string) {
	for l := Go; l <= AVX512; l++ {
		if env != l.String() {
			continue
		}
		if l > best {
			return best, fmt.Sprintf("simd: %v (%s=%s, but this processor lacks it)", best, EnvLevel, env)
		}
		return l, fmt.Sprintf("simd: %v (%s=%s; the processor has %v)", l, EnvLevel, env, best)
	}
	if env != "" {
		return best, fmt.Sprintf("simd: %v (%s=%q is not avx512, avx2 or go)", best, EnvLevel, env)
	}
	return best, fmt.Sprintf("simd: %v", best)
}
