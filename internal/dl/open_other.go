//go:build !(linux && cgo)

package dl

import (
	"errors"
	"runtime"
)

func open(string) (handle uintptr, real string, err error) {
	if runtime.GOOS != "linux" {
		return 0, "", errors.New("weft opens GPU libraries on Linux only, this is " + runtime.GOOS)
	}
	return 0, "", errors.New("this program was built with CGO_ENABLED=0; rebuild it with cgo and a C compiler")
}

// Lookup finds nothing: no library can be open here.
func (l *Library) Lookup(string) uintptr { return 0 }
