// Package cuda drives NVIDIA GPUs through libcuda: devices, memory, streams, events, graphs and kernels.
//
// Threads come first, because they are where bindings go wrong. CUDA keeps the current context per OS thread, and a
// goroutine moves between threads. Every call here names its device: one C function makes the device's primary context
// current, calls, and returns the code. No goroutine has to lock its thread; only [Stream.Capture] locks it, while it lasts.
//
// The library is opened when it is first needed (WEFT_CUDA_LIB, the loader's path, known folders); building needs no
// toolkit and no headers, and builds without cgo or on other systems, where every call returns [comm.Unavailable]. Before
// cuInit this package sets CUDA_MODULE_LOADING=EAGER and CUDA_DEVICE_MAX_CONNECTIONS=32 unless they are set: code that is
// loaded at a kernel's first launch waits for kernels that wait for that launch.
//
//	Device ─┬─ Alloc, Free            plain memory, addresses are integers
//	        ├─ AllocHost              pinned host memory, a []byte and an address
//	        ├─ Reserve, Create, Map   a range of addresses over memory of several devices
//	        ├─ NewStream ─┬─ Launch, Copy, Fill      one cgo call each, no allocation
//	        │             ├─ Record, WaitEvent       events: order and time
//	        │             └─ Capture ── Graph ── Exec.Launch
//	        └─ LoadModule ── Function
//
// Kernels of several ranks wait for each other on a device. A driver's call that waits for running kernels, made by the rank
// that the others wait for, would keep them waiting until their deadline. Freeing memory and unloading code are such calls:
// [Device.Hold] puts them off. Loading a module and the first product of a shape of cublasLt are others, and the first launch of a
// kernel may be one; they belong before the first wait. TestWhatWaits times them all.
//
// Device memory is freed by Free and Close alone, never by the garbage collector. Nothing here creates managed memory or
// NVLink multicast objects.
package cuda
