package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/weftgo/weft/examples/internal/deploy"
	"github.com/weftgo/weft/examples/internal/engine"
	"github.com/weftgo/weft/examples/internal/layout"
)

type completeCommand struct {
	Model   string        `help:"Model folder, with or without a tokenizer; the bundled model if empty." type:"path"`
	Layout  string        `help:"How the model is spread: tp1, tp8, tp8+ep8, dp2tp4+ep8, dp8, dp8+ep8:agrs, dp8+ep8:alltoall, with any sizes." default:"tp1"`
	Input   string        `help:"JSON lines of {ids, max_tokens, logprobs, echo}; - is standard input." default:"-"`
	Output  string        `help:"JSON lines of {ids, logprobs, top, echo}, in the order of the input; - is standard output." default:"-"`
	Timeout time.Duration `help:"The longest that a rank waits for another one." default:"60s"`
	Devices string        `help:"GPUs that run the collectives, one for each rank, such as cuda:0x8 or cuda:0-7; the model itself runs on the CPU. Empty: all on the CPU."`

	MaxBatchedTokens int `name:"max-num-batched-tokens" help:"Tokens of one step of all ranks together." default:"4096"`
}

// prompt is a line of the input.
type prompt struct {
	IDs       []int32 `json:"ids"`
	MaxTokens *int    `json:"max_tokens"` // 16 if absent; 0 scores the prompt (with echo)
	Logprobs  int     `json:"logprobs"`   // alternatives for each token, 0 to 20
	Echo      bool    `json:"echo"`

	line int // of the input
}

// completion is a line of the output. All log-probabilities are natural logarithms; -9999 stands for minus infinity.
type completion struct {
	IDs      []int32      `json:"ids"`      // the stop token included
	Logprobs []float32    `json:"logprobs"` // of ids
	Top      [][]idAndLog `json:"top"`      // for each of ids, best first
	Echo     []*float32   `json:"echo"`     // of the prompt's tokens, null first; null without echo
}

// idAndLog is written as [id, logprob].
type idAndLog struct {
	id      int32
	logprob float32
}

// MarshalJSON writes [id, logprob].
func (p idAndLog) MarshalJSON() ([]byte, error) { return json.Marshal([2]any{p.id, p.logprob}) }

// least stands for the logarithm of 0, which JSON has no number for.
const least = -9999

func finite(logprobs []float32) []float32 {
	for i, v := range logprobs {
		if v < least {
			logprobs[i] = least
		}
	}
	return logprobs
}

func (c *completeCommand) Run(ctx context.Context, s streams) error {
	l, err := layout.Parse(c.Layout)
	if err != nil {
		return err
	}
	prompts, err := c.read(s.in)
	if err != nil {
		return err
	}
	folder, err := openModel(c.Model)
	if err != nil {
		return err
	}
	defer folder.Close()
	longest, most := 1, folder.Config.MaxPositionEmbeddings
	for _, p := range prompts {
		if *p.MaxTokens > most-len(p.IDs) { // the sum might overflow: any int may stand in a file
			return fmt.Errorf("line %d: a prompt of %d tokens and max_tokens %d are more than the model's %d positions; %s",
				p.line, len(p.IDs), *p.MaxTokens, most, advice(most-len(p.IDs)))
		}
		longest = max(longest, len(p.IDs)+*p.MaxTokens)
	}
	d, err := deploy.Open(ctx, folder, deploy.Config{Layout: l, Timeout: c.Timeout, Devices: c.Devices, MaxBatchedTokens: c.MaxBatchedTokens,
		MaxModelLen: longest})
	if err != nil {
		return err
	}
	err = c.complete(ctx, d, prompts, s.out)
	return errors.Join(err, d.Close(ctx))
}

// advice says what fits where a prompt leaves room for so many tokens.
func advice(room int) string {
	if room < 0 {
		return "shorten the prompt"
	}
	return fmt.Sprintf("max_tokens can be %d at most", room)
}

// read reads all prompts; errors name the line.
func (c *completeCommand) read(in io.Reader) ([]prompt, error) {
	name := "standard input"
	if c.Input != "-" {
		f, err := os.Open(c.Input)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in, name = f, c.Input
	}
	var prompts []prompt
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		p := prompt{}
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&p); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w; a line is {\"ids\": [...], \"max_tokens\": 16, \"logprobs\": 0, \"echo\": false}", name, n, err)
		}
		if _, err := d.Token(); err != io.EOF {
			return nil, fmt.Errorf("%s: line %d: more than one JSON value", name, n)
		}
		if p.Logprobs < 0 || p.Logprobs > engine.MaxTopLogprobs {
			return nil, fmt.Errorf("%s: line %d: logprobs %d is not in [0, %d]", name, n, p.Logprobs, engine.MaxTopLogprobs)
		}
		if p.MaxTokens == nil {
			p.MaxTokens = new(16)
		}
		p.line = n
		prompts = append(prompts, p)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: after line %d: %w", name, len(prompts), err)
	}
	return prompts, nil
}

// complete submits all prompts and writes what comes, in order.
func (c *completeCommand) complete(ctx context.Context, d *deploy.Deployment, prompts []prompt, out io.Writer) error {
	handles := make([]*engine.Handle, len(prompts))
	for i, p := range prompts {
		var err error
		handles[i], err = d.Engine.Submit(ctx, engine.Request{IDs: p.IDs, MaxTokens: *p.MaxTokens, Logprobs: p.Logprobs, Echo: p.Echo})
		if err != nil {
			return fmt.Errorf("prompt %d: %w", i+1, err)
		}
	}
	write := func(w io.Writer) error {
		b := bufio.NewWriter(w)
		e := json.NewEncoder(b)
		for i, h := range handles {
			o, err := h.Wait(ctx)
			if err != nil {
				return fmt.Errorf("prompt %d: %w", i+1, err)
			}
			if err := e.Encode(newCompletion(o)); err != nil {
				return err
			}
		}
		return b.Flush()
	}
	if c.Output == "-" {
		return write(out)
	}
	return writeFile(c.Output, write)
}

func newCompletion(o engine.Output) completion {
	c := completion{IDs: o.IDs, Logprobs: finite(o.Logprobs), Top: make([][]idAndLog, len(o.Top))}
	if c.IDs == nil {
		c.IDs, c.Logprobs = []int32{}, []float32{}
	}
	for i, top := range o.Top {
		c.Top[i] = make([]idAndLog, len(top))
		for j, t := range top {
			c.Top[i][j] = idAndLog{t.ID, max(t.Logprob, least)}
		}
	}
	for i := range finite(o.Echo) {
		if i == 0 {
			c.Echo = append(c.Echo, nil)
			continue
		}
		c.Echo = append(c.Echo, &o.Echo[i])
	}
	return c
}
