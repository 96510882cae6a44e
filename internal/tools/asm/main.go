// Command asm writes the assembly of internal/gemm and internal/simd with avo. Run it through `go generate` there:
//
//	go -C ../tools run ./asm -kind gemm -out ../gemm/kernels_amd64.s -stubs ../gemm/kernels_amd64.go -pkg gemm
package main

import (
	"flag"
	"log"

	"github.com/mmcloughlin/avo/build"
)

func main() {
	kind := flag.String("kind", "", "what to generate: gemm, simd or sums")
	flag.Parse()
	switch *kind {
	case "gemm":
		generateGemm()
	case "simd":
		generateSIMD()
	case "sums":
		generateSums()
	default:
		log.Fatalf("asm: -kind %q: want gemm, simd or sums", *kind)
	}
	build.Generate()
}
