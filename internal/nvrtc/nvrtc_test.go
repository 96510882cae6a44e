package nvrtc

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/internal/gputest"
)

const add = `
#include "size.h"
extern "C" __global__ void add(float *out, const float *a, const float *b, size n) {
	size i = blockIdx.x * size(blockDim.x) + threadIdx.x;
	if (i < n) out[i] = __fadd_rn(a[i], b[i]);
}`

func program(arch string) Program {
	return Program{Name: "add.cu", Source: add, Headers: []Header{{"size.h", "typedef unsigned long long size;\n"}}, Arch: arch}
}

func library(t testing.TB) {
	t.Helper()
	gputest.Library(t, Init())
}

// nvidia skips with the stand-in of internal/emulator, which makes no machine code and has messages of its own.
func nvidia(t testing.TB) {
	t.Helper()
	library(t)
	if loaded.lib.Lookup("weftEmulatedNVRTC") != 0 {
		t.Skip("this test needs NVIDIA's libnvrtc, there is the emulator's")
	}
}

func TestCompile(t *testing.T) {
	nvidia(t)
	for _, arch := range []string{"sm_80", "sm_90a", "sm_100a"} {
		image, err := Compile(program(arch))
		require.NoError(t, err)
		require.Equal(t, "\x7fELF", string(image[:4]), arch)
		require.True(t, bytes.Contains(image, []byte(".text.add\x00")), "%s: the cubin has the kernel's section", arch)
	}
	text, err := Compile(program("compute_90a"))
	require.NoError(t, err)
	require.Contains(t, string(text), ".target sm_90a")
}

func TestCompileErrors(t *testing.T) {
	nvidia(t)
	p := program("sm_90a")
	p.Source = "extern \"C\" __global__ void k() { undeclared = 1; }"
	_, err := Compile(p)
	require.ErrorIs(t, err, comm.Invalid)
	require.ErrorContains(t, err, `add.cu(1): error: identifier "undeclared" is undefined`)
	_, err = Compile(program("sm_12345"))
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorContains(t, err, "sm_12345")
	_, err = Compile(Program{Name: "x.cu", Arch: "sm_80"})
	require.ErrorIs(t, err, comm.Invalid)
	p.Source = "\x00"
	_, err = Compile(p)
	require.ErrorContains(t, err, "NUL")
	l, err := Loaded()
	require.NoError(t, err)
	require.Contains(t, l.Archs, 90)
	require.FileExists(t, l.Path)
}

func TestCacheRebuildsBrokenFiles(t *testing.T) {
	library(t)
	c := &Cache{Dir: t.TempDir()}
	want, hit, err := c.Cubin(program("sm_90a"))
	require.NoError(t, err)
	require.False(t, hit)
	files, err := filepath.Glob(filepath.Join(c.Dir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Contains(t, filepath.Base(files[0]), "sm_90a-")
	good, err := os.ReadFile(files[0])
	require.NoError(t, err)
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	for name, content := range map[string][]byte{"flipped": flipped, "cut": good[:len(good)-1], "empty": {}, "longer": append(bytes.Clone(good), 0)} {
		require.NoError(t, os.WriteFile(files[0], content, 0o644))
		image, hit, err := c.Cubin(program("sm_90a"))
		require.NoError(t, err, name)
		require.False(t, hit, name)
		require.Equal(t, want, image, name)
		now, err := os.ReadFile(files[0])
		require.NoError(t, err)
		require.Equal(t, good, now, name)
	}
	image, hit, err := c.Cubin(program("sm_90a"))
	require.NoError(t, err)
	require.True(t, hit)
	require.Equal(t, want, image)
}

func TestCacheWithoutFolder(t *testing.T) {
	library(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	for _, dir := range []string{"", filepath.Join(file, "below")} {
		c := &Cache{Dir: dir}
		image, hit, err := c.Cubin(program("sm_90a"))
		require.NoError(t, err)
		require.False(t, hit)
		require.NotEmpty(t, image)
	}
}

func TestCacheConcurrent(t *testing.T) {
	library(t)
	dir := t.TempDir()
	if os.Getenv("WEFT_CACHE_DIR") != "" && os.Getenv("NVRTC_CHILD") == "1" {
		_, err := Cubin(program("sm_90a"))
		require.NoError(t, err)
		return
	}
	var children sync.WaitGroup
	for range 2 { // processes
		children.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run", "^TestCacheConcurrent$")
			cmd.Env = append(os.Environ(), "NVRTC_CHILD=1", "WEFT_CACHE_DIR="+dir)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("child: %v\n%s", err, out)
			}
		})
	}
	t.Setenv("WEFT_CACHE_DIR", dir)
	images := make([][]byte, 8)
	for i := range images { // goroutines
		children.Go(func() {
			var err error
			if images[i], err = Cubin(program("sm_90a")); err != nil {
				t.Error(err)
			}
		})
	}
	children.Wait()
	for _, image := range images {
		require.Equal(t, images[0], image)
	}
	files, err := filepath.Glob(filepath.Join(dir, "nvrtc", "*"))
	require.NoError(t, err)
	require.Len(t, files, 1, "one entry, no temporary file left")
	hidden, err := filepath.Glob(filepath.Join(dir, "nvrtc", ".tmp*"))
	require.NoError(t, err)
	require.Empty(t, hidden)
}

// Every part of a program is part of its key, and no two lists of texts are taken for one another.
func TestKey(t *testing.T) {
	text := rapid.StringMatching(`[ab]{0,3}`)
	draw := rapid.Custom(func(t *rapid.T) Program {
		p := Program{Name: text.Draw(t, "name"), Source: text.Draw(t, "source"), Arch: rapid.SampledFrom([]string{"sm_80", "sm_90a"}).Draw(t, "arch")}
		for range rapid.IntRange(0, 2).Draw(t, "headers") {
			p.Headers = append(p.Headers, Header{text.Draw(t, "header"), text.Draw(t, "text")})
		}
		p.Options = rapid.SliceOfN(text, 0, 2).Draw(t, "options")
		return p
	})
	flat := func(p Program) string {
		var b strings.Builder
		for _, s := range append([]string{p.Name, p.Source, p.Arch, "|"}, p.Options...) {
			b.WriteString(s + ",")
		}
		for _, h := range p.Headers {
			b.WriteString("#" + h.Name + "," + h.Text + ",")
		}
		return b.String()
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		require.Equal(t, flat(a) == flat(b), a.key("13.0") == b.key("13.0"))
		require.NotEqual(t, a.key("13.0"), a.key("12.9"))
	})
}

func FuzzUnwrap(f *testing.F) {
	f.Add([]byte(magic))
	f.Add(wrap([]byte("code")))
	f.Fuzz(func(t *testing.T, b []byte) {
		image, err := unwrap(b)
		if err == nil {
			require.Equal(t, b, wrap(image))
		}
		back, err := unwrap(wrap(append(b, 1)))
		require.NoError(t, err)
		require.Equal(t, append(b, 1), back)
	})
}

// Every row of the table, the optional ones too, is in the real library.
func TestSymbols(t *testing.T) {
	library(t)
	require.Len(t, Symbols(), 13)
	for _, row := range Symbols() {
		require.NotZero(t, loaded.lib.Lookup(row.Name), row.Name)
	}
}

func TestUnavailable(t *testing.T) {
	if Init() == nil {
		t.Skip("there is a libnvrtc here")
	}
	_, err := Cubin(program("sm_90a"))
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorContains(t, err, "WEFT_NVRTC_LIB")
}
