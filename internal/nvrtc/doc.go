// Package nvrtc turns CUDA C++ text that a program carries into machine code for the GPU that is there.
//
// [Cubin] compiles with libnvrtc, which is opened when it is first needed (WEFT_NVRTC_LIB, the loader's path, the toolkit,
// Python wheels), and keeps the result on disk, because a kernel takes a second or more to compile:
//
//	Program (text, headers, options, arch) ──> key = SHA-256(all of it, NVRTC's version)
//	                                            │
//	        $WEFT_CACHE_DIR or <user cache>/weft ── nvrtc/sm_90a-<key>.cubin   hit: read, check its sum
//	                                            │ miss, or a broken file
//	                                            └── compile, write a temporary file, rename it
//
// Processes may share the folder: a file appears whole or not at all, and a file whose content does not match its sum is
// compiled again. A folder that cannot be written means compiling in every process, and is no error. Nothing is ever
// removed; deleting the folder is safe at any time.
//
// Kernels need no CUDA headers: NVRTC knows the vector types, the built-in variables and the intrinsics by itself, and bf16
// is done on integers with inline PTX.
package nvrtc
