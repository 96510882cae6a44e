//go:build linux && cgo

package nvrtc

/*
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef void *program;

// One row a function: result, name, parameters, optional.
#define ROWS(X) \
	X(int, nvrtcVersion, (int *, int *), 0) \
	X(const char *, nvrtcGetErrorString, (int), 0) \
	X(int, nvrtcCreateProgram, (program *, const char *, const char *, int, const char *const *, const char *const *), 0) \
	X(int, nvrtcCompileProgram, (program, int, const char *const *), 0) \
	X(int, nvrtcDestroyProgram, (program *), 0) \
	X(int, nvrtcGetProgramLogSize, (program, size_t *), 0) \
	X(int, nvrtcGetProgramLog, (program, char *), 0) \
	X(int, nvrtcGetCUBINSize, (program, size_t *), 0) \
	X(int, nvrtcGetCUBIN, (program, char *), 0) \
	X(int, nvrtcGetPTXSize, (program, size_t *), 0) \
	X(int, nvrtcGetPTX, (program, char *), 0) \
	X(int, nvrtcGetNumSupportedArchs, (int *), 1) \
	X(int, nvrtcGetSupportedArchs, (int *), 1)

#define POINTER(result, name, params, optional) static result (*p_##name) params;
#define LINE(result, name, params, optional) {#name, optional, (void **)&p_##name},
ROWS(POINTER)
static const struct { const char *name; int optional; void **pointer; } rows[] = {ROWS(LINE)};

static int weft_num_rows(void) { return sizeof rows / sizeof rows[0]; }
static const char *weft_row(int i, int *optional) { *optional = rows[i].optional; return rows[i].name; }
static void weft_bind_row(int i, uintptr_t address) { *rows[i].pointer = (void *)address; }

static int weft_version(int *major, int *minor) { return p_nvrtcVersion(major, minor); }
static const char *weft_error(int code) { return p_nvrtcGetErrorString(code); }
static int weft_archs(int *out, int max) {
	int n = 0;
	if (p_nvrtcGetNumSupportedArchs == NULL || p_nvrtcGetSupportedArchs == NULL)
		return 0;
	if (p_nvrtcGetNumSupportedArchs(&n) != 0 || n > max || p_nvrtcGetSupportedArchs(out) != 0)
		return 0;
	return n;
}

// weft_compile leaves the machine code or PTX and the log in memory that the caller frees.
static int weft_compile(const char *source, const char *name, int num_headers, const char **texts, const char **names,
		int num_options, const char **options, int cubin, char **image, size_t *size, char **log) {
	program p = NULL;
	int r = p_nvrtcCreateProgram(&p, source, name, num_headers, texts, names);
	if (r != 0)
		return r;
	r = p_nvrtcCompileProgram(p, num_options, options);
	size_t n = 0;
	if (p_nvrtcGetProgramLogSize(p, &n) == 0 && n > 1 && (*log = calloc(n + 1, 1)) != NULL)
		p_nvrtcGetProgramLog(p, *log);
	if (r == 0)
		r = (cubin ? p_nvrtcGetCUBINSize : p_nvrtcGetPTXSize)(p, size);
	if (r == 0 && (*image = malloc(*size + 1)) == NULL)
		r = 1;
	if (r == 0)
		r = (cubin ? p_nvrtcGetCUBIN : p_nvrtcGetPTX)(p, *image);
	p_nvrtcDestroyProgram(&p);
	return r;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/weftgo/weft/internal/dl"
)

// Symbols returns the rows that this package resolves in libnvrtc.
func Symbols() []dl.Symbol {
	rows := make([]dl.Symbol, C.weft_num_rows())
	for i := range rows {
		var optional C.int
		rows[i] = dl.Symbol{Name: C.GoString(C.weft_row(C.int(i), &optional)), Optional: optional != 0, Since: "CUDA 11.2"}
	}
	return rows
}

func bind(addrs []uintptr) {
	for i, a := range addrs {
		C.weft_bind_row(C.int(i), C.uintptr_t(a))
	}
}

func version() (string, error) {
	var major, minor C.int
	if code := C.weft_version(&major, &minor); code != 0 {
		return "", errors.New("nvrtcVersion: " + errorText(int(code)))
	}
	return fmt.Sprintf("%d.%d", major, minor), nil
}

func errorText(code int) string { return C.GoString(C.weft_error(C.int(code))) }

func archs() []int {
	var raw [64]C.int
	out := make([]int, C.weft_archs(&raw[0], C.int(len(raw))))
	for i := range out {
		out[i] = int(raw[i])
	}
	return out
}

// cstrings copies texts to C memory: an array of pointers, freed by the second result.
func cstrings(texts []string) (**C.char, func()) {
	array := (**C.char)(C.calloc(C.size_t(len(texts)+1), C.size_t(unsafe.Sizeof(uintptr(0)))))
	view := unsafe.Slice(array, len(texts)+1)
	for i, s := range texts {
		view[i] = C.CString(s)
	}
	return array, func() {
		for _, p := range view {
			C.free(unsafe.Pointer(p))
		}
		C.free(unsafe.Pointer(array))
	}
}

// compile blocks an OS thread for as long as the compiler takes.
func compile(p Program, cubin bool) (image []byte, log string, code int) {
	var texts, names []string
	for _, h := range p.Headers {
		texts, names = append(texts, h.Text), append(names, h.Name)
	}
	ctexts, free1 := cstrings(texts)
	defer free1()
	cnames, free2 := cstrings(names)
	defer free2()
	coptions, free3 := cstrings(p.options())
	defer free3()
	csource, cname := C.CString(p.Source), C.CString(p.Name)
	defer C.free(unsafe.Pointer(csource))
	defer C.free(unsafe.Pointer(cname))
	kind := C.int(0)
	if cubin {
		kind = 1
	}
	var out, clog *C.char
	var size C.size_t
	r := C.weft_compile(csource, cname, C.int(len(p.Headers)), ctexts, cnames, C.int(len(p.options())), coptions, kind, &out, &size, &clog)
	defer C.free(unsafe.Pointer(out))
	defer C.free(unsafe.Pointer(clog))
	if clog != nil {
		log = C.GoString(clog)
	}
	if r == 0 {
		image = C.GoBytes(unsafe.Pointer(out), C.int(size))
	}
	return image, log, int(r)
}
