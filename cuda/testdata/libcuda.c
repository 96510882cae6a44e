// A libcuda that works on host memory at once: enough of the driver for the tests of loading, calling, errors and packing
// on machines without a GPU. -DOLD leaves a function out, FAKE_INIT makes cuInit fail. With FAKE_SHARED, a folder, memory of
// cuMemAlloc is files there, which other processes map by their handles, and kernels of any parameters do nothing.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef uintptr_t h;
typedef struct { uint32_t gx, gy, gz, bx, by, bz, shared; h stream; struct { int id; int pad; uint32_t v[16]; } *attrs; uint32_t num; } config;

static _Thread_local h current;
static int live, capturing;
static uint32_t last[12]; // what the last launch was given

#define OK(name, ...) int name(__VA_ARGS__) { return 0; }
#define NEED if (current != 77) return 201

int cuInit(unsigned f) { (void)f; return getenv("FAKE_INIT") ? atoi(getenv("FAKE_INIT")) : 0; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return i < 2 ? 0 : 101; }
int cuDeviceGetName(char *s, int n, int d) { strncpy(s, d ? "Fake B" : "Fake A", n); return 0; }
int cuDeviceGetUuid_v2(char *u, int d) { for (int i = 0; i < 16; i++) u[i] = i + d; return 0; }
int cuDeviceTotalMem_v2(size_t *b, int d) { *b = (size_t)(d + 1) << 30; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 16 ? 132 : a == 75 ? 9 : a == 132 ? -1 : 1; if (a == 76) *v = d; return a == 132 ? 1 : 0; }
int cuDeviceGetPCIBusId(char *s, int n, int d) { (void)d; strncpy(s, "0000:19:00.0", n); return 0; }
int cuDeviceCanAccessPeer(int *c, int a, int b) { *c = a == 1 && b == 0; return 0; }
int cuDeviceGetP2PAttribute(int *v, int a, int s, int d) { (void)s; (void)d; *v = a; return 0; }
int cuDevicePrimaryCtxRetain(h *c, int d) { *c = 77 + d; return 0; }
OK(cuDevicePrimaryCtxRelease_v2, int d)
int cuCtxGetCurrent(h *c) { *c = current; return 0; }
int cuCtxSetCurrent(h c) { current = c; return 0; }
int cuCtxEnablePeerAccess(h p, unsigned f) { (void)f; return p == 78 ? 704 : 217; }
int cuCtxGetStreamPriorityRange(int *l, int *g) { *l = 0; *g = -5; return 0; }
int cuGetErrorName(int c, const char **s) { *s = c == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE"; return 0; }
int cuGetErrorString(int c, const char **s) { *s = c == 2 ? "out of memory" : "made up"; return 0; }
int cuMemGetInfo_v2(size_t *f, size_t *t) { NEED; *f = 1 << 20; *t = 1 << 21; return 0; }
static struct { h p; size_t n; char name[48]; } files[64]; // of FAKE_SHARED; a file that is mapped here twice has two
static int map_file(const char *name, size_t n, h *p) {
	char path[512];
	snprintf(path, sizeof path, "%s/%s", getenv("FAKE_SHARED"), name);
	int fd = open(path, O_RDWR | O_CREAT, 0600), i = 0;
	if (fd < 0 || ftruncate(fd, n) != 0)
		return 1;
	*p = (h)mmap(0, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	while (i < 64 && files[i].p)
		i++;
	if (i == 64)
		return 2;
	files[i].p = *p;
	files[i].n = n;
	strncpy(files[i].name, name, sizeof files[i].name - 1);
	return 0;
}
static int unmap_file(h p) {
	for (int i = 0; i < 64; i++)
		if (files[i].p == p) {
			files[i].p = 0;
			return munmap((void *)p, files[i].n);
		}
	return 1;
}
int cuMemAlloc_v2(h *p, size_t n) {
	static int num;
	NEED;
	if (getenv("FAKE_SHARED")) {
		char name[48];
		snprintf(name, sizeof name, "%d.%d", getpid(), num++);
		return map_file(name, n, p);
	}
	if (n > 1 << 20)
		return 2;
	live++;
	*p = (h)malloc(n);
	return 0;
}
int cuMemFree_v2(h p) { NEED; if (getenv("FAKE_SHARED")) return unmap_file(p); live--; free((void *)p); return 0; }
int cuMemHostAlloc(h *p, size_t n, unsigned f) { NEED; (void)f; *p = (h)malloc(n); return 0; }
int cuMemFreeHost(h p) { free((void *)p); return 0; }
OK(cuMemHostRegister_v2, h p, size_t n, unsigned f)
OK(cuMemHostUnregister, h p)
int cuMemcpyAsync(h d, h s, size_t n, h q) { NEED; (void)q; memmove((void *)d, (void *)s, n); return 0; }
int cuMemsetD8Async(h d, unsigned char v, size_t n, h q) { NEED; (void)q; memset((void *)d, v, n); return 0; }
int cuMemsetD32Async(h d, unsigned v, size_t n, h q) { NEED; (void)q; while (n--) ((unsigned *)d)[n] = v; return 0; }
int cuPointerGetAttribute(int *p, int a, h x) { *p = a == 2 ? 2 : 0; return x < 4096 ? 1 : 0; }
int cuMemAddressReserve(h *p, size_t n, size_t a, h x, uint64_t f) {
	NEED;
	(void)a; (void)x; (void)f;
	*p = getenv("FAKE_SHARED") ? (h)mmap(0, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : (h)malloc(n);
	return 0;
}
int cuMemAddressFree(h p, size_t n) { if (getenv("FAKE_SHARED")) return munmap((void *)p, n); free((void *)p); return 0; }
int cuMemCreate(h *o, size_t n, const int *prop, uint64_t f) {
	NEED;
	(void)f;
	if (getenv("FAKE_SHARED")) { // the handle is a descriptor
		int fd = memfd_create("block", 0);
		*o = fd;
		return fd < 3 || ftruncate(fd, n) != 0;
	}
	if (n > 1 << 24)
		return 2;
	*o = 1000 + prop[3];
	return prop[0] == 1 && prop[2] == 1 ? 0 : 1;
}
int cuMemRelease(h x) { return getenv("FAKE_SHARED") ? close(x) : 0; }
int cuMemMap(h p, size_t n, size_t o, h x, uint64_t f) {
	(void)o; (void)f;
	return getenv("FAKE_SHARED") && mmap((void *)p, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, x, 0) == MAP_FAILED;
}
int cuMemUnmap(h p, size_t n) {
	return getenv("FAKE_SHARED") && mmap((void *)p, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED;
}
int cuMemSetAccess(h p, size_t n, const int *a, size_t c) { (void)p; (void)n; for (size_t i = 0; i < c; i++) if (a[3 * i] != 1 || a[3 * i + 2] != 3) return 1; return 0; }
int cuMemGetAllocationGranularity(size_t *g, const int *prop, int o) { (void)prop; *g = o == 1 ? 2 << 20 : 1; return 0; }
int cuMemExportToShareableHandle(int *o, h x, int k, uint64_t f) { (void)k; (void)f; if (getenv("FAKE_SHARED")) *o = dup(x); return 0; }
int cuMemImportFromShareableHandle(h *o, h fd, int k) { (void)k; if (getenv("FAKE_SHARED")) *o = dup(fd); return 0; }
int cuIpcGetMemHandle(char *o, h p) {
	memset(o, 0, 64);
	memcpy(o, &p, sizeof p);
	for (int i = 0; i < 64; i++)
		if (files[i].p == p) {
			memcpy(o + 8, &files[i].n, 8);
			memcpy(o + 16, files[i].name, 48);
		}
	return 0;
}
typedef struct { char b[64]; } ipc;
int cuIpcOpenMemHandle_v2(h *o, ipc x, unsigned f) {
	size_t n;
	memcpy(o, x.b, sizeof *o);
	memcpy(&n, x.b + 8, 8);
	if (getenv("FAKE_WRONG")) // other memory than the handle's
		x.b[16] = 'x';
	return f != 1 ? 1 : n ? map_file(x.b + 16, n, o) : 0;
}
int cuIpcCloseMemHandle(h p) { return getenv("FAKE_SHARED") ? unmap_file(p) : 0; }
int cuStreamCreateWithPriority(h *s, unsigned f, int p) { *s = 500 + p; return f == 1 ? 0 : 1; }
OK(cuStreamDestroy_v2, h s)
int cuStreamQuery(h s) { NEED; return s == 505 ? 600 : 0; }
int cuStreamSynchronize(h s) { NEED; (void)s; return capturing ? 900 : 0; }
OK(cuStreamWaitEvent, h s, h e, unsigned f)
int cuStreamGetCtx(h s, h *c) { *c = s == 600 ? 5 : 77; return 0; }
int cuStreamIsCapturing(h s, int *v) { (void)s; *v = capturing; return 0; }
int cuStreamBeginCapture_v2(h s, int m) { (void)s; capturing = 1; return m == 1 ? 0 : 1; }
int cuStreamEndCapture(h s, h *g) { (void)s; capturing = 0; *g = 900; return 0; }
int cuEventCreate(h *e, unsigned f) { *e = 300 + f; return 0; }
OK(cuEventDestroy_v2, h e)
OK(cuEventRecord, h e, h s)
OK(cuEventQuery, h e)
OK(cuEventSynchronize, h e)
int cuEventElapsedTime(float *ms, h a, h b) { (void)a; (void)b; *ms = 1.5f; return 0; }
OK(cuGraphDestroy, h g)
int cuGraphGetNodes(h g, void *n, size_t *c) { (void)g; *c = 4; return n ? 1 : 0; }
int cuGraphInstantiateWithFlags(h *e, h g, uint64_t f) { (void)g; (void)f; *e = 901; return 0; }
int cuGraphExecUpdate_v2(h e, h g, int *i) { (void)e; *i = 5; return g == 900 ? 910 : 0; }
OK(cuGraphExecDestroy, h e)
#ifndef OLD
OK(cuGraphUpload, h e, h s)
#endif
OK(cuGraphLaunch, h e, h s)
int cuModuleLoadData(h *m, const char *i) { *m = 700; return i[0] == 'x' ? 200 : 0; }
OK(cuModuleUnload, h m)
int cuModuleGetFunction(h *f, h m, const char *n) { (void)m; *f = 800; return strcmp(n, "absent") == 0 ? 500 : 0; }
int cuModuleGetGlobal_v2(h *p, size_t *n, h m, const char *s) { (void)m; *p = (h)last; *n = sizeof last; return strcmp(s, "last") ? 500 : 0; }
OK(cuFuncGetAttribute, int *v, int a, h f)
OK(cuFuncSetAttribute, h f, int a, int v)
int cuFuncGetParamInfo(h f, size_t i, size_t *o, size_t *n) { (void)f; *o = 8 * i; *n = i == 2 ? 4 : 8; return getenv("FAKE_SHARED") ? 801 : i < 3 ? 0 : 1; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, h f, int t, size_t s) { (void)f; (void)s; *n = 2048 / t; return 0; }
int cuLaunchKernelEx(const config *c, h f, void **params, void **extra) {
	NEED;
	if (f != 800 || params || (h)extra[0] != 1 || (h)extra[2] != 2 || extra[4])
		return 1;
	uint32_t *p = extra[1];
	if (getenv("FAKE_SHARED"))
		return 0;
	uint32_t got[12] = {c->gx, c->gz, c->bx, c->shared, c->stream, c->num, c->num ? c->attrs[0].id : 0, c->num ? c->attrs[0].v[0] : 0,
		c->num > 1 ? c->attrs[1].id : 0, c->num > 1 ? c->attrs[1].v[0] : 0, *(size_t *)extra[3], p[4]};
	memcpy(last, got, sizeof got);
	return c->bx > 1024 ? 1 : 0;
}
