package nvshmem

// PutKernel is a kernel of a test: a put with a signal that the device begins.
const PutKernel = `extern "C" __global__ void put_signal(char *dst, const char *src, unsigned long long bytes, weft_u64 *signal, unsigned long long value, int pe) {
	nvshmem_putmem_signal(dst, src, bytes, signal, value, NVSHMEM_SIGNAL_SET, pe);
	nvshmem_quiet();
}
`
