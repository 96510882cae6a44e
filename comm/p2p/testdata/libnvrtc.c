// An NVRTC whose machine code is one word, for the libcuda of cuda/testdata, which runs none.
#include <stddef.h>
#include <string.h>

typedef void *program;

int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 0; return 0; }
const char *nvrtcGetErrorString(int code) { (void)code; return "made up"; }
int nvrtcCreateProgram(program *p, const char *s, const char *n, int k, const char *const *t, const char *const *f) { (void)s; (void)n; (void)k; (void)t; (void)f; *p = (program)1; return 0; }
int nvrtcCompileProgram(program p, int n, const char *const *o) { (void)p; (void)n; (void)o; return 0; }
int nvrtcDestroyProgram(program *p) { (void)p; return 0; }
int nvrtcGetProgramLogSize(program p, size_t *n) { (void)p; *n = 0; return 0; }
int nvrtcGetProgramLog(program p, char *s) { (void)p; (void)s; return 0; }
int nvrtcGetCUBINSize(program p, size_t *n) { (void)p; *n = 4; return 0; }
int nvrtcGetCUBIN(program p, char *s) { (void)p; memcpy(s, "code", 4); return 0; }
int nvrtcGetPTXSize(program p, size_t *n) { (void)p; *n = 4; return 0; }
int nvrtcGetPTX(program p, char *s) { (void)p; memcpy(s, "code", 4); return 0; }
