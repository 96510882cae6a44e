package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
)

func TestInitWithoutDriver(t *testing.T) {
	err := Init()
	if err == nil {
		t.Skip("there is a driver here")
	}
	t.Log(err)
	require.ErrorIs(t, err, comm.Unavailable)
}
