package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// file joins a header and a body of zeros.
func file(header string, bodyBytes int) []byte {
	data := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	data = append(data, header...)
	return append(data, make([]byte, bodyBytes)...)
}

const twoTensors = `{"__metadata__":{"format":"pt"},
 "b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},
 "a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"note":{"any":[1]}},
 "empty":{"dtype":"F64","shape":[7,0],"data_offsets":[16,16]},
 "scalar":{"dtype":"F32","shape":[],"data_offsets":[16,20]}}   `

func TestParse(t *testing.T) {
	data := file(twoTensors, 20)
	copy(data[len(data)-20:], "abcd")
	f, err := Parse(data, "two.safetensors")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "empty", "scalar"}, f.Names())
	require.Equal(t, map[string]string{"format": "pt"}, f.Metadata())
	require.Equal(t, int64(len(data)), f.Size())

	a, ok := f.Tensor("a")
	require.True(t, ok)
	require.Equal(t, Tensor{Name: "a", DType: U8, Shape: []int{4}, Data: []byte("abcd")}, a)
	b, ok := f.Tensor("b")
	require.True(t, ok)
	require.Equal(t, []int{2, 3}, b.Shape)
	require.Len(t, b.Data, 12)
	require.Equal(t, 6, b.NumElements())
	s, ok := f.Tensor("scalar")
	require.True(t, ok)
	require.Equal(t, 1, s.NumElements())
	e, ok := f.Tensor("empty")
	require.True(t, ok)
	require.Equal(t, 0, e.NumElements())
	_, ok = f.Tensor("c")
	require.False(t, ok)
	require.NoError(t, f.Close())
}

func TestParseRefuses(t *testing.T) {
	one := func(dtype, shape, offsets string) string {
		return fmt.Sprintf(`{"x":{"dtype":%q,"shape":%s,"data_offsets":%s}}`, dtype, shape, offsets)
	}
	length := func(n uint64) []byte { return append(binary.LittleEndian.AppendUint64(nil, n), "{}"...) }
	cases := []struct {
		name string
		data []byte
		want string
	}{
		{"empty file", nil, "bad: 0 bytes, shorter than the 8-byte header length"},
		{"no header", length(3)[:8], "header length 3 bytes, but the file has only 0 after its first 8"},
		{"header of 2 GB", length(2 << 30), "header length 2147483648 bytes > limit 104857600; the file has 10 bytes"},
		{"header of 2^64", length(math.MaxUint64), "header length 18446744073709551615 bytes > limit"},
		{"truncated header", length(3), "header length 3 bytes, but the file has only 2 after its first 8: the file is cut off"},
		{"empty header", file("", 0), "ends too early"},
		{"array", file("[]", 0), `header: [ where "{" should be`},
		{"cut JSON", file(`{"x":{"dtype":"F32"`, 0), "ends too early"},
		{"more JSON", file(`{} {}`, 0), "{ follows the JSON object"},
		{"not UTF-8", file("{\"\xff\":1}", 0), "is not UTF-8"},
		{"tensor is a number", file(`{"x":1}`, 0), `tensor "x": 1 where "{" should be`},
		{"twice", file(`{"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"x":{}}`, 0), `tensor "x" appears twice`},
		{"field twice", file(`{"x":{"dtype":"U8","dtype":"U8"}}`, 0), `tensor "x": field "dtype" appears twice`},
		{"metadata twice", file(`{"__metadata__":{"a":"b","a":"c"}}`, 0), `key "a" appears twice`},
		{"metadata number", file(`{"__metadata__":{"a":1}}`, 0), `__metadata__: "a" is 1, want a string`},
		{"no dtype", file(`{"x":{"shape":[],"data_offsets":[0,0]}}`, 0), `tensor "x": no field "dtype"`},
		{"no shape", file(`{"x":{"dtype":"U8","data_offsets":[0,0]}}`, 0), `tensor "x": no field "shape"`},
		{"no offsets", file(`{"x":{"dtype":"U8","shape":[]}}`, 0), `tensor "x": no field "data_offsets"`},
		{"wrong dtype", file(one("F12", "[1]", "[0,4]"), 4), `tensor "x": dtype "F12" is not one of F64`},
		{"negative", file(one("F32", "[-1]", "[0,4]"), 4), `tensor "x": shape: -1 is not a non-negative`},
		{"fraction", file(one("F32", "[1.5]", "[0,4]"), 4), `tensor "x": shape: 1.5 is not`},
		{"text", file(one("F32", `["1"]`, "[0,4]"), 4), `tensor "x": shape: 1 where a number should be`},
		{"huge dimension", file(one("F32", "[18446744073709551615]", "[0,4]"), 4), "dimension 0 does not fit an int"},
		{"overflow", file(one("F32", "[4294967296,4294967296,4]", "[0,0]"), 0), "of F32 overflows 64 bits"},
		{"three offsets", file(one("F32", "[1]", "[0,4,8]"), 4), "data_offsets [0 4 8]: want [begin, end]"},
		{"backward", file(one("F32", "[1]", "[4,0]"), 4), "bytes [4, 0) are not within the 4 bytes"},
		{"truncated body", file(one("F32", "[2]", "[0,8]"), 7), "bytes [0, 8) are not within the 7 bytes after the header: the file is cut off; copy it again"},
		{"shape too big", file(one("F32", "[3]", "[0,8]"), 8), "shape [3] of F32 needs 12 bytes, data_offsets [0, 8) give 8"},
		{"trailing bytes", file(one("F32", "[2]", "[0,8]"), 9), "9 bytes follow the header, its 1 tensors use 8"},
		{"overlap", file(`{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}}`, 7),
			`tensor "y": bytes [3, 7) overlap tensor "x", which ends at 4`},
		{"hole", file(`{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}}`, 9),
			`tensor "y": begins at byte 5, which leaves a hole of 1 bytes from 4`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(c.data, "bad")
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "safetensors: bad: ")
		})
	}
}

// Every cut of a good file is refused: no prefix passes for a whole.
func TestParseRefusesEveryPrefix(t *testing.T) {
	data := file(twoTensors, 20)
	for n := range len(data) {
		_, err := Parse(data[:n], "cut")
		require.Error(t, err, "%d of %d bytes", n, len(data))
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.safetensors")
	data := file(twoTensors, 20)
	copy(data[len(data)-20:], "abcd")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	f, err := Open(path)
	require.NoError(t, err)
	require.Equal(t, path, f.Name())
	a, ok := f.Tensor("a")
	require.True(t, ok)
	require.Equal(t, "abcd", string(a.Data))
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	_, ok = f.Tensor("a")
	require.False(t, ok, "a closed file has no tensors")

	_, err = Open(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Open(dir)
	require.ErrorContains(t, err, dir)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = Open(path)
	require.ErrorContains(t, err, path+": 0 bytes, shorter than")
	require.NoError(t, os.WriteFile(path, data[:len(data)-1], 0o600))
	_, err = Open(path)
	require.ErrorContains(t, err, "are not within the 19 bytes after the header")
}

func TestDTypeNames(t *testing.T) {
	for d := F64; d <= Bool; d++ {
		require.Equal(t, d, parseDType(d.String()))
		require.Positive(t, d.Size())
		require.Equal(t, strings.ToUpper(d.String()), d.String())
	}
	require.Zero(t, parseDType("invalid"))
	require.Zero(t, DType(200).Size())
	require.Equal(t, "DType(200)", DType(200).String())
}
