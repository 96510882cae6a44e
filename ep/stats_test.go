package ep

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStatsSub sets every counter, so that one that Sub forgets is found.
func TestStatsSub(t *testing.T) {
	var before, after Stats
	for i := range reflect.TypeFor[Stats]().NumField() {
		if f := reflect.ValueOf(&after).Elem().Field(i); f.Kind() == reflect.Int64 {
			f.SetInt(int64(100 + i))
			reflect.ValueOf(&before).Elem().Field(i).SetInt(int64(i))
		}
	}
	after.ExpertTokens, before.ExpertTokens = []int64{9, 8, 7}, []int64{1, 0, 7}
	got := after.Sub(before)
	require.Equal(t, []int64{8, 8, 0}, got.ExpertTokens)
	require.Equal(t, []int64{9, 8, 7}, after.ExpertTokens, "the snapshot is left alone")
	for i := range reflect.TypeFor[Stats]().NumField() {
		name := reflect.TypeFor[Stats]().Field(i).Name
		if f := reflect.ValueOf(got).Field(i); f.Kind() == reflect.Int64 && name != "HeldBytes" {
			require.EqualValues(t, 100, f.Int(), name)
		}
	}
	require.Equal(t, after.HeldBytes, got.HeldBytes)
	require.Equal(t, after, after.Sub(Stats{}), "since the beginning")
}
