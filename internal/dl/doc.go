// Package dl opens shared libraries at run time, so that a program builds without them and says what it looked for when
// they are not there.
//
// A binding describes its library as a [Spec] and its functions as a table of [Symbol] rows. [Open] tries, in this order:
//
//	the override variable (WEFT_CUDA_LIB, ...: a file, or a folder that holds one)   nothing else is tried when it is set
//	the loader's own search for each soname (LD_LIBRARY_PATH, ld.so.cache, default folders)
//	$CUDA_HOME and $CUDA_PATH: lib64, lib, targets/*/lib; then /usr/local/cuda and the Spec's own folders
//	Python wheels: nvidia/*/lib below WEFT_WHEELS and below the site-packages of VIRTUAL_ENV, CONDA_PREFIX, python3
//
// Libraries are opened with RTLD_NOW and RTLD_LOCAL and stay open until the process ends: unloading a library that started
// threads is not safe. Where there is no cgo, or no Linux, Open returns an error that says so.
package dl
