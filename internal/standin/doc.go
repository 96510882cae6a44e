// Package standin builds stand-ins of NVIDIA's libraries for tests on machines without a GPU, from C sources of this module, and runs
// a test again in a process that opens them. It is for tests alone.
//
//	dir := Build(t, CUDA, Library{File: "libnvrtc.so.13", Source: "comm/p2p/testdata/libnvrtc.c"})
//	if inside, _ := Rerun(t, "WEFT_CUDA_LIB="+dir); inside { ... }
package standin
