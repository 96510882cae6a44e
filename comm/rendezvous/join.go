package rendezvous

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/weftgo/weft/comm"
)

// Config is how a process uses the store. The zero value works.
type Config struct {
	// LeaveTimeout bounds Leave when its ctx has no deadline: in the process that serves the store, the time between the first
	// process that is done and the last. 0 means 1 min.
	LeaveTimeout time.Duration
	// JoinTimeout bounds Join when its ctx has no deadline: the time for all processes to start. 0 means 5 min.
	JoinTimeout time.Duration
	// Silence is after how long without any sign of life a process, or the store, counts as lost. The shorter of both
	// sides' counts; a sign comes five times in it. A killed process is noticed at once, not by this. 0 means 15 s.
	Silence time.Duration
	Limits  Limits       // the same in all processes
	Log     *slog.Logger // nil: slog.Default()
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.LeaveTimeout, defaultLeave)
	def(&c.JoinTimeout, defaultJoin)
	def(&c.Silence, defaultSilence)
	c.Limits = c.Limits.withDefaults()
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Join enters the job and waits until all its processes have. In process 0 it serves the store, unless job.Served. It waits
// for a store that starts later. Errors: Timeout names the processes that did not come, or says that there is no store; Invalid
// is a wrong token, another size, a rank that is taken or a port that is in use, and comes at once; Remote is a process that
// was lost in the meantime. The caller ends with Leave.
func Join(ctx context.Context, job Job, cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, cfg.JoinTimeout, fmt.Errorf("the join timeout of %v", cfg.JoinTimeout))
		defer cancel()
	}
	if err := job.validate(); err != nil {
		return nil, err
	}
	var server *Server
	dial := (&net.Dialer{}).DialContext
	if job.Rank == 0 && !job.Served {
		l, err := job.listen(&dial)
		if err != nil {
			return nil, comm.Errorf("join", job.Rank, comm.Invalid, "the store of the job: %w; choose another port by WEFT_STORE=host:port", err)
		}
		if job.Token == "" { // nobody else is to come
			job.Token = rand.Text()
		}
		server, err = Serve(l, ServerConfig{Token: job.Token, Size: job.Size, Silence: cfg.Silence, Limits: cfg.Limits, Log: cfg.Log})
		if err != nil {
			return nil, err
		}
	}
	c, err := connect(ctx, job, member{rank: job.Rank}, cfg, dial)
	if err == nil {
		if _, err = c.Gather(ctx, "\x00join", job.Rank, job.Size, nil); err == nil {
			c.server = server
			return c, nil
		}
		e := *err.(*comm.Error)
		if e.Op = "join"; e.Code == comm.Timeout {
			e.Err = fmt.Errorf("not all processes of the job have started: %w", e.Err)
		}
		err = &e
		c.abandon(err)
	}
	if server != nil {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), lingering)
		defer cancel()
		_ = server.Drain(short) // the others are told why
		_ = server.Close()
	}
	return nil, err
}

// JoinAgent enters the job of a store that is served elsewhere as the launcher of node job.Rank, which is no process of the
// job: it sets and gets, and it is told of, and missed by, all others. It does not wait for the processes.
func JoinAgent(ctx context.Context, job Job, cfg Config) (*Client, error) {
	job.Served = true
	return connect(ctx, job, member{agent: true, rank: job.Rank}, cfg.withDefaults(), (&net.Dialer{}).DialContext)
}

func (j Job) validate() error {
	err := func(format string, args ...any) error {
		return comm.Errorf("join", j.Rank, comm.Invalid, format, args...)
	}
	switch {
	case j.Size < 1 || j.Size > maxRanks || j.Rank < 0 || j.Rank >= j.Size:
		return err("process %d of %d: sizes are 1 to %d, processes 0 to size - 1; use FromEnv, which reads what a launcher says", j.Rank, j.Size, maxRanks)
	case j.Size == 1 && j.Address == "" && !j.Served:
		return nil
	case j.Address == "":
		return err("%d processes need the address of a store: set WEFT_STORE=host:port", j.Size)
	case j.Token == "":
		return err("%d processes need a token: set WEFT_TOKEN", j.Size)
	}
	if _, port, e := net.SplitHostPort(j.Address); e != nil || port == "0" || port == "" {
		return err("the store's address %q is not host:port", j.Address)
	}
	return nil
}

// listen opens the store's port: on the loopback device when the address is there, else on all devices, since the others may
// know this machine by any of its names. A job of one process needs no port; dial is replaced then.
func (j Job) listen(dial *func(ctx context.Context, network, addr string) (net.Conn, error)) (net.Listener, error) {
	if j.Address == "" {
		l := newPipes()
		*dial = l.dial
		return l, nil
	}
	host, port, err := net.SplitHostPort(j.Address)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		host = ""
	}
	return net.Listen("tcp", net.JoinHostPort(host, port))
}

// connect dials until the store lets the client in or says no, or ctx ends.
func connect(ctx context.Context, job Job, self member, cfg Config, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (*Client, error) {
	fail := func(err error) error {
		e := failure("join", job.Address, err).(*comm.Error)
		e.Op, e.Rank = "join", job.Rank
		return e
	}
	name := identity()
	pause := 10 * time.Millisecond
	for tries := 1; ; tries++ {
		conn, silence, err := attempt(ctx, job, hello{member: self, size: job.Size, name: name}, dial)
		if err == nil {
			return newClient(conn, job, self, cfg, silence), nil
		}
		if !errors.As(err, new(retry)) {
			return nil, fail(err)
		}
		if tries == 20 {
			cfg.Log.Info("waiting for the store of the job", "address", job.Address, "error", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			server := "process 0, which serves it, has not started, or cannot be reached"
			if job.Served {
				server = "its launcher has ended, or cannot be reached"
			}
			return nil, fail(ended(ctx, fmt.Sprintf("no store at %s: %s; after %d attempts: %v", job.Address, server, tries, err)))
		}
		pause = min(pause*3/2, time.Second)
	}
}

func attempt(ctx context.Context, job Job, h hello, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (net.Conn, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	conn, err := dial(ctx, "tcp", job.Address)
	if err != nil {
		return nil, 0, retry{err}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	silence, err := introduce(conn, job.Token, h)
	if !stop() && err == nil {
		err = retry{context.Cause(ctx)}
	}
	if err != nil {
		_ = conn.Close()
		return nil, 0, err
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, silence, nil
}

func newClient(conn net.Conn, job Job, self member, cfg Config, silence time.Duration) *Client {
	silence = min(silence, cfg.Silence)
	most := cfg.Limits.TotalBytes + 1<<20
	c := &Client{job: job, self: self, leave: cfg.LeaveTimeout, limits: cfg.Limits, most: most, link: newLink(conn, silence, most),
		waiting: map[uint64]chan answer{}, dead: make(chan struct{}), gone: make(chan struct{})}
	c.wg.Go(c.link.write)
	c.wg.Go(c.read)
	c.wg.Go(func() { c.beat(silence / 5) })
	return c
}

// abandon ends a client that could not join; the others are told why.
func (c *Client) abandon(cause error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Abort(ctx, cause)
	c.link.cut()
	c.wg.Wait()
}

// pipes is a listener within the process.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	end   chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), end: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.end:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.end:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.end) })
	return nil
}

func (p *pipes) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "this process" }
