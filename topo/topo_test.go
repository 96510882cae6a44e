//go:build linux && cgo && weft_nvml

package topo

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/stretchr/testify/require"
)

// machine wires a mock server: links says, for a device and link, what is at its other end (-1: a switch, -2: nothing).
func machine(s *server.Server, lacks map[string]bool, links func(device, link int) (peer int, ok bool)) *reader {
	s.ExtensionsFunc = func() nvml.ExtendedInterface { return s }
	s.LookupSymbolFunc = func(name string) error {
		if lacks[name] {
			return errors.New("not there")
		}
		return nil
	}
	s.ShutdownFunc = func() nvml.Return { return nvml.SUCCESS }
	pci := func(i int) (info nvml.PciInfo) {
		fill(info.BusId[:], fmt.Sprintf("00000000:%02X:00.0", 0x10+i))
		return info
	}
	for i, d := range s.Devices {
		d := d.(*server.Device)
		d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
			return pci(i), nvml.SUCCESS
		}
		d.GetNumaNodeIdFunc = func() (int, nvml.Return) { return i / 4, nvml.SUCCESS }
		d.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
			peer, ok := links(i, link)
			if !ok {
				return 0, nvml.ERROR_INVALID_ARGUMENT
			}
			if peer == -2 {
				return nvml.FEATURE_DISABLED, nvml.SUCCESS
			}
			return nvml.FEATURE_ENABLED, nvml.SUCCESS
		}
		d.GetNvLinkVersionFunc = func(int) (uint32, nvml.Return) { return 4, nvml.SUCCESS }
		d.GetNvLinkRemoteDeviceTypeFunc = func(link int) (nvml.IntNvLinkDeviceType, nvml.Return) {
			if peer, _ := links(i, link); peer >= 0 {
				return nvml.NVLINK_DEVICE_TYPE_GPU, nvml.SUCCESS
			}
			return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
		}
		d.GetNvLinkRemotePciInfoFunc = func(link int) (nvml.PciInfo, nvml.Return) {
			peer, _ := links(i, link)
			return pci(peer), nvml.SUCCESS
		}
		d.GetFieldValuesFunc = func(v []nvml.FieldValue) nvml.Return {
			v[0].ValueType, v[0].Value = 1, [8]byte{0xa8, 0x61} // 25000 MB/s
			return nvml.SUCCESS
		}
		d.GetP2PStatusFunc = func(_ nvml.Device, cap nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
			if cap == nvml.P2P_CAPS_INDEX_ATOMICS {
				return nvml.P2P_STATUS_GPU_NOT_SUPPORTED, nvml.SUCCESS
			}
			return nvml.P2P_STATUS_OK, nvml.SUCCESS
		}
		d.GetTopologyCommonAncestorFunc = func(nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
			return nvml.TOPOLOGY_SYSTEM, nvml.SUCCESS
		}
	}
	return &reader{api: s, fabric: func(nvml.Device) string { return "registered, clique 0, status 0" }}
}

// fill writes s; a C char is signed on one architecture and not on the other.
func fill[T int8 | uint8](dst []T, s string) {
	for i := range s {
		dst[i] = T(s[i])
	}
}

func TestSwitchedMachine(t *testing.T) {
	r := machine(dgxh200.New(), nil, func(_, link int) (int, bool) { return -1, link < 18 })
	require.NoError(t, r.read())
	require.Len(t, r.GPUs, 8)
	require.Len(t, r.Pairs, 28)
	require.Equal(t, "550.54.15", r.Driver)
	require.Equal(t, "12.4", r.CUDA)
	require.Empty(t, r.Missing)
	g := r.GPUs[5]
	require.Equal(t, NVLinks{Active: 18, Version: 4, ToSwitch: 18, BytesPerSecond: 450e9}, g.NVLink)
	require.Equal(t, "9.0", g.Compute)
	require.Equal(t, "5: NVIDIA H200 141GB HBM3e, 00000000:15:00.0, 141.0 GiB, NUMA node 1, 18 NVLinks (18 to switches, 0 to GPUs), 450 GB/s, "+
		"fabric registered, clique 0, status 0", fmt.Sprintf("%v", g))
	require.Equal(t, "0-1: NVSwitch, 18 links, read OK, write OK, atomics GPU not supported", r.Pairs[0].String())
	raw, err := json.Marshal(r.Machine)
	require.NoError(t, err)
	var back Machine
	require.NoError(t, json.Unmarshal(raw, &back))
	require.Equal(t, r.Machine, back)
}

// Four links join 0 and 1, and 2 and 3; one of each GPU's is down.
func TestDirectLinks(t *testing.T) {
	r := machine(dgxa100.New(), nil, func(device, link int) (int, bool) {
		if link == 2 {
			return -2, true
		}
		return device ^ 1, link < 5
	})
	require.NoError(t, r.read())
	require.Equal(t, NVLinks{Active: 4, Version: 4, ToGPU: 4, BytesPerSecond: 100e9}, r.GPUs[0].NVLink)
	require.Equal(t, Pair{A: 0, B: 1, Links: 4, Path: "NVLink", Read: "OK", Write: "OK", Atomics: "GPU not supported"}, r.Pairs[0])
	require.Equal(t, Pair{A: 0, B: 2, Path: "SYS", Read: "OK", Write: "OK", Atomics: "GPU not supported"}, r.Pairs[1])
}

// On an old driver the functions that it lacks are never called: their mocks would panic.
func TestOldDriver(t *testing.T) {
	s := dgxa100.New()
	lacks := map[string]bool{}
	for name := range newer {
		lacks[name] = true
	}
	r := machine(s, lacks, func(_, link int) (int, bool) { return -1, link < 12 })
	s.SystemGetCudaDriverVersionFunc = nil
	r.fabric = nil
	for _, d := range s.Devices {
		d := d.(*server.Device)
		d.GetNumaNodeIdFunc, d.GetNvLinkRemoteDeviceTypeFunc, d.GetFieldValuesFunc = nil, nil, nil
	}
	require.NoError(t, r.read())
	require.Len(t, r.Missing, len(newer))
	require.Contains(t, r.Missing, "nvmlDeviceGetGpuFabricInfoV (driver 550)")
	require.Equal(t, -1, r.GPUs[0].NUMANode)
	require.Equal(t, 12, r.GPUs[0].NVLink.Active)
	require.Empty(t, r.GPUs[0].Fabric)
}

// When NVML does not start, nothing else is called.
func TestInitFails(t *testing.T) {
	s := dgxh200.New()
	s.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED }
	s.ExtensionsFunc, s.SystemGetDriverVersionFunc, s.DeviceGetCountFunc = nil, nil, nil
	err := (&reader{api: s}).read()
	require.ErrorIs(t, err, nvml.ERROR_DRIVER_NOT_LOADED)
}

func TestReadHere(t *testing.T) {
	m, err := Read()
	if err == nil {
		require.NotEmpty(t, m.Driver)
		t.Logf("%+v", m)
		return
	}
	require.ErrorContains(t, err, "topo: ")
	require.NotEmpty(t, m.Tried)
}

func ExampleGPU_String() {
	g := GPU{Name: "NVIDIA H200", PCIBusID: "00000000:19:00.0", MemoryBytes: 141 << 30, NVLink: NVLinks{Active: 18, ToSwitch: 18, BytesPerSecond: 450e9}}
	fmt.Println(g)
	// Output: 0: NVIDIA H200, 00000000:19:00.0, 141.0 GiB, NUMA node 0, 18 NVLinks (18 to switches, 0 to GPUs), 450 GB/s
}
