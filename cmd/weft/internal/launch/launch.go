package launch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/rendezvous"
)

// Config says what to start.
type Config struct {
	Command []string // program and arguments
	PerNode int      // processes on each node
	Nodes   int      // 0 means 1
	Node    int      // number of this node
	// Store is host:port of the store, which node 0's launcher serves; may be empty with one node.
	Store string
	// Token is what the processes share; may be empty with one node, which makes one.
	Token string
	// Grace is how long the others may go on by themselves after a rank died, and again after SIGTERM. 0 means 5 s.
	Grace          time.Duration
	JoinTimeout    time.Duration // how long the launchers wait for each other; 0 means 5 min
	NoPrefix       bool          // do not begin each line of output with its rank
	Stdout, Stderr io.Writer
	Env            []string // of the processes, to which ours are added; nil means this process's
}

// maxSize is the most processes of a job.
const maxSize = 4096

// size is the number of processes of the job.
func (c *Config) size() int { return c.PerNode * c.Nodes }

// Validate fills defaults and says what cannot be.
func (c *Config) Validate() error {
	if c.Nodes == 0 {
		c.Nodes = 1
	}
	if c.JoinTimeout <= 0 {
		c.JoinTimeout = 5 * time.Minute
	}
	if c.Grace == 0 {
		c.Grace = 5 * time.Second
	}
	switch {
	case len(c.Command) == 0:
		return errors.New("nothing to start: give a program after --, as in weft launch -n 2 -- program args")
	case c.PerNode < 1:
		return fmt.Errorf("-n %d: at least 1 process on each node", c.PerNode)
	case c.Nodes < 1:
		return fmt.Errorf("--nnodes %d: at least 1 node", c.Nodes)
	case c.PerNode > maxSize/c.Nodes:
		return fmt.Errorf("-n %d on each of %d nodes: a job has at most %d processes", c.PerNode, c.Nodes, maxSize)
	case c.Node < 0 || c.Node >= c.Nodes:
		return fmt.Errorf("--node-rank %d: nodes are 0 to %d", c.Node, c.Nodes-1)
	case c.Grace < 0:
		return fmt.Errorf("a grace of %v", c.Grace)
	case c.Nodes > 1 && (c.Store == "" || c.Token == ""):
		return fmt.Errorf("%d nodes need --rdzv host:port, which node 0 serves, and the same WEFT_TOKEN in the environment of all launchers", c.Nodes)
	}
	if _, port, err := net.SplitHostPort(c.Store); err == nil && port == "0" && c.Nodes > 1 {
		return fmt.Errorf("--rdzv %s: the launchers of %d nodes cannot know which port 0 becomes; name one", c.Store, c.Nodes)
	}
	return nil
}

// Run starts the processes and returns when all have ended: with 0 when all succeeded, else with the exit code of the rank that
// failed first (128 + the signal's number if one killed it), or 1 when only another node failed. The first of signals is passed
// on to all processes, the second kills them; so does the end of ctx. Errors are those of a job that could not begin.
func Run(ctx context.Context, cfg Config, signals <-chan os.Signal) (int, error) {
	if err := cfg.Validate(); err != nil {
		return 0, err
	}
	if err := supported(); err != nil {
		return 0, err
	}
	if cfg.Token == "" {
		cfg.Token = rand.Text()
	}
	h, err := interruptible(ctx, signals, func(ctx context.Context) (*hub, error) { return enter(ctx, &cfg) })
	if err != nil {
		return 0, err
	}
	defer func() { h.leave(ctx, signals) }()
	j := &job{cfg: cfg, hub: h, out: &output{stdout: cfg.Stdout, stderr: cfg.Stderr}, exits: make(chan *rank, cfg.PerNode)}
	env, err := environment(&cfg)
	if err == nil {
		err = j.start(env)
	}
	if err != nil { // or the other nodes would wait for ranks that never come
		h.blame(cfg.Node*cfg.PerNode, fmt.Errorf("the launcher of node %d could not start its processes: %w", cfg.Node, err))
		return 0, err
	}
	return j.wait(ctx, signals), nil
}

// interruptible calls fn with a context that the first of signals ends.
func interruptible(ctx context.Context, signals <-chan os.Signal, fn func(context.Context) (*hub, error)) (*hub, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case s := <-signals:
			cancel(fmt.Errorf("%v while waiting for other nodes", s))
		case <-ctx.Done():
		}
	})
	h, err := fn(ctx)
	cancel(nil)
	wg.Wait()
	return h, err
}

// environment returns the variables of all ranks of this node; the rank's own come later.
func environment(cfg *Config) ([]string, error) {
	env := cfg.Env
	if env == nil {
		env = os.Environ()
	}
	host, port, err := net.SplitHostPort(cfg.Store)
	if err != nil {
		return nil, err
	}
	master, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("--rdzv %s: %w", cfg.Store, err)
	}
	master++ // for programs that use torch: its store is rank 0's
	if cfg.Nodes == 1 {
		if master, err = freePort(host); err != nil {
			return nil, err
		}
	}
	return append(append([]string{}, env...),
		"WEFT_SIZE="+strconv.Itoa(cfg.size()), "WEFT_LOCAL_SIZE="+strconv.Itoa(cfg.PerNode),
		"WEFT_STORE="+cfg.Store, "WEFT_TOKEN="+cfg.Token, "WEFT_STORE_SERVED=1",
		"WORLD_SIZE="+strconv.Itoa(cfg.size()), "LOCAL_WORLD_SIZE="+strconv.Itoa(cfg.PerNode), "GROUP_RANK="+strconv.Itoa(cfg.Node),
		"MASTER_ADDR="+host, "MASTER_PORT="+strconv.Itoa(master)), nil
}

func freePort(host string) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// hub is this launcher's end of the store: it serves it on node 0, and is an agent elsewhere.
type hub struct {
	server *rendezvous.Server
	client *rendezvous.Client
}

// enter serves or joins the store, and fills cfg.Store.
func enter(ctx context.Context, cfg *Config) (*hub, error) {
	log := slog.New(slog.DiscardHandler) // the job's wait says what matters
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.JoinTimeout, fmt.Errorf("the join timeout of %v", cfg.JoinTimeout))
	defer cancel()
	if cfg.Node > 0 {
		c, err := rendezvous.JoinAgent(ctx, rendezvous.Job{Rank: cfg.Node, Size: cfg.size(), Address: cfg.Store, Token: cfg.Token}, rendezvous.Config{Log: log})
		return &hub{client: c}, err
	}
	listen := cfg.Store
	if listen == "" {
		listen = "127.0.0.1:0"
	} else if host, port, err := net.SplitHostPort(listen); err != nil {
		return nil, fmt.Errorf("--rdzv %q is not host:port", cfg.Store)
	} else if ip := net.ParseIP(host); cfg.Nodes > 1 && (ip == nil || !ip.IsLoopback()) {
		listen = net.JoinHostPort("", port) // others may know this node by any name
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("the store of the job: %w", err)
	}
	if cfg.Store == "" {
		cfg.Store = l.Addr().String()
	} else if host, port, err := net.SplitHostPort(cfg.Store); err == nil && port == "0" { // the ranks need the port that it became
		cfg.Store = net.JoinHostPort(host, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	s, err := rendezvous.Serve(l, rendezvous.ServerConfig{Token: cfg.Token, Size: cfg.size(), Agents: cfg.Nodes - 1, Log: log})
	if err != nil {
		return nil, err
	}
	if err := s.AwaitAgents(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return &hub{server: s}, nil
}

// dead is closed when the job is dead, here or elsewhere.
func (h *hub) dead() <-chan struct{} {
	if h.server != nil {
		return h.server.Done()
	}
	return h.client.Done()
}

func (h *hub) err() error {
	if h.server != nil {
		return h.server.Err()
	}
	return h.client.Err()
}

// blame tells all processes and launchers that a rank is lost.
func (h *hub) blame(rank int, cause error) {
	if h.server != nil {
		h.server.Abort(rank, cause)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = h.client.Blame(ctx, rank, cause) // if the store is gone, all know
}

// leave ends this launcher's part. Node 0 serves on until the other launchers have left, a signal comes or ctx ends.
func (h *hub) leave(ctx context.Context, signals <-chan os.Signal) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if h.client != nil || h.server.Err() != nil { // all have been told; what remains is their end
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
	}
	if h.client != nil {
		_ = h.client.Leave(ctx)
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	})
	_ = h.server.DrainAgents(ctx)
	cancel()
	_ = h.server.Close()
	wg.Wait()
}

// culprit is the rank that the store blames for the death of the job, -1 when it lives or no process is to blame.
func (h *hub) culprit() int {
	var e *comm.Error
	if errors.As(h.err(), &e) {
		return e.Peer
	}
	return -1
}
