package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rank r's token goes to expert r with weight 1/4 and to expert 7 with 3/4; expert e adds 100 e.
func Example() {
	main()
	// Output: [525 551 577 603]
}

// The README shows this program, whole, with what it prints.
func TestReadme(t *testing.T) {
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)
	_, program, ok := strings.Cut(string(source), "\npackage main\n")
	require.True(t, ok)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\npackage main\n"+program+"```")
	require.Contains(t, string(readme), "[525 551 577 603]")
}
