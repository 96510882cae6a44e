package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/weftgo/weft/benchmarks/suite"
)

// table prints one operation as nccl-tests does.
type table struct {
	*session
	op     *suite.Operation
	wrong  int64
	sumBW  float64
	numBW  int
	spread bool // the columns of -I
}

func (s *session) newTable(op *suite.Operation) *table {
	return &table{session: s, op: op, spread: s.PerIter == 1}
}

func (t *table) printf(format string, args ...any) { fmt.Fprintf(t.screen, format, args...) }

func (t *table) comment(text string) { t.printf("# %s\n", text) }

// start prints the header.
func (t *table) start() {
	t.preamble()
	t.comment("Collective test starting: " + t.op.Name)
	t.titles()
}

// preamble prints versions, settings and ranks, once.
func (s *session) preamble() {
	if s.introduced {
		return
	}
	s.introduced = true
	p := func(format string, args ...any) {
		fmt.Fprintln(s.screen, strings.TrimRight("# "+fmt.Sprintf(format, args...), " "))
	}
	m := s.header.Machine
	step := fmt.Sprintf("%d(bytes)", s.StepBytes)
	if s.StepBytes == 0 {
		step = fmt.Sprintf("%v(factor)", cmp.Or(s.StepFactor, defaultFactor))
	}
	iters := fmt.Sprint(s.Iters)
	if s.Iters == 0 {
		iters = fmt.Sprintf("auto(%v)", s.Budget)
	}
	p("weft version %s, driver %s, %s", s.header.Weft, s.Driver, m.Go)
	p("nRanks %d minBytes %d maxBytes %d step: %s warmup iters: %d iters: %s agg iters: %d validation: %d graph: %d seed: %d",
		s.Ranks, s.MinBytes, s.MaxBytes, step, s.Warmup, iters, s.Agg, s.Check, s.Graph, s.Seed)
	p("%v", m)
	p("")
	p("Using devices")
	host, _ := os.Hostname()
	for r, c := range s.world.Local() {
		p(" Rank %2d Pid %6d on %10s device %v", r, os.Getpid(), host, c.Device())
	}
	p("")
}

// titles prints the column heads, in the widths of nccl-tests.
func (t *table) titles() {
	four := func(a, b, c, d string) string { return fmt.Sprintf("  %7s  %6s  %6s  %6s", a, b, c, d) }
	var names, units, heads string
	for _, form := range []string{"out-of-place", "in-place"} {
		width := len(four("", "", "", ""))
		extraNames, extraUnits := "", ""
		if t.spread {
			extraNames = fmt.Sprintf("  %8s %8s %8s %6s", "i_min", "i_max", "i_p99", "i_cv")
			extraUnits = fmt.Sprintf("  %8s %8s %8s %6s", "(us)", "(us)", "(us)", "(%)")
			width += len(extraNames)
		}
		pad := (width - len(form)) / 2
		heads += strings.Repeat(" ", pad) + form + strings.Repeat(" ", width-pad-len(form))
		names += four("time", "algbw", "busbw", "#wrong") + extraNames
		units += four("(us)", "(GB/s)", "(GB/s)", "") + extraUnits
	}
	left := "# %10s  %12s  %8s  %6s  %6s"
	t.printf("%s\n", strings.TrimRight(fmt.Sprintf(left, "", "", "", "", "")+heads, " "))
	t.printf("%s\n", fmt.Sprintf(left, "size", "count", "type", "redop", "root")+names)
	t.printf("%s\n", strings.TrimRight(fmt.Sprintf(left, "(B)", "(elements)", "", "", "")+units, " "))
}

// row prints the out-of-place and the in-place cell; nil is a form that the operation does not have.
func (t *table) row(s suite.Setup, cells [2]*suite.Result) {
	redop, root := "none", -1
	if s.Op.Reduces {
		redop = s.Redop.String()
	}
	if s.Op.Rooted {
		root = s.Root
	}
	any := cells[0]
	if any == nil {
		any = cells[1]
	}
	line := fmt.Sprintf("%12d  %12d  %8s  %6s  %6d", any.Size, any.Count, typeName(s), redop, root)
	for _, c := range cells {
		line += t.cell(c)
	}
	if t.Timestamps == 1 {
		line += "  " + time.Now().Format("2006-01-02 15:04:05")
	}
	t.printf("%s\n", line)
}

func typeName(s suite.Setup) string {
	if s.Op.Name == "barrier" {
		return "none"
	}
	names := map[string]string{"f32": "float", "f16": "half", "bf16": "bfloat16", "i8": "int8", "u8": "uint8", "i32": "int32", "i64": "int64"}
	if name, ok := names[s.Type.String()]; ok {
		return name
	}
	return s.Type.String()
}

// cell prints the columns of one form and adds it to the footer.
func (t *table) cell(c *suite.Result) string {
	if c == nil {
		line := fmt.Sprintf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A")
		if t.spread {
			line += fmt.Sprintf("  %8s %8s %8s %6s", "N/A", "N/A", "N/A", "N/A")
		}
		return line
	}
	wrong := "N/A"
	if c.Wrong >= 0 {
		wrong = fmt.Sprint(c.Wrong)
		t.wrong += c.Wrong
	}
	if t.op.Name != "barrier" {
		t.sumBW, t.numBW = t.sumBW+c.BusBW, t.numBW+1
	}
	line := fmt.Sprintf("  %7s  %6.2f  %6.2f  %6s", micros(c.TimeUs), c.AlgBW, c.BusBW, wrong)
	if t.spread {
		s := c.Times.Spread(t.PerIterSkip)
		line += fmt.Sprintf("  %8s %8s %8s %6.1f", micros(s.Min), micros(s.Max), micros(s.P99), s.CV)
	}
	return line
}

// micros prints a time in at most seven characters up to 10 s, as nccl-tests does.
func micros(us float64) string {
	switch {
	case us >= 10000:
		return fmt.Sprintf("%.0f", us)
	case us >= 100:
		return fmt.Sprintf("%.1f", us)
	}
	return fmt.Sprintf("%.2f", us)
}

// finish prints the footer and reports whether data and bandwidth are as they must be.
func (t *table) finish(minBW float64) bool {
	verdict := "OK"
	if t.wrong > 0 {
		verdict = "FAILED"
	}
	t.printf("# Out of bounds values : %d %s\n", t.wrong, verdict)
	ok := t.wrong == 0
	if t.numBW > 0 {
		average, bound := t.sumBW/float64(t.numBW), ""
		if minBW > 0 {
			bound = " OK"
			if average < 0.9*minBW {
				bound, ok = fmt.Sprintf(" FAILED: below 0.9 of NCCL_TESTS_MIN_BW %v", minBW), false
			}
		}
		t.printf("# Avg bus bandwidth    : %.6g%s\n", average, bound)
	}
	t.printf("#\n# Collective test concluded: %s\n\n", t.op.Name)
	return ok
}
