package cuda

import (
	"runtime"
	"unsafe"
)

// Module is machine code of kernels, loaded on a device.
type Module struct {
	dev    *Device
	handle uintptr
}

// LoadModule loads a cubin or a NUL-terminated PTX text. Loading may wait for running kernels: load before ranks wait for
// each other. The caller calls Close.
func (d *Device) LoadModule(image []byte) (*Module, error) {
	if len(image) == 0 {
		return nil, &Error{Call: "load a module of 0 bytes", Device: d.info.Ordinal, Code: InvalidImage}
	}
	m := &Module{dev: d}
	c := cuModuleLoadData(d.ctx, &m.handle, unsafe.Pointer(unsafe.SliceData(image)))
	runtime.KeepAlive(image)
	if err := d.checkf(c, "load a module of %d bytes on %s", len(image), d.info.Arch()); err != nil {
		return nil, err
	}
	return m, nil
}

// Handle returns the CUmodule, for other libraries in the process.
func (m *Module) Handle() uintptr { return m.handle }

// Close unloads the code, later while the device is held: see [Device.Hold]. None of its kernels may be running.
func (m *Module) Close() error {
	if m.handle == 0 {
		return nil
	}
	d, handle := m.dev, m.handle
	m.handle = 0
	return d.whenReleased(func() error { return d.check(cuModuleUnload(d.ctx, handle), "unload a module") })
}

// Global returns the address and size of a __device__ variable.
func (m *Module) Global(name string) (addr uintptr, bytes int, err error) {
	var n uintptr
	err = m.dev.checkf(cuModuleGetGlobal(m.dev.ctx, &addr, &n, m.handle, cstring(name)), "global %q", name)
	return addr, int(n), err
}

func cstring(s string) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(append([]byte(s), 0))) }

// Function is a kernel of a module. Any goroutine may use it.
type Function struct {
	dev    *Device
	handle uintptr
	name   string
	params int // bytes; -1 when the driver does not say
}

// Function returns a kernel by its symbol, which is its name where it is declared extern "C".
func (m *Module) Function(name string) (*Function, error) {
	f := &Function{dev: m.dev, name: name}
	if err := m.dev.checkf(cuModuleGetFunction(m.dev.ctx, &f.handle, m.handle, cstring(name)), "function %q", name); err != nil {
		return nil, err
	}
	var err error
	if f.params, err = f.ParamBytes(); err != nil {
		f.params = -1
	}
	return f, nil
}

// Name returns the kernel's symbol.
func (f *Function) Name() string { return f.name }

// FunctionAttribute is a CUfunction_attribute.
type FunctionAttribute int32

// What can be asked and set about a kernel.
const (
	FuncMaxThreads      FunctionAttribute = 0
	FuncStaticShared    FunctionAttribute = 1
	FuncLocalBytes      FunctionAttribute = 3
	FuncNumRegisters    FunctionAttribute = 4
	FuncMaxShared       FunctionAttribute = 8
	FuncNonPortableSize FunctionAttribute = 14 // clusters of more than 8 blocks
)

// Attribute asks about the kernel.
func (f *Function) Attribute(a FunctionAttribute) (int, error) {
	var v int32
	err := f.dev.checkf(cuFuncGetAttribute(f.dev.ctx, &v, int32(a), f.handle), "attribute %d of %s", a, f.name)
	return int(v), err
}

// SetMaxShared lets blocks of the kernel use up to bytes of dynamic shared memory; above 48 KiB it must be called.
func (f *Function) SetMaxShared(bytes int) error {
	return f.dev.checkf(cuFuncSetAttribute(f.dev.ctx, f.handle, int32(FuncMaxShared), int32(bytes)), "%s: %d bytes of shared memory", f.name, bytes)
}

// SetNonPortableClusters lets the kernel run in clusters of more than 8 blocks.
func (f *Function) SetNonPortableClusters() error {
	return f.dev.checkf(cuFuncSetAttribute(f.dev.ctx, f.handle, int32(FuncNonPortableSize), 1), "%s: large clusters", f.name)
}

// BlocksPerSM returns how many blocks of the kernel fit on one SM at once.
func (f *Function) BlocksPerSM(threads, shared int) (int, error) {
	var n int32
	err := f.dev.checkf(cuOccupancyMaxActiveBlocksPerMultiprocessor(f.dev.ctx, &n, f.handle, int32(threads), uintptr(shared)), "occupancy of %s", f.name)
	return int(n), err
}

// MaxClusters returns how many clusters of the launch fit on the device at once.
func (f *Function) MaxClusters(l Launch) (int, error) {
	var n int32
	err := f.dev.checkf(maxClusters(f.dev.ctx, f.handle, &l, &n), "clusters of %s", f.name)
	return int(n), err
}

// ParamBytes returns the size of the kernel's packed parameters. Drivers before 12.4 do not say: comm.Unavailable.
func (f *Function) ParamBytes() (int, error) {
	end := 0
	for i := uintptr(0); ; i++ {
		var offset, bytes uintptr
		c := cuFuncGetParamInfo(f.dev.ctx, f.handle, i, &offset, &bytes)
		if c == InvalidValue { // past the last one
			return end, nil
		}
		if err := f.dev.checkf(c, "parameter %d of %s", i, f.name); err != nil {
			return 0, err
		}
		end = int(offset + bytes)
	}
}
