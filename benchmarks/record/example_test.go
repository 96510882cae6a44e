package record_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/weftgo/weft/benchmarks/record"
)

// Writes a results file and reads it back.
func Example() {
	path := filepath.Join(os.TempDir(), "example.jsonl")
	defer os.Remove(path)
	w, err := record.Create(path, record.Header{Tool: "benchmarks", Weft: "v0.1.0"})
	if err != nil {
		panic(err)
	}
	if err := w.Write(record.Row{Op: "all_reduce", Size: 1024, Type: "f32", Driver: "local", Ranks: 2, TimeUs: 1.5}); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	run, err := record.ReadFile(path)
	if err != nil {
		panic(err)
	}
	fmt.Println(run.Header.Weft, run.Rows[0].Op, run.Rows[0].TimeUs)
	// Output: v0.1.0 all_reduce 1.5
}
