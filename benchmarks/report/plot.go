package main

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Size of a plot.
const (
	plotWidth  = 15 * vg.Centimeter
	plotHeight = 9.5 * vg.Centimeter
)

// palette is Okabe and Ito's, which colour-blind people can tell apart.
var palette = []color.RGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {230, 159, 0, 255}, {86, 180, 233, 255}, {0, 0, 0, 255},
}

// view is what a plot shows of a chart.
type view struct {
	name  string // in the file's name
	label string // of the y axis
	log   bool
	value func(p point) float64
}

// views lists the plots of a chart: none for an operation without sizes.
func (c chart) views() []view {
	if xs := c.xs(); xs[len(xs)-1] == 0 {
		return nil
	}
	time := view{"time", "time", true, func(p point) float64 { return p.timeUs }}
	bw := view{"busbw", "bus bandwidth (GB/s)", false, func(p point) float64 { return p.busBW }}
	if c.byTok {
		time.label, bw.label = "time, p50", "bytes to other ranks (GB/s)"
	}
	return []view{time, bw}
}

// draw makes the plot of one view.
func (c chart) draw(v view) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s  (%s)", c.title, c.detail)
	p.X.Label.Text, p.Y.Label.Text = "size (bytes)", v.label
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.ConstantTicks(sizeTicks(c.xs()))
	if c.byTok {
		p.X.Label.Text, p.X.Tick.Marker = "tokens of each rank", plot.ConstantTicks(tokenTicks(c.xs()))
	}
	p.Y.Min = 0
	if v.log {
		p.Y.Scale = plot.LogScale{}
	}
	style(p)
	low, high := math.Inf(1), 0.0
	p.Add(&plotter.Grid{Vertical: gridLine, Horizontal: gridLine})
	for _, s := range c.series {
		var xys plotter.XYs
		for _, pt := range s.points {
			if y := v.value(pt); pt.x > 0 && (y > 0 || !v.log) {
				xys = append(xys, plotter.XY{X: float64(pt.x), Y: y})
				low, high = min(low, y), max(high, y)
			}
		}
		if len(xys) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(xys)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = palette[s.color%len(palette)], vg.Points(1.6)
		dots.Color, dots.Radius, dots.Shape = line.Color, vg.Points(2.2), draw.CircleGlyph{}
		if s.dashed {
			line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		}
		p.Add(line, dots)
		p.Legend.Add(s.name, line, dots)
	}
	p.X.Max *= math.Pow(p.X.Max/p.X.Min, 0.03) // room for the last label
	if !v.log {
		p.Y.Max = high * 1.12
		p.Y.Tick.Marker = plot.ConstantTicks(evenTicks(p.Y.Max))
		return p, nil
	}
	p.Y.Min, p.Y.Max = decade(low, math.Floor), decade(high, math.Ceil)
	if c.crowdsLegend(v, p.Y.Min, p.Y.Max) {
		p.Y.Max *= 10
	}
	p.Y.Tick.Marker = plot.ConstantTicks(timeTicks(p.Y.Min, p.Y.Max))
	return p, nil
}

// crowdsLegend reports whether a line runs through the upper left of a logarithmic plot, where the legend is.
func (c chart) crowdsLegend(v view, low, high float64) bool {
	xs := c.xs()
	left := xs[(len(xs)-1)/2]
	limit := math.Pow(10, math.Log10(low)+0.7*math.Log10(high/low))
	for _, s := range c.series {
		for _, pt := range s.points {
			if pt.x <= left && v.value(pt) > limit {
				return true
			}
		}
	}
	return false
}

var gridLine = draw.LineStyle{Color: color.Gray{225}, Width: vg.Points(0.6)}

// style sets fonts and margins.
func style(p *plot.Plot) {
	sans := func(size float64) font.Font {
		return font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(size)}
	}
	p.Title.TextStyle.Font, p.Title.Padding = sans(11), vg.Points(8)
	p.X.Label.TextStyle.Font, p.Y.Label.TextStyle.Font = sans(10), sans(10)
	p.X.Tick.Label.Font, p.Y.Tick.Label.Font = sans(9), sans(9)
	p.Legend.TextStyle.Font = sans(9)
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(8), vg.Points(-4)
	p.Legend.Padding, p.Legend.ThumbnailWidth = vg.Points(2), vg.Points(22)
	p.X.Padding, p.Y.Padding = vg.Points(4), vg.Points(4)
	p.Y.Label.Padding = vg.Points(4)
}

// decade rounds to a power of ten.
func decade(v float64, round func(float64) float64) float64 {
	return math.Pow(10, round(math.Log10(v)))
}

// timeTicks marks every decade between low and high, with minor ticks.
func timeTicks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for d := low; d <= high*1.01; d *= 10 {
		ticks = append(ticks, plot.Tick{Value: d, Label: duration(d) + " "})
		for i := 2.0; i < 10 && d < high*0.99; i++ {
			ticks = append(ticks, plot.Tick{Value: i * d})
		}
	}
	return ticks
}

// evenTicks marks multiples of 1, 2 or 5 times a power of ten from zero on, four to nine of them.
func evenTicks(high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10(max(high, 1e-9)/4)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if high/(step*factor) < 9 {
			step *= factor
			break
		}
	}
	var ticks []plot.Tick
	for i := 0; float64(i)*step <= high; i++ {
		ticks = append(ticks, plot.Tick{Value: float64(i) * step, Label: fmt.Sprintf("%.4g ", float64(i)*step)})
	}
	return ticks
}

// duration prints microseconds with a unit.
func duration(us float64) string {
	switch {
	case us < 0.999:
		return fmt.Sprintf("%.3g ns", us*1e3)
	case us < 999:
		return fmt.Sprintf("%.3g µs", us)
	case us < 999e3:
		return fmt.Sprintf("%.3g ms", us/1e3)
	}
	return fmt.Sprintf("%.3g s", us/1e6)
}

// sizeTicks marks the sizes that were measured, as many as there is room for.
func sizeTicks(xs []int64) []plot.Tick {
	return ticks(xs, func(x int64) string {
		for _, u := range []struct {
			n    int64
			name string
		}{{1 << 30, "G"}, {1 << 20, "M"}, {1 << 10, "K"}} {
			if x >= u.n {
				return fmt.Sprintf("%.3g%s", float64(x)/float64(u.n), u.name)
			}
		}
		return fmt.Sprint(x)
	})
}

func tokenTicks(xs []int64) []plot.Tick {
	return ticks(xs, func(x int64) string { return fmt.Sprint(x) })
}

func ticks(xs []int64, label func(int64) string) []plot.Tick {
	const room = 14
	step := (len(xs) + room - 1) / room
	var out []plot.Tick
	for i, x := range xs {
		if x <= 0 {
			continue
		}
		t := plot.Tick{Value: float64(x)}
		if i%step == 0 {
			t.Label = label(x)
		}
		out = append(out, t)
	}
	return out
}

// render draws a plot in a format, with a margin that keeps labels off the edge.
func render(p *plot.Plot, format string) io.WriterTo {
	var canvas vg.CanvasWriterTo = vgsvg.New(plotWidth, plotHeight)
	if format == "png" {
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(plotWidth, plotHeight), vgimg.UseDPI(144))}
	}
	p.Draw(draw.Crop(draw.New(canvas), vg.Points(6), vg.Points(-14), vg.Points(5), vg.Points(-6)))
	return canvas
}

// svg renders a view for the page.
func (c chart) svg(v view) ([]byte, error) {
	p, err := c.draw(v)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	_, err = render(p, "svg").WriteTo(&out)
	return out.Bytes(), err
}

// savePlots writes every view of every chart in every format.
func savePlots(dir string, formats []string, charts []chart) error {
	for _, c := range charts {
		for _, v := range c.views() {
			p, err := c.draw(v)
			if err != nil {
				return fmt.Errorf("%s: %w", c.title, err)
			}
			for _, format := range formats {
				if err := save(p, filepath.Join(dir, c.file+"."+v.name+"."+format), format); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func save(p *plot.Plot, path, format string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = render(p, format).WriteTo(f)
	return errors.Join(err, f.Close())
}
