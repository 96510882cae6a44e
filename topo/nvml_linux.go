//go:build linux && cgo && weft_nvml

package topo

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/weftgo/weft/internal/dl"
	"github.com/weftgo/weft/internal/envknob"
)

var nvmlLib = envknob.Register("WEFT_NVML_LIB", "libnvidia-ml, which knows GPUs and links: its file or its folder")

// newer lists the functions that are called only where they exist, with the first driver that has them.
var newer = map[string]string{
	"nvmlDeviceGetNumaNodeId":             "525",
	"nvmlDeviceGetGpuFabricInfoV":         "550",
	"nvmlDeviceGetNvLinkRemoteDeviceType": "470",
	"nvmlDeviceGetFieldValues":            "390",
	"nvmlSystemGetCudaDriverVersion_v2":   "410",
}

// Read asks NVML about this machine.
func Read() (Machine, error) {
	lib, err := dl.Open(dl.Spec{
		Name:    "libnvidia-ml",
		Sonames: []string{"libnvidia-ml.so.1", "libnvidia-ml.so"},
		Env:     nvmlLib,
		Dirs:    []string{"/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"},
	})
	if err != nil {
		m := Machine{}
		if e, ok := err.(*dl.NotFoundError); ok {
			m.Tried = e.Tried
		}
		return m, fmt.Errorf("topo: %w", err)
	}
	r := &reader{api: nvml.New(nvml.WithLibraryPath(lib.Path())), fabric: fabricOf}
	r.Path, r.Tried = lib.Path(), lib.Tried()
	err = r.read()
	return r.Machine, err
}

// reader fills a Machine.
type reader struct {
	Machine
	api    nvml.Interface
	fabric func(nvml.Device) string
	has    map[string]bool
}

func fail(call string, ret nvml.Return) error { return fmt.Errorf("topo: %s: %w", call, ret) }

func (r *reader) read() error {
	if ret := r.api.Init(); ret != nvml.SUCCESS {
		return fail("initialise NVML", ret) // nothing else may be called
	}
	defer r.api.Shutdown()
	r.has = map[string]bool{}
	for _, name := range []string{"nvmlDeviceGetFieldValues", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetNumaNodeId", "nvmlDeviceGetNvLinkRemoteDeviceType",
		"nvmlSystemGetCudaDriverVersion_v2"} {
		if r.has[name] = r.api.Extensions().LookupSymbol(name) == nil; !r.has[name] {
			r.Missing = append(r.Missing, fmt.Sprintf("%s (driver %s)", name, newer[name]))
		}
	}
	var ret nvml.Return
	if r.Driver, ret = r.api.SystemGetDriverVersion(); ret != nvml.SUCCESS {
		return fail("driver version", ret)
	}
	if r.NVML, ret = r.api.SystemGetNVMLVersion(); ret != nvml.SUCCESS {
		return fail("NVML version", ret)
	}
	if r.has["nvmlSystemGetCudaDriverVersion_v2"] {
		if v, ret := r.api.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
			r.CUDA = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
		}
	}
	n, ret := r.api.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return fail("count devices", ret)
	}
	devices := make([]nvml.Device, n)
	for i := range devices {
		if devices[i], ret = r.api.DeviceGetHandleByIndex(i); ret != nvml.SUCCESS {
			return fail(fmt.Sprintf("device %d", i), ret)
		}
		g, err := r.gpu(i, devices[i])
		if err != nil {
			return err
		}
		r.GPUs = append(r.GPUs, g)
	}
	for a := range devices {
		for b := a + 1; b < n; b++ {
			r.Pairs = append(r.Pairs, r.pair(a, b, devices[a], devices[b]))
		}
	}
	return nil
}

func (r *reader) gpu(i int, d nvml.Device) (GPU, error) {
	g := GPU{Index: i, NUMANode: -1}
	var ret nvml.Return
	if g.Name, ret = d.GetName(); ret != nvml.SUCCESS {
		return g, fail(fmt.Sprintf("name of device %d", i), ret)
	}
	if g.UUID, ret = d.GetUUID(); ret != nvml.SUCCESS {
		return g, fail(fmt.Sprintf("UUID of device %d", i), ret)
	}
	if pci, ret := d.GetPciInfo(); ret == nvml.SUCCESS {
		g.PCIBusID = text(pci.BusId[:])
	}
	if m, ret := d.GetMemoryInfo(); ret == nvml.SUCCESS {
		g.MemoryBytes = m.Total
	}
	if major, minor, ret := d.GetCudaComputeCapability(); ret == nvml.SUCCESS {
		g.Compute = fmt.Sprintf("%d.%d", major, minor)
	}
	if r.has["nvmlDeviceGetNumaNodeId"] {
		if node, ret := d.GetNumaNodeId(); ret == nvml.SUCCESS {
			g.NUMANode = node
		}
	}
	g.NVLink = r.links(d)
	if r.has["nvmlDeviceGetGpuFabricInfoV"] {
		g.Fabric = r.fabric(d)
	}
	return g, nil
}

func text[T int8 | uint8](raw []T) string {
	b := make([]byte, 0, len(raw))
	for _, c := range raw {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}

func (r *reader) links(d nvml.Device) NVLinks {
	var n NVLinks
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := d.GetNvLinkState(link)
		if ret != nvml.SUCCESS {
			break // past the last link, or none at all
		}
		if state != nvml.FEATURE_ENABLED {
			continue
		}
		n.Active++
		if v, ret := d.GetNvLinkVersion(link); ret == nvml.SUCCESS {
			n.Version = int(v)
		}
		if r.has["nvmlDeviceGetNvLinkRemoteDeviceType"] {
			switch kind, ret := d.GetNvLinkRemoteDeviceType(link); {
			case ret == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH:
				n.ToSwitch++
			case ret == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_GPU:
				n.ToGPU++
			}
		}
	}
	if n.Active > 0 && r.has["nvmlDeviceGetFieldValues"] {
		v := []nvml.FieldValue{{FieldId: nvml.FI_DEV_NVLINK_SPEED_MBPS_COMMON}}
		if ret := d.GetFieldValues(v); ret == nvml.SUCCESS && nvml.Return(v[0].NvmlReturn) == nvml.SUCCESS {
			n.BytesPerSecond = field(v[0]) * 1e6 * float64(n.Active)
		}
	}
	return n
}

// field decodes a value of NVML's field query.
func field(v nvml.FieldValue) float64 {
	const isDouble, isUint32, isUint64Long, isUint64, isInt64, isInt32 = 0, 1, 2, 3, 4, 5
	bits := binary.LittleEndian.Uint64(v.Value[:])
	switch v.ValueType {
	case isDouble:
		return math.Float64frombits(bits)
	case isUint32:
		return float64(uint32(bits))
	case isInt64:
		return float64(int64(bits))
	case isInt32:
		return float64(int32(bits))
	case isUint64Long, isUint64:
		return float64(bits)
	}
	return 0
}

func (r *reader) pair(a, b int, da, db nvml.Device) Pair {
	p := Pair{A: a, B: b}
	status := func(cap nvml.GpuP2PCapsIndex) string {
		s, ret := da.GetP2PStatus(db, cap)
		if ret != nvml.SUCCESS {
			return ret.Error()
		}
		return statusText(s)
	}
	p.Read, p.Write = status(nvml.P2P_CAPS_INDEX_READ), status(nvml.P2P_CAPS_INDEX_WRITE)
	p.Atomics = status(nvml.P2P_CAPS_INDEX_ATOMICS)
	la, lb := r.GPUs[a].NVLink, r.GPUs[b].NVLink
	switch {
	case la.ToSwitch > 0 && lb.ToSwitch > 0:
		p.Path, p.Links = "NVSwitch", min(la.ToSwitch, lb.ToSwitch)
	default:
		if p.Links = r.direct(da, r.GPUs[b].PCIBusID); p.Links > 0 {
			p.Path = "NVLink"
		} else {
			p.Path = pcie(da, db)
		}
	}
	return p
}

// direct counts the links of d that end at the GPU with a PCI address.
func (r *reader) direct(d nvml.Device, bus string) int {
	n := 0
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := d.GetNvLinkState(link)
		if ret != nvml.SUCCESS {
			break
		}
		if state != nvml.FEATURE_ENABLED {
			continue
		}
		if pci, ret := d.GetNvLinkRemotePciInfo(link); ret == nvml.SUCCESS && text(pci.BusId[:]) == bus {
			n++
		}
	}
	return n
}

func pcie(a, b nvml.Device) string {
	level, ret := a.GetTopologyCommonAncestor(b)
	if ret != nvml.SUCCESS {
		return "unknown path"
	}
	switch level {
	case nvml.TOPOLOGY_INTERNAL:
		return "one board"
	case nvml.TOPOLOGY_SINGLE:
		return "PIX"
	case nvml.TOPOLOGY_MULTIPLE:
		return "PXB"
	case nvml.TOPOLOGY_HOSTBRIDGE:
		return "PHB"
	case nvml.TOPOLOGY_NODE:
		return "NODE"
	}
	return "SYS"
}

func statusText(s nvml.GpuP2PStatus) string {
	switch s {
	case nvml.P2P_STATUS_OK:
		return "OK"
	case nvml.P2P_STATUS_CHIPSET_NOT_SUPPORTED:
		return "chipset not supported"
	case nvml.P2P_STATUS_GPU_NOT_SUPPORTED:
		return "GPU not supported"
	case nvml.P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED:
		return "PCIe topology not supported"
	case nvml.P2P_STATUS_DISABLED_BY_REGKEY:
		return "disabled by a driver option"
	case nvml.P2P_STATUS_NOT_SUPPORTED:
		return "not supported"
	}
	return "unknown"
}

// fabricOf returns the state of the NVLink fabric of a GPU that has one.
func fabricOf(d nvml.Device) string {
	info, ret := d.GetGpuFabricInfoV().V2()
	if ret != nvml.SUCCESS {
		return ""
	}
	switch info.State {
	case nvml.GPU_FABRIC_STATE_NOT_STARTED:
		return "not started"
	case nvml.GPU_FABRIC_STATE_IN_PROGRESS:
		return "registering"
	case nvml.GPU_FABRIC_STATE_COMPLETED:
		return fmt.Sprintf("registered, clique %d, status %d", info.CliqueId, info.Status)
	}
	return ""
}
