package record

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// Machine is where a run happened, without anything that names its owner.
type Machine struct {
	OS        string  `json:"os"`
	Arch      string  `json:"arch"`
	Go        string  `json:"go"`
	CPU       string  `json:"cpu"`
	NumCPU    int     `json:"num_cpu"`
	MaxProcs  int     `json:"gomaxprocs"`
	Vectors   string  `json:"vectors,omitempty"` // avx2, avx512f
	L3        string  `json:"l3,omitempty"`
	MemoryGiB float64 `json:"memory_gib,omitempty"`
	Load1     float64 `json:"load1"` // load average at the start: above the ranks' own share, neighbours are busy
	Kernel    string  `json:"kernel,omitempty"`
	Level     string  `json:"weft_simd,omitempty"` // WEFT_SIMD when set

	GPUs []string `json:"gpus,omitempty"` // that the ranks use
	CUDA string   `json:"cuda,omitempty"` // what the driver offers
}

// String describes the machine in a line.
func (m Machine) String() string {
	s := fmt.Sprintf("%s, %d CPUs", m.CPU, m.NumCPU)
	for _, part := range []string{m.Vectors, m.L3} {
		if part != "" {
			s += ", " + part
		}
	}
	if m.MemoryGiB > 0 {
		s += fmt.Sprintf(", %.0f GiB", m.MemoryGiB)
	}
	if len(m.GPUs) > 0 {
		s += fmt.Sprintf(", %d x %s, CUDA %s", len(m.GPUs), m.GPUs[0], m.CUDA)
	}
	return fmt.Sprintf("%s, %s/%s, %s, load %.1f", s, m.OS, m.Arch, m.Go, m.Load1)
}

// ThisMachine looks around. What a system does not tell stays empty.
func ThisMachine() Machine {
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(), NumCPU: runtime.NumCPU(),
		MaxProcs: runtime.GOMAXPROCS(0), CPU: runtime.GOARCH, Level: os.Getenv("WEFT_SIMD")}
	info := fields("/proc/cpuinfo")
	if name := info["model name"]; name != "" {
		m.CPU = name
	}
	for _, flag := range []string{"avx2", "avx512f"} {
		if strings.Contains(" "+info["flags"]+" ", " "+flag+" ") {
			m.Vectors = strings.TrimSpace(m.Vectors + " " + flag)
		}
	}
	if l3 := line("/sys/devices/system/cpu/cpu0/cache/index3/size"); l3 != "" {
		m.L3 = "L3 " + l3
	}
	if kib, err := strconv.ParseFloat(strings.TrimSuffix(fields("/proc/meminfo")["MemTotal"], " kB"), 64); err == nil {
		m.MemoryGiB = kib / (1 << 20)
	}
	m.Kernel = line("/proc/sys/kernel/osrelease")
	if load := strings.Fields(line("/proc/loadavg")); len(load) > 0 {
		m.Load1, _ = strconv.ParseFloat(load[0], 64)
	}
	return m
}

// Version names this build of weft: the module version, else the commit of the working folder, else "devel".
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		if v := info.Main.Version; v != "" && v != "(devel)" {
			return v
		}
	}
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "devel"
	}
	return "devel-" + strings.TrimSpace(string(out))
}

// Dirty reports whether a version is that of a working folder with changes that no commit has.
func Dirty(version string) bool { return strings.HasSuffix(version, "dirty") }

// fields reads "key : value" lines; the first value of a key counts.
func fields(path string) map[string]string {
	out := map[string]string{}
	f, err := os.Open(path)
	if err != nil {
		return out
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, ok := strings.Cut(lines.Text(), ":")
		if key = strings.TrimSpace(key); ok && out[key] == "" {
			out[key] = strings.TrimSpace(value)
		}
	}
	return out
}

// line reads the first line of a small file.
func line(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(first)
}
