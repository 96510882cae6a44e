package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weftgo/weft/cmd/weft/internal/launch"
)

// launchCommand is weft launch.
type launchCommand struct {
	PerNode     int           `name:"nproc" short:"n" default:"1" help:"Processes on this node; on all nodes the same."`
	Nodes       int           `name:"nnodes" default:"1" help:"Nodes of the job; start one launcher on each."`
	Node        int           `name:"node-rank" default:"0" help:"Number of this node."`
	Store       string        `name:"rdzv" placeholder:"HOST:PORT" help:"Where the launcher of node 0 serves the store of the job; the next port is torch's. With one node a free port."`
	Token       string        `env:"WEFT_TOKEN" help:"What the processes share: better in the environment, where others do not see it. With one node a random one."`
	Grace       time.Duration `default:"5s" help:"How long the other ranks may go on after one has died, and again after SIGTERM."`
	JoinTimeout time.Duration `default:"5m" help:"How long the launchers of several nodes wait for each other."`
	MaxRestarts int           `default:"0" help:"Only 0: a job whose rank died ends."`
	NoPrefix    bool          `help:"Do not begin each line of output with its rank."`
	Command     []string      `arg:"" optional:"" passthrough:"" help:"Program and its arguments, after --."`
}

// exitStatus is an error that has been told already: only the exit status is left.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// Run executes the command.
func (l *launchCommand) Run(w io.Writer) error {
	if l.MaxRestarts != 0 {
		return errors.New("--max-restarts: only 0; a scheduler restarts whole jobs")
	}
	command := l.Command
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	code, err := launch.Run(context.Background(), launch.Config{Command: command, PerNode: l.PerNode, Nodes: l.Nodes, Node: l.Node,
		Store: l.Store, Token: l.Token, Grace: l.Grace, JoinTimeout: l.JoinTimeout, NoPrefix: l.NoPrefix, Stdout: w, Stderr: os.Stderr}, signals)
	if err != nil {
		return err
	}
	if code != 0 {
		return exitStatus(code)
	}
	return nil
}
