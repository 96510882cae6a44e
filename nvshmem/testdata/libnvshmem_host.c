// A libnvshmem_host over files in the folder FAKE_SHARED, for processes without a GPU: enough of the library for the tests of
// loading, versions, layouts, refusals, and of worlds over its heap. Like the real one it ends the process at calls that it does
// not allow (status 3). FAKE_NVSHMEM_VERSION and FAKE_NVSHMEM_STATUS say what it claims to be; -DOLD leaves a function out.
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct { int version; char bytes[124]; } uid;
typedef struct { int version; uid *id; int rank, num; } uid_args;
typedef struct { int version; uid_args uid; char pad[96]; } init_args;
typedef struct { int version; void *mpi; init_args args; } init_attr;

static int status, pe = -1, pes, blocks;
static size_t used; // of 1 GiB
static struct { uintptr_t base; size_t n; } mine[64];
static uintptr_t seen[64][16]; // where this process sees a block of each PE
static volatile int *meeting;  // counts arrivals

static void *map_file(const char *name, int n, int rank, size_t bytes) {
	char path[512];
	snprintf(path, sizeof path, "%s/%s.%d.%d", getenv("FAKE_SHARED"), name, n, rank);
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, bytes) != 0)
		return NULL;
	void *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

void nvshmemx_vendor_get_version_info(int *major, int *minor, int *patch) {
	const char *v = getenv("FAKE_NVSHMEM_VERSION");
	sscanf(v ? v : "3.4.5", "%d.%d.%d", major, minor, patch);
}
int nvshmemx_init_status(void) { return status; }
int nvshmemx_get_uniqueid(uid *id) {
	if (id->version != (1 << 16) + 128)
		return 7;
	snprintf(id->bytes, sizeof id->bytes, "job");
	return 0;
}
int nvshmemx_set_attr_uniqueid_args(int rank, int num, const uid *id, init_attr *attr) {
	attr->args.uid.id = (uid *)id;
	attr->args.uid.rank = rank;
	attr->args.uid.num = num;
	return 0;
}
static void meet(void) {
	static int round;
	int want = ++round * pes;
	__atomic_add_fetch(meeting, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(meeting, __ATOMIC_SEQ_CST) < want)
		usleep(200);
}
int nvshmemx_hostlib_init_attr(unsigned flags, init_attr *attr) {
	if (flags != 8 || attr->version != (1 << 16) + 144 || attr->args.version != (1 << 16) + 128 ||
	    attr->args.uid.version != (1 << 16) + 24 || strcmp(attr->args.uid.id->bytes, "job") != 0)
		return 7;
	if (getenv("FAKE_NVSHMEM_FAILS"))
		return 0; // the real one hides a failure of its start like this
	pe = attr->args.uid.rank;
	pes = attr->args.uid.num;
	meeting = map_file("meeting", 0, 0, 4096);
	meet();
	status = getenv("FAKE_NVSHMEM_STATUS") ? atoi(getenv("FAKE_NVSHMEM_STATUS")) : 2;
	return 0;
}
void nvshmemx_hostlib_finalize(void) { meet(); status = 0; }
int nvshmem_my_pe(void) { return pe; }
int nvshmem_n_pes(void) { return pes; }

uintptr_t nvshmem_malloc(size_t n) {
	if (used + n > (size_t)1 << 30)
		return 0;
	used += n;
	mine[blocks].base = (uintptr_t)map_file("block", blocks, pe, n);
	mine[blocks].n = n;
	meet();
	return mine[blocks++].base;
}
void nvshmem_free(uintptr_t addr) {
	for (int i = 0; i < blocks; i++)
		if (mine[i].base == addr)
			used -= mine[i].n;
	meet();
}
uintptr_t nvshmem_ptr(uintptr_t addr, int rank) {
	for (int i = 0; i < blocks; i++) {
		if (addr < mine[i].base || addr >= mine[i].base + mine[i].n)
			continue;
		if (getenv("FAKE_NVSHMEM_FAR"))
			return rank == pe ? addr : 0;
		if (rank == pe)
			return addr;
		if (!seen[i][rank])
			seen[i][rank] = (uintptr_t)map_file("block", i, rank, mine[i].n);
		return seen[i][rank] + addr - mine[i].base;
	}
	return 0;
}

void nvshmem_barrier_all(void) { meet(); }
void nvshmem_sync_all(void) { meet(); }
void nvshmemx_barrier_all_on_stream(uintptr_t s) { (void)s; meet(); }
void nvshmemx_sync_all_on_stream(uintptr_t s) { (void)s; meet(); }
void nvshmemx_quiet_on_stream(uintptr_t s) { (void)s; }
void nvshmemx_putmem_on_stream(uintptr_t d, uintptr_t s, size_t n, int rank, uintptr_t q) { (void)q; memcpy((void *)nvshmem_ptr(d, rank), (void *)s, n); }
void nvshmemx_getmem_on_stream(uintptr_t d, uintptr_t s, size_t n, int rank, uintptr_t q) { (void)q; memcpy((void *)d, (void *)nvshmem_ptr(s, rank), n); }
void nvshmemx_signal_op_on_stream(uintptr_t sig, uint64_t v, int op, int rank, uintptr_t q) {
	(void)q;
	uint64_t *p = (uint64_t *)nvshmem_ptr(sig, rank);
	if (op == 9)
		__atomic_store_n(p, v, __ATOMIC_SEQ_CST);
	else
		__atomic_add_fetch(p, v, __ATOMIC_SEQ_CST);
}
void nvshmemx_putmem_signal_on_stream(uintptr_t d, uintptr_t s, size_t n, uintptr_t sig, uint64_t v, int op, int rank, uintptr_t q) {
	nvshmemx_putmem_on_stream(d, s, n, rank, q);
	nvshmemx_signal_op_on_stream(sig, v, op, rank, q);
}

// What the real library does not allow where PEs share a GPU without MPS.
static int allowed(void) {
	if (status == 3)
		exit(255);
	return 0;
}
#ifndef OLD
void nvshmemx_signal_wait_until_on_stream(uintptr_t sig, int cmp, uint64_t v, uintptr_t q) { (void)sig; (void)cmp; (void)v; (void)q; allowed(); }
#endif
int nvshmemx_team_sync_on_stream(int team, uintptr_t q) { (void)team; (void)q; return allowed(); }
int nvshmemx_barrier_on_stream(int team, uintptr_t q) { (void)team; (void)q; return allowed(); }
int nvshmemx_alltoallmem_on_stream(int team, uintptr_t d, uintptr_t s, size_t n, uintptr_t q) { (void)team; (void)d; (void)s; (void)n; (void)q; return allowed(); }
int nvshmemx_fcollectmem_on_stream(int team, uintptr_t d, uintptr_t s, size_t n, uintptr_t q) { (void)team; (void)d; (void)s; (void)n; (void)q; return allowed() + 5; }
int nvshmemx_float_sum_reduce_on_stream(int team, uintptr_t d, uintptr_t s, size_t n, uintptr_t q) { (void)team; (void)d; (void)s; (void)n; (void)q; return allowed(); }
