package dtype

import (
	"fmt"
	"unsafe"
)

// DType is an element type.
type DType uint8

// The element types. The zero value is not a type, so that a forgotten field is noticed.
const (
	Invalid DType = iota
	F32
	BF16
	F16
	F8E4M3
	F8E5M2
	I8
	U8
	I32
	I64
	numTypes
)

var names = [numTypes]string{"invalid", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i8", "u8", "i32", "i64"}
var sizes = [numTypes]int{0, 4, 2, 2, 1, 1, 1, 1, 4, 8}

// All lists every valid type.
func All() []DType {
	all := make([]DType, 0, numTypes-1)
	for t := F32; t < numTypes; t++ {
		all = append(all, t)
	}
	return all
}

// String returns the short lower-case name, such as "bf16".
func (t DType) String() string {
	if t >= numTypes {
		return fmt.Sprintf("dtype(%d)", uint8(t))
	}
	return names[t]
}

// Size returns the bytes of one element; 0 for an invalid type.
func (t DType) Size() int {
	if t >= numTypes {
		return 0
	}
	return sizes[t]
}

// Valid reports whether t is one of the types above.
func (t DType) Valid() bool { return t > Invalid && t < numTypes }

// IsFloat reports whether t is a floating-point type.
func (t DType) IsFloat() bool { return t >= F32 && t <= F8E5M2 }

// Parse returns the type of a short name, as String writes it. The names of nccl-tests and PyTorch are accepted too:
// float, half, bfloat16, float32, float16, int8, uint8, int32, int64, f8e4m3 (fp8_e4m3), f8e5m2 (fp8_e5m2).
func Parse(s string) (DType, error) {
	for t := F32; t < numTypes; t++ {
		if names[t] == s {
			return t, nil
		}
	}
	switch s {
	case "float", "float32", "fp32":
		return F32, nil
	case "bfloat16":
		return BF16, nil
	case "half", "float16", "fp16":
		return F16, nil
	case "fp8_e4m3", "float8_e4m3fn":
		return F8E4M3, nil
	case "fp8_e5m2", "float8_e5m2":
		return F8E5M2, nil
	case "int8":
		return I8, nil
	case "uint8":
		return U8, nil
	case "int32", "int":
		return I32, nil
	case "int64":
		return I64, nil
	}
	return Invalid, fmt.Errorf("dtype: unknown type %q; use one of %v", s, names[1:])
}

// Element is a Go type whose slices can be viewed as a buffer.
type Element interface {
	float32 | BFloat16 | Float16 | E4M3 | E5M2 | int8 | uint8 | int32 | int64
}

// Of returns the DType of a Go element type.
func Of[T Element]() DType {
	var z T
	switch any(z).(type) {
	case float32:
		return F32
	case BFloat16:
		return BF16
	case Float16:
		return F16
	case E4M3:
		return F8E4M3
	case E5M2:
		return F8E5M2
	case int8:
		return I8
	case uint8:
		return U8
	case int32:
		return I32
	default:
		return I64
	}
}

// Bytes views a slice of elements as its bytes; they share memory.
func Bytes[T Element](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*Of[T]().Size())
}
