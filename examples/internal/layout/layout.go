package layout

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/weftgo/weft/moe"
)

// Layout is a parsed name.
type Layout struct {
	moe.Parallel
	Backend string // "agrs" or "alltoall" where the layout exchanges tokens; else empty
}

var pattern = regexp.MustCompile(`^(?:dp([0-9]+))?(?:tp([0-9]+))?(?:\+ep([0-9]+))?(?::([a-z]+))?$`)

// maxRanks is what one process drives.
const maxRanks = 64

// Parse reads a name such as "dp2tp4+ep8:agrs". The number after ep must be the number of ranks, because expert
// parallelism spreads over all of them. Where tokens are exchanged and no backend is named, it is agrs.
func Parse(name string) (Layout, error) {
	m := pattern.FindStringSubmatch(name)
	if m == nil || m[1] == "" && m[2] == "" {
		return Layout{}, fmt.Errorf("layout %q: write it like tp8, tp8+ep8, dp2tp4+ep8, dp8 or dp8+ep8:alltoall", name)
	}
	number := func(s string) int {
		if s == "" {
			return 1
		}
		n, err := strconv.Atoi(s)
		if err != nil {
			return maxRanks + 1
		}
		return n
	}
	l := Layout{Parallel: moe.Parallel{DP: number(m[1]), TP: number(m[2]), EP: m[3] != ""}, Backend: m[4]}
	if l.DP < 1 || l.TP < 1 || l.DP > maxRanks || l.TP > maxRanks || l.Size() > maxRanks {
		return Layout{}, fmt.Errorf("layout %q: %s x %s ranks; use 1 to %d", name, or1(m[1]), or1(m[2]), maxRanks)
	}
	if l.EP && number(m[3]) != l.Size() {
		return Layout{}, fmt.Errorf("layout %q: ep%s, but experts are spread over all %d ranks: write +ep%d", name, m[3], l.Size(), l.Size())
	}
	switch {
	case !l.UseExchange() && l.Backend != "":
		return Layout{}, fmt.Errorf("layout %q: nothing is exchanged without dp > 1 and ep, so %q has no use", name, l.Backend)
	case l.UseExchange() && l.Backend == "":
		l.Backend = "agrs"
	case l.Backend != "" && l.Backend != "agrs" && l.Backend != "alltoall":
		return Layout{}, fmt.Errorf("layout %q: unknown backend %q; use agrs or alltoall", name, l.Backend)
	}
	return l, nil
}

func or1(s string) string {
	if s == "" {
		return "1"
	}
	return s
}

// String returns the name that Parse reads, with the backend where there is one.
func (l Layout) String() string {
	var b strings.Builder
	if l.DP > 1 {
		fmt.Fprintf(&b, "dp%d", l.DP)
	}
	if l.TP > 1 || l.DP == 1 {
		fmt.Fprintf(&b, "tp%d", l.TP)
	}
	if l.EP {
		fmt.Fprintf(&b, "+ep%d", l.Size())
	}
	if l.Backend != "" {
		b.WriteString(":" + l.Backend)
	}
	return b.String()
}
