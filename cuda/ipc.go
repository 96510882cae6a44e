package cuda

import "unsafe"

// IPCHandle names an allocation of Alloc to other processes.
type IPCHandle [64]byte

// Export returns the handle of the allocation that holds addr.
func (d *Device) Export(addr uintptr) (h IPCHandle, err error) {
	err = d.check(cuIpcGetMemHandle(d.ctx, unsafe.Pointer(&h), addr), "export memory")
	return h, err
}

// Import maps another process's allocation; the handle's own process cannot. The caller calls Unimport.
func (d *Device) Import(h IPCHandle) (addr uintptr, err error) {
	err = d.check(ipcOpen(d.ctx, &addr, unsafe.Pointer(&h)), "import memory")
	return addr, err
}

// Unimport unmaps what Import mapped.
func (d *Device) Unimport(addr uintptr) error {
	return d.check(cuIpcCloseMemHandle(d.ctx, addr), "unmap imported memory")
}

// FD returns a file descriptor of memory that was created with share; the caller closes it. It may go to another process
// over a Unix socket.
func (p *Physical) FD() (fd int, err error) {
	var v int32
	err = p.dev.check(cuMemExportToShareableHandle(p.dev.ctx, unsafe.Pointer(&v), p.handle, 1, 0), "export physical memory")
	return int(v), err
}

// ImportFD returns the physical memory behind a descriptor of FD; bytes is its size.
func (d *Device) ImportFD(fd, bytes int) (*Physical, error) {
	p := &Physical{dev: d, bytes: bytes}
	if err := d.check(cuMemImportFromShareableHandle(d.ctx, &p.handle, uintptr(fd), 1), "import physical memory"); err != nil {
		return nil, err
	}
	d.alive.Add(1)
	return p, nil
}
