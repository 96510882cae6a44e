package dtype

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Float32s widens len(dst) elements of type t, stored little-endian in src, into dst. It serves tests, loaders and slow
// paths; the collectives have their own vector code. Integers are converted by value.
// It returns an error when src is shorter than len(dst) elements or t is invalid.
func Float32s(dst []float32, src []byte, t DType) error {
	if need := len(dst) * t.Size(); !t.Valid() || len(src) < need {
		return fmt.Errorf("dtype: %d bytes hold fewer than %d elements of %v", len(src), len(dst), t)
	}
	le := binary.LittleEndian
	for i := range dst {
		switch t {
		case F32:
			dst[i] = math.Float32frombits(le.Uint32(src[4*i:]))
		case BF16:
			dst[i] = BFloat16(le.Uint16(src[2*i:])).Float32()
		case F16:
			dst[i] = Float16(le.Uint16(src[2*i:])).Float32()
		case F8E4M3:
			dst[i] = E4M3(src[i]).Float32()
		case F8E5M2:
			dst[i] = E5M2(src[i]).Float32()
		case I8:
			dst[i] = float32(int8(src[i]))
		case U8:
			dst[i] = float32(src[i])
		case I32:
			dst[i] = float32(int32(le.Uint32(src[4*i:])))
		case I64:
			dst[i] = float32(int64(le.Uint64(src[8*i:])))
		}
	}
	return nil
}

// FromFloat32s narrows src to type t into dst, little-endian. Floats round to nearest even (see the package comment);
// integers truncate toward zero. It returns an error when dst is too short or t is invalid.
func FromFloat32s(dst []byte, src []float32, t DType) error {
	if need := len(src) * t.Size(); !t.Valid() || len(dst) < need {
		return fmt.Errorf("dtype: %d bytes cannot hold %d elements of %v", len(dst), len(src), t)
	}
	le := binary.LittleEndian
	for i, f := range src {
		switch t {
		case F32:
			le.PutUint32(dst[4*i:], math.Float32bits(f))
		case BF16:
			le.PutUint16(dst[2*i:], uint16(ToBFloat16(f)))
		case F16:
			le.PutUint16(dst[2*i:], uint16(ToFloat16(f)))
		case F8E4M3:
			dst[i] = byte(ToE4M3(f))
		case F8E5M2:
			dst[i] = byte(ToE5M2(f))
		case I8:
			dst[i] = byte(int8(f))
		case U8:
			dst[i] = byte(f)
		case I32:
			le.PutUint32(dst[4*i:], uint32(int32(f)))
		case I64:
			le.PutUint64(dst[8*i:], uint64(int64(f)))
		}
	}
	return nil
}
