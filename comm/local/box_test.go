package local

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// A line that holds words of two ranks would go back and forth between them.
func TestBoxesBeginAtCacheLines(t *testing.T) {
	m := newMeeting([]int{0, 1, 2}, time.Second, &life{})
	for i := range m.seats {
		for turn := range m.boxes {
			require.Zero(t, uintptr(unsafe.Pointer(m.boxes[turn][i]))%lineBytes)
		}
		require.Zero(t, uintptr(unsafe.Pointer(m.done[i]))%lineBytes)
		require.Zero(t, uintptr(unsafe.Pointer(m.away[i]))%lineBytes)
	}
	require.Zero(t, unsafe.Sizeof(box{})%lineBytes)
	require.EqualValues(t, lineBytes, unsafe.Offsetof(box{}.payload)+24, "a short payload is in the first line")
}
