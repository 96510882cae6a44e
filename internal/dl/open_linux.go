//go:build linux && cgo

package dl

/*
#cgo LDFLAGS: -ldl
#cgo CFLAGS: -D_GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// weft_dlopen opens path and copies the real path or the loader's error into text, in one call on one thread.
static uintptr_t weft_dlopen(const char *path, char *text, size_t n) {
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const char *s = "";
	if (h == NULL) {
		s = dlerror();
	} else {
		struct link_map *m = NULL;
		if (dlinfo(h, RTLD_DI_LINKMAP, &m) == 0 && m != NULL && m->l_name != NULL)
			s = m->l_name;
	}
	if (s == NULL)
		s = "no reason given";
	strncpy(text, s, n - 1);
	text[n - 1] = 0;
	return (uintptr_t)h;
}

static uintptr_t weft_dlsym(uintptr_t h, const char *name) { return (uintptr_t)dlsym((void *)h, name); }
*/
import "C"

import (
	"errors"
	"unsafe"
)

func open(path string) (handle uintptr, real string, err error) {
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	const size = 4096
	text := (*C.char)(C.calloc(size, 1))
	defer C.free(unsafe.Pointer(text))
	h := C.weft_dlopen(cpath, text, size)
	if h == 0 {
		return 0, "", errors.New(C.GoString(text))
	}
	real = C.GoString(text)
	if real == "" {
		real = path
	}
	return uintptr(h), real, nil
}

// Lookup returns the address of a symbol, 0 when the library has none of that name.
func (l *Library) Lookup(name string) uintptr {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	return uintptr(C.weft_dlsym(C.uintptr_t(l.handle), cname))
}
