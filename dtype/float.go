package dtype

import "math"

// BFloat16 is the upper half of a float32.
type BFloat16 uint16

// Float16 is IEEE 754 binary16.
type Float16 uint16

// E4M3 is the OCP 8-bit float with four exponent bits: no infinity, largest finite value 448, NaN is 0x7f and 0xff.
type E4M3 uint8

// E5M2 is the OCP 8-bit float with five exponent bits: IEEE-like, with infinities, largest finite value 57344.
type E5M2 uint8

// Float32 returns x exactly.
func (x BFloat16) Float32() float32 { return math.Float32frombits(uint32(x) << 16) }

// ToBFloat16 rounds f to nearest even; a NaN stays a (quiet) NaN of the same sign.
func ToBFloat16(f float32) BFloat16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return BFloat16(b>>16 | 0x40)
	}
	return BFloat16((b + 0x7fff + b>>16&1) >> 16)
}

// Float32 returns x exactly.
func (x Float16) Float32() float32 { return expand(uint32(x), 5, 10, true) }

// ToFloat16 rounds f to nearest even; values beyond 65504 + half a unit become infinities, a NaN stays NaN.
func ToFloat16(f float32) Float16 { return Float16(narrow(f, 5, 10, true, false)) }

// Float32 returns x exactly.
func (x E4M3) Float32() float32 { return e4m3Table[x] }

// ToE4M3 rounds f to nearest even and saturates at 448; a NaN stays NaN.
func ToE4M3(f float32) E4M3 { return E4M3(narrow(f, 4, 3, false, true)) }

// Float32 returns x exactly.
func (x E5M2) Float32() float32 { return expand(uint32(x), 5, 2, true) }

// ToE5M2 rounds f to nearest even and saturates at 57344; infinities and NaN are kept.
func ToE5M2(f float32) E5M2 { return E5M2(narrow(f, 5, 2, true, true)) }

// MaxE4M3 is the largest finite E4M3 value.
const MaxE4M3 = 448

var e4m3Table = func() (t [256]float32) {
	for i := range t {
		t[i] = expand(uint32(i), 4, 3, false)
	}
	return t
}()

// expand decodes a small float with the given widths of exponent and mantissa. Without infinities (E4M3) only the
// all-ones pattern is NaN and the top exponent holds ordinary values.
func expand(x uint32, exp, man uint, hasInf bool) float32 {
	sign := x >> (exp + man) & 1
	e := x >> man & (1<<exp - 1)
	m := x & (1<<man - 1)
	bias := 1<<(exp-1) - 1
	var bits uint32
	switch {
	case hasInf && e == 1<<exp-1:
		bits = 0x7f800000 | m<<(23-man)
		if m != 0 {
			bits |= 0x400000
		}
	case !hasInf && e == 1<<exp-1 && m == 1<<man-1:
		bits = 0x7fc00000
	case e == 0:
		f := float32(m) * math.Float32frombits(uint32(127+1-bias-int(man))<<23)
		bits = math.Float32bits(f)
	default:
		bits = uint32(int(e)+127-bias)<<23 | m<<(23-man)
	}
	return math.Float32frombits(bits | sign<<31)
}

// narrow encodes f with the given widths, rounding to nearest even.
func narrow(f float32, exp, man uint, hasInf, saturate bool) uint32 {
	b := math.Float32bits(f)
	sign := b >> 31 << (exp + man)
	mag := b & 0x7fffffff
	top := uint32(1<<exp-1) << man // first pattern of the top exponent
	nan := top | 1<<(man-1)
	maxFinite := top - 1
	if !hasInf {
		nan = top | (1<<man - 1)
		maxFinite = nan - 1
	}
	if mag > 0x7f800000 {
		return sign | nan
	}
	if mag == 0x7f800000 {
		if hasInf {
			return sign | top
		}
		return sign | maxFinite
	}
	bias := 1<<(exp-1) - 1
	e := int(mag>>23) - 127 + bias // biased exponent in the small format
	shift := 23 - man
	full := mag&0x7fffff | 0x800000
	if mag>>23 == 0 { // subnormal float32 is far below every small format here
		return sign
	}
	base := uint32(0)
	if e >= 1 {
		base = uint32(e-1) << man // the implicit bit adds the last 1
	} else {
		if 1-e > 25 {
			return sign
		}
		shift += uint(1 - e)
	}
	if shift > 31 {
		return sign
	}
	q := full >> shift
	rest := full & (1<<shift - 1)
	half := uint32(1) << (shift - 1)
	if rest > half || rest == half && q&1 == 1 {
		q++
	}
	out := base + q
	if out > maxFinite {
		switch {
		case saturate || !hasInf:
			out = maxFinite
		default:
			out = top
		}
	}
	return sign | out
}
