package cuda

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Info describes a GPU.
type Info struct {
	Ordinal     int    `json:"ordinal"` // the driver's number: cuda:0 is 0
	Name        string `json:"name"`
	UUID        string `json:"uuid"`        // as nvidia-smi prints it: GPU-...
	PCIBusID    string `json:"pci_bus_id"`  // 0000:19:00.0
	SMs         int    `json:"sms"`         // streaming multiprocessors
	Major       int    `json:"major"`       // compute capability
	Minor       int    `json:"minor"`       //
	MemoryBytes int    `json:"memory"`      // total
	L2Bytes     int    `json:"l2"`          //
	SharedBytes int    `json:"shared"`      // the most shared memory of one block, with SetMaxShared
	VMM         bool   `json:"vmm"`         // Reserve, Create and Map work
	Cooperative bool   `json:"cooperative"` // Launch.Cooperative works
	Cluster     bool   `json:"cluster"`     // Launch.Cluster works
	Multicast   bool   `json:"multicast"`   // the hardware could do NVLink multicast; weft only asks
}

// Arch returns the architecture to compile for, with every feature of the GPU: "sm_90a". GPUs before compute capability 9.0
// have no such suffix: "sm_80".
func (i Info) Arch() string {
	if i.Major >= 9 {
		return fmt.Sprintf("sm_%d%da", i.Major, i.Minor)
	}
	return fmt.Sprintf("sm_%d%d", i.Major, i.Minor)
}

// Attribute is a CUdevice_attribute.
type Attribute int32

// Attributes that weft asks for.
const (
	MaxThreadsPerBlock Attribute = 1
	NumSMs             Attribute = 16
	L2Bytes            Attribute = 38
	ComputeMajor       Attribute = 75
	ComputeMinor       Attribute = 76
	MaxThreadsPerSM    Attribute = 39
	SharedBytesPerSM   Attribute = 81
	Cooperative        Attribute = 95
	SharedBytesOptIn   Attribute = 97
	VMMSupported       Attribute = 102
	HandleFD           Attribute = 103
	ClusterLaunch      Attribute = 120
	MulticastSupported Attribute = 132
)

// Count returns how many GPUs the driver shows. Without a driver the error is comm.Unavailable.
func Count() (int, error) {
	if err := Init(); err != nil {
		return 0, err
	}
	var n int32
	if c := cuDeviceGetCount(&n); c != success {
		return 0, &Error{Call: "count devices", Device: -1, Code: c}
	}
	return int(n), nil
}

// Devices describes every GPU, without making a context on any.
func Devices() ([]Info, error) {
	n, err := Count()
	if err != nil {
		return nil, err
	}
	infos := make([]Info, n)
	for i := range infos {
		if infos[i], err = describe(i); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

func describe(ordinal int) (Info, error) {
	d := Device{info: Info{Ordinal: ordinal}}
	if err := d.check(cuDeviceGet(&d.dev, int32(ordinal)), "get device"); err != nil {
		return Info{}, err
	}
	i := &d.info
	var text [256]byte
	if err := d.check(cuDeviceGetName(unsafe.Pointer(&text), int32(len(text)), d.dev), "name"); err != nil {
		return Info{}, err
	}
	i.Name = string(text[:max(bytes.IndexByte(text[:], 0), 0)])
	if err := d.check(cuDeviceGetPCIBusId(unsafe.Pointer(&text), int32(len(text)), d.dev), "pci bus id"); err != nil {
		return Info{}, err
	}
	i.PCIBusID = string(text[:max(bytes.IndexByte(text[:], 0), 0)])
	var u [16]byte
	if err := d.check(cuDeviceGetUuid(unsafe.Pointer(&u), d.dev), "uuid"); err != nil {
		return Info{}, err
	}
	i.UUID = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
	var total uintptr
	if err := d.check(cuDeviceTotalMem(&total, d.dev), "total memory"); err != nil {
		return Info{}, err
	}
	i.MemoryBytes = int(total)
	for _, a := range []struct {
		attr Attribute
		num  *int
		yes  *bool
	}{
		{NumSMs, &i.SMs, nil}, {ComputeMajor, &i.Major, nil}, {ComputeMinor, &i.Minor, nil}, {L2Bytes, &i.L2Bytes, nil},
		{SharedBytesOptIn, &i.SharedBytes, nil}, {VMMSupported, nil, &i.VMM}, {Cooperative, nil, &i.Cooperative},
		{ClusterLaunch, nil, &i.Cluster}, {MulticastSupported, nil, &i.Multicast},
	} {
		v, err := d.Attribute(a.attr)
		if err != nil {
			v = 0 // an older driver does not know the attribute, so it has not the feature
		}
		if a.num != nil {
			*a.num = v
		} else {
			*a.yes = v != 0
		}
	}
	return *i, nil
}

// Device is a GPU whose primary context is retained. Any goroutine may use it at any time.
type Device struct {
	info  Info
	dev   int32
	ctx   uintptr
	alive atomic.Int64 // bytes
	refs  int          // guarded by opened.mu
	holds holds
}

var opened struct {
	mu      sync.Mutex
	devices map[int]*Device
}

// Open retains the primary context of a device. Every Open of one ordinal returns the same Device until as many Closes.
func Open(ordinal int) (*Device, error) {
	n, err := Count()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= n {
		return nil, &Error{Call: fmt.Sprintf("open: the driver shows %d devices (CUDA_VISIBLE_DEVICES may hide some)", n), Device: ordinal, Code: 101}
	}
	opened.mu.Lock()
	defer opened.mu.Unlock()
	if d := opened.devices[ordinal]; d != nil {
		d.refs++
		return d, nil
	}
	d := &Device{refs: 1}
	if d.info, err = describe(ordinal); err != nil {
		return nil, err
	}
	if err := d.check(cuDeviceGet(&d.dev, int32(ordinal)), "get device"); err != nil {
		return nil, err
	}
	if err := d.check(cuDevicePrimaryCtxRetain(&d.ctx, d.dev), "retain the primary context"); err != nil {
		return nil, err
	}
	if opened.devices == nil {
		opened.devices = map[int]*Device{}
	}
	opened.devices[ordinal] = d
	return d, nil
}

// Close gives one Open back; the last one releases the context. What was allocated on the device must be freed before.
func (d *Device) Close() error {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	if d.refs--; d.refs > 0 {
		return nil
	}
	if d.refs < 0 {
		return fmt.Errorf("cuda: device %d: closed more often than opened", d.info.Ordinal)
	}
	delete(opened.devices, d.info.Ordinal)
	return d.check(cuDevicePrimaryCtxRelease(d.dev), "release the primary context")
}

// Info describes the device.
func (d *Device) Info() Info { return d.info }

// Ordinal returns the driver's number of the device.
func (d *Device) Ordinal() int { return d.info.Ordinal }

// Context returns the device's primary CUcontext, for other libraries in the process.
func (d *Device) Context() uintptr { return d.ctx }

// Attribute asks the driver.
func (d *Device) Attribute(a Attribute) (int, error) {
	var v int32
	err := d.checkf(cuDeviceGetAttribute(&v, int32(a), d.dev), "attribute %d", a)
	return int(v), err
}
