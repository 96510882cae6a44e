package safetensors

import "fmt"

// DType is the element type of a tensor, as the file writes it.
type DType uint8

// The element types of the format that have whole bytes. The zero value is none of them.
const (
	F64 DType = iota + 1
	F32
	F16
	BF16
	F8E4M3
	F8E5M2
	I64
	I32
	I16
	I8
	U64
	U32
	U16
	U8
	Bool
)

var dtypes = [...]struct {
	name string
	size int
}{
	0:      {"invalid", 0},
	F64:    {"F64", 8},
	F32:    {"F32", 4},
	F16:    {"F16", 2},
	BF16:   {"BF16", 2},
	F8E4M3: {"F8_E4M3", 1},
	F8E5M2: {"F8_E5M2", 1},
	I64:    {"I64", 8},
	I32:    {"I32", 4},
	I16:    {"I16", 2},
	I8:     {"I8", 1},
	U64:    {"U64", 8},
	U32:    {"U32", 4},
	U16:    {"U16", 2},
	U8:     {"U8", 1},
	Bool:   {"BOOL", 1},
}

// Size returns the bytes of one element, 0 for an invalid type.
func (d DType) Size() int {
	if int(d) >= len(dtypes) {
		return 0
	}
	return dtypes[d].size
}

// String returns the name the format uses, such as "BF16" or "F8_E4M3".
func (d DType) String() string {
	if int(d) >= len(dtypes) {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].name
}

// parseDType returns the type of that name, or 0.
func parseDType(name string) DType {
	for i := range dtypes {
		if i > 0 && dtypes[i].name == name {
			return DType(i)
		}
	}
	return 0
}
