package simd

import "math"

// A half is a 16-bit float format.
type half uint8

const (
	bf16 half = iota
	f16
)

// halfLanes is what the assembly of 16-bit formats takes at once; the twin does the rest, with the same bits.
const halfLanes = 8

// sumLanes is the same for sums of 16-bit formats.
const sumLanes = 16

func (h half) widen(v uint16) float32 {
	if h == bf16 {
		return math.Float32frombits(uint32(v) << 16)
	}
	return f16To32(v)
}

func (h half) narrow(x float32) uint16 {
	if h == bf16 {
		return f32ToBF16(x)
	}
	return f32To16(x)
}

// BF16ToF32 widens bfloat16 values; exact.
func BF16ToF32(dst []float32, src []uint16) { widen(dst, src, bf16) }

// F16ToF32 widens float16 values; exact.
func F16ToF32(dst []float32, src []uint16) { widen(dst, src, f16) }

// F32ToBF16 rounds to bfloat16, to nearest even. Overflow gives infinity; NaN stays NaN.
func F32ToBF16(dst []uint16, src []float32) { narrow(dst, src, bf16) }

// F32ToF16 rounds to float16, to nearest even. Overflow gives infinity; NaN stays NaN.
func F32ToF16(dst []uint16, src []float32) { narrow(dst, src, f16) }

func widen(dst []float32, src []uint16, h half) {
	src = src[:len(dst)]
	done := 0
	if current != Go {
		reading(src)
		writing(dst)
		done = len(dst) / halfLanes * halfLanes
		widenVec(dst[:done], src, h)
	}
	for i := done; i < len(dst); i++ {
		dst[i] = h.widen(src[i])
	}
}

func narrow(dst []uint16, src []float32, h half) {
	src = src[:len(dst)]
	done := 0
	if current != Go {
		reading(src)
		writing(dst)
		done = len(dst) / halfLanes * halfLanes
		narrowVec(dst[:done], src, h)
	}
	for i := done; i < len(dst); i++ {
		dst[i] = h.narrow(src[i])
	}
}

func f32ToBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func f16To32(h uint16) float32 {
	sign, exp, man := uint32(h&0x8000)<<16, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch {
	case exp == 0x1f && man != 0:
		return math.Float32frombits(sign | 0x7fc00000 | man<<13)
	case exp == 0x1f:
		return math.Float32frombits(sign | 0x7f800000)
	case exp == 0: // subnormal: man * 2^-24, exact
		v := float32(man) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(v))
	}
	return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
}

func f32To16(x float32) uint16 {
	b := math.Float32bits(x)
	sign, mag := uint16(b>>16&0x8000), b&^signBit
	switch {
	case mag > 0x7f800000:
		return sign | 0x7e00 | uint16(mag>>13&0x3ff)
	case mag >= 0x477ff000: // 65520 and above round to infinity
		return sign | 0x7c00
	case mag < 0x38800000: // below 2^-14: adding 0.5 rounds to multiples of 2^-24, to nearest even
		v := math.Float32frombits(mag) + 0.5
		return sign | uint16(math.Float32bits(v)-math.Float32bits(0.5))
	}
	mag += 0xfff + mag>>13&1
	return sign | uint16((mag-112<<23)>>13)
}
