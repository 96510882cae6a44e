// Package topo says which GPUs, links and switches a machine has, as NVML sees them. Commands print it; no library part of
// weft depends on it.
//
//	Machine ─┬─ GPU   name, UUID, PCI address, NUMA node, NVLink: how many links, to what, bytes per second
//	         └─ Pair  how two GPUs reach each other: NVLink or the PCIe path, and what peer access NVML reports
//
// NVML is opened when [Read] is called (WEFT_NVML_LIB, the loader's path, known folders). Functions that older drivers lack
// are looked up before they are called: an NVML function that is not there would end the process, not return an error.
// NVML is read through go-nvml, whose cgo build is slow and full of warnings: it is in only with -tags weft_nvml, on Linux with
// cgo. Elsewhere Read returns an error that says so.
package topo
