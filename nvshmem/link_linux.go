//go:build linux && cgo

package nvshmem

/*
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef void *linker;

#define ROWS(X) \
	X(nvJitLinkCreate, (linker *, uint32_t, const char **)) \
	X(nvJitLinkDestroy, (linker *)) \
	X(nvJitLinkAddData, (linker, int, const void *, size_t, const char *)) \
	X(nvJitLinkAddFile, (linker, int, const char *)) \
	X(nvJitLinkComplete, (linker)) \
	X(nvJitLinkGetLinkedCubinSize, (linker, size_t *)) \
	X(nvJitLinkGetLinkedCubin, (linker, void *)) \
	X(nvJitLinkGetErrorLogSize, (linker, size_t *)) \
	X(nvJitLinkGetErrorLog, (linker, char *))

#define POINTER(name, params) static int (*p_##name) params;
#define LINE(name, params) {#name, (void **)&p_##name},
ROWS(POINTER)
static const struct { const char *name; void **pointer; } link_rows[] = {ROWS(LINE)};

static int weft_num_link_rows(void) { return sizeof link_rows / sizeof link_rows[0]; }
static const char *weft_link_row(int i) { return link_rows[i].name; }
static void weft_bind_link_row(int i, uintptr_t address) { *link_rows[i].pointer = (void *)address; }

// weft_link links a relocatable cubin with an archive. The image and the log are the caller's to free.
static int weft_link(const char *arch, const void *object, size_t size, const char *archive, void **image, size_t *n, char **log) {
	enum { CUBIN = 1, LIBRARY = 6 };
	linker l = NULL;
	const char *options[] = {arch};
	int r = p_nvJitLinkCreate(&l, 1, options);
	if (r != 0)
		return r;
	r = p_nvJitLinkAddData(l, CUBIN, object, size, "kernel");
	if (r == 0)
		r = p_nvJitLinkAddFile(l, LIBRARY, archive);
	if (r == 0)
		r = p_nvJitLinkComplete(l);
	if (r == 0)
		r = p_nvJitLinkGetLinkedCubinSize(l, n);
	if (r == 0 && (*image = malloc(*n)) == NULL)
		r = -1;
	if (r == 0)
		r = p_nvJitLinkGetLinkedCubin(l, *image);
	size_t chars = 0;
	if (r != 0 && p_nvJitLinkGetErrorLogSize(l, &chars) == 0 && chars > 1 && (*log = calloc(chars + 1, 1)) != NULL)
		p_nvJitLinkGetErrorLog(l, *log);
	p_nvJitLinkDestroy(&l);
	return r;
}
*/
import "C"

import (
	"unsafe"

	"github.com/weftgo/weft/internal/dl"
)

// LinkSymbols returns the rows that this package resolves in libnvJitLink.
func LinkSymbols() []dl.Symbol {
	rows := make([]dl.Symbol, C.weft_num_link_rows())
	for i := range rows {
		rows[i] = dl.Symbol{Name: C.GoString(C.weft_link_row(C.int(i))), Since: "CUDA 12.0"}
	}
	return rows
}

func bindLinker(addrs []uintptr) {
	for i, a := range addrs {
		C.weft_bind_link_row(C.int(i), C.uintptr_t(a))
	}
}

func jitLink(arch string, object []byte, archive string) (image []byte, log string, code int) {
	carch, carchive := C.CString("-arch="+arch), C.CString(archive)
	defer C.free(unsafe.Pointer(carch))
	defer C.free(unsafe.Pointer(carchive))
	var out unsafe.Pointer
	var n C.size_t
	var clog *C.char
	r := C.weft_link(carch, unsafe.Pointer(unsafe.SliceData(object)), C.size_t(len(object)), carchive, &out, &n, &clog)
	defer C.free(out)
	defer C.free(unsafe.Pointer(clog))
	if clog != nil {
		log = C.GoString(clog)
	}
	if r == 0 {
		image = C.GoBytes(out, C.int(n))
	}
	return image, log, int(r)
}
