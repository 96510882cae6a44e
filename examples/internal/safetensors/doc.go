// Package safetensors reads weight files in the safetensors format without copying them.
//
// A file is an 8-byte little-endian header length, a JSON header and the raw bytes of all tensors:
//
//	0        8                      8+n                              size
//	| n: u64 | {"name": {dtype,      | tensor bytes, row-major,        |
//	|        |  shape, data_offsets}}| little-endian, without gaps     |
//
// [Open] maps a file into memory, so that a rank which reads only its own rows and experts touches only their
// pages; [Parse] reads a header from bytes the caller already has, such as an embedded file. Both check the whole
// header first: every tensor lies inside the file, tensors neither overlap nor leave holes, and each shape times
// its element size is the tensor's length. Whatever passes can be sliced without further checks.
//
// [Float32] converts a rectangle of a matrix, which is how tensor-parallel ranks cut their slices.
package safetensors
