package nccltest_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftgo/weft/nccl"
	"github.com/weftgo/weft/nccl/nccltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The child opens the stand-ins with the variables and flags that it was given, and only the child.
func TestRun(t *testing.T) {
	for version, flags := range map[string][]string{"2.30.7": nil, "2.24.3": {"-DVERSION=22403"}} {
		t.Run(version, func(t *testing.T) {
			inside, output := nccltest.Run(t, []string{"WEFT_TEST_WORD=" + version}, flags...)
			if inside {
				l, err := nccl.Loaded()
				require.NoError(t, err)
				fmt.Println("it is", l.Version, "and the word is", os.Getenv("WEFT_TEST_WORD"))
				return
			}
			require.Contains(t, output, "it is "+version+" and the word is "+version)
		})
	}
}
