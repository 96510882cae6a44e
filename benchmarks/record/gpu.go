package record

import (
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
)

// SeeGPUs adds the GPUs of a world's ranks, each once, and returns the bytes of memory where the ranks' buffers live: the
// GPUs', or the machine's for a world on the CPU (0 where that is not known).
func (m *Machine) SeeGPUs(w *comm.World) (memory int64, err error) {
	seen := map[int]bool{}
	for _, c := range w.Local() {
		dev := c.Device()
		if dev.Kind == comm.CPU {
			return int64(m.MemoryGiB * (1 << 30)), nil
		}
		if seen[dev.Index] {
			continue
		}
		seen[dev.Index] = true
		d, err := cuda.Open(dev.Index)
		if err != nil {
			return 0, err
		}
		info := d.Info()
		m.GPUs = append(m.GPUs, fmt.Sprintf("%s, %d SMs, %.0f GiB", info.Name, info.SMs, float64(info.MemoryBytes)/(1<<30)))
		memory += int64(info.MemoryBytes)
		if err := d.Close(); err != nil {
			return 0, err
		}
	}
	version, err := cuda.Version()
	if err != nil {
		return 0, err
	}
	m.CUDA = fmt.Sprint(version)
	return memory, nil
}
