package nvrtc

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// Program is what there is to compile.
type Program struct {
	Name    string   // the file's name in messages: all_reduce.cu
	Source  string   // CUDA C++
	Headers []Header // what #include finds, beside the source
	Options []string // such as --fmad=false; the architecture and --std=c++17 come before them
	Arch    string   // sm_90a, as cuda.Info.Arch says; PTX for compute_90a
}

// Header is a file that the source includes by name.
type Header struct{ Name, Text string }

// options returns everything that the compiler is given.
func (p Program) options() []string {
	return append([]string{"--gpu-architecture=" + p.Arch, "--std=c++17"}, p.Options...)
}

// validate finds what would give the compiler a text other than the one meant.
func (p Program) validate() error {
	if p.Arch == "" || p.Source == "" || p.Name == "" {
		return fmt.Errorf("a program needs a name, a source and an architecture, not %q, %d bytes, %q", p.Name, len(p.Source), p.Arch)
	}
	texts := append([]string{p.Name, p.Source}, p.options()...)
	for _, h := range p.Headers {
		texts = append(texts, h.Name, h.Text)
	}
	for _, s := range texts {
		if strings.IndexByte(s, 0) >= 0 {
			return fmt.Errorf("%s: a text of %d bytes has a NUL in it", p.Name, len(s))
		}
	}
	return nil
}

// key names the result of compiling p with a version of NVRTC: equal keys mean equal machine code.
func (p Program) key(version string) string {
	h := sha256.New()
	add := func(s string) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:]) // lengths first, so that no two lists of texts look alike
		h.Write([]byte(s))
	}
	add(version)
	add(p.Name)
	add(p.Source)
	for _, hd := range p.Headers {
		add(hd.Name)
		add(hd.Text)
	}
	add("options")
	for _, o := range p.options() {
		add(o)
	}
	return p.Arch + "-" + hex.EncodeToString(h.Sum(nil)[:16])
}
