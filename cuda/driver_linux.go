//go:build linux && cgo

package cuda

/*
#include "driver.h"
#include <stdlib.h>

#cgo noescape weft_mem_create
#cgo nocallback weft_mem_create
#cgo noescape weft_granularity
#cgo nocallback weft_granularity
#cgo noescape weft_set_access
#cgo nocallback weft_set_access
#cgo noescape weft_ipc_open
#cgo nocallback weft_ipc_open
#cgo noescape weft_copy_host
#cgo nocallback weft_copy_host
#cgo noescape weft_exec_update
#cgo nocallback weft_exec_update
#cgo noescape weft_launch
#cgo nocallback weft_launch
#cgo noescape weft_max_clusters
#cgo nocallback weft_max_clusters
*/
import "C"

import (
	"unsafe"

	"github.com/weftgo/weft/internal/dl"
)

// symbols returns the rows of driver.h.
func symbols() []dl.Symbol {
	rows := make([]dl.Symbol, C.weft_num_symbols())
	for i := range rows {
		var optional C.int32_t
		var since *C.char
		rows[i].Name = C.GoString(C.weft_symbol(C.int32_t(i), &optional, &since))
		rows[i].Optional, rows[i].Since = optional != 0, C.GoString(since)
	}
	return rows
}

func bindSymbols(addrs []uintptr) {
	for i, a := range addrs {
		C.weft_bind(C.int32_t(i), C.uintptr_t(a))
	}
}

// errorText returns the library's name and sentence for a code.
func errorText(code Code) (name, text string) {
	const size = 512
	buf := (*C.char)(C.calloc(2, size))
	defer C.free(unsafe.Pointer(buf))
	second := (*C.char)(unsafe.Add(unsafe.Pointer(buf), size))
	C.weft_error_text(C.int32_t(code), buf, size, second, size)
	return C.GoString(buf), C.GoString(second)
}

func memCreate(ctx uintptr, out *uintptr, bytes uintptr, device, handles int32) Code {
	return Code(C.weft_mem_create(C.uintptr_t(ctx), (*C.uintptr_t)(unsafe.Pointer(out)), C.size_t(bytes), C.int32_t(device), C.int32_t(handles)))
}

func granularity(out *uintptr, device, handles int32) Code {
	return Code(C.weft_granularity((*C.size_t)(unsafe.Pointer(out)), C.int32_t(device), C.int32_t(handles)))
}

func setAccess(ctx, addr, bytes uintptr, devices []int32) Code {
	return Code(C.weft_set_access(C.uintptr_t(ctx), C.uintptr_t(addr), C.size_t(bytes), (*C.int32_t)(unsafe.SliceData(devices)), C.size_t(len(devices))))
}

func ipcOpen(ctx uintptr, out *uintptr, handle unsafe.Pointer) Code {
	return Code(C.weft_ipc_open(C.uintptr_t(ctx), (*C.uintptr_t)(unsafe.Pointer(out)), handle))
}

func copyHost(ctx, dst, src uintptr, host unsafe.Pointer, bytes, stream uintptr) Code {
	return Code(C.weft_copy_host(C.uintptr_t(ctx), C.uintptr_t(dst), C.uintptr_t(src), host, C.size_t(bytes), C.uintptr_t(stream)))
}

func execUpdate(ctx, exec, graph uintptr, result *int32) Code {
	return Code(C.weft_exec_update(C.uintptr_t(ctx), C.uintptr_t(exec), C.uintptr_t(graph), (*C.int32_t)(result)))
}

func launchKernel(ctx, stream, f uintptr, shape *Launch, params unsafe.Pointer, bytes uintptr) Code {
	return Code(C.weft_launch(C.uintptr_t(ctx), C.uintptr_t(stream), C.uintptr_t(f), unsafe.Pointer(shape), params, C.size_t(bytes)))
}

func maxClusters(ctx, f uintptr, shape *Launch, n *int32) Code {
	return Code(C.weft_max_clusters(C.uintptr_t(ctx), C.uintptr_t(f), unsafe.Pointer(shape), (*C.int32_t)(n)))
}
