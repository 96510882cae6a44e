package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/weftgo/weft/comm"
)

// ServerConfig says whom a Server serves.
type ServerConfig struct {
	Token string // who does not know it is turned away; not empty
	Size  int    // processes of the job
	// Agents is how many launchers of other nodes may join beside the processes.
	Agents int
	// Silence is how long a process may send nothing before it counts as lost. 0 means 15 s.
	Silence time.Duration
	Limits  Limits
	Log     *slog.Logger // nil: slog.Default()
}

// Server is the store of one job. Any goroutine may use it.
type Server struct {
	cfg      ServerConfig
	listener net.Listener
	table    *table
	wg       sync.WaitGroup

	mu      sync.Mutex
	members map[member]*guest
	opening map[net.Conn]bool // in the handshake
	left    map[member]bool
	changed chan struct{} // closed and replaced when members or left change
	closed  bool
	err     *comm.Error   // why the job is dead
	dead    chan struct{} // closed when err is set
}

// opening connections beyond this are dropped: clients try again.
const maxOpening = 128

// Serve starts a store on l, which it owns from then on. The caller closes the Server.
func Serve(l net.Listener, cfg ServerConfig) (*Server, error) {
	if cfg.Token == "" || cfg.Size < 1 || cfg.Size > maxRanks || cfg.Agents < 0 {
		_ = l.Close()
		return nil, comm.Errorf("store", 0, comm.Invalid, "a store needs a token, and a size of 1 to %d, not %d", maxRanks, cfg.Size)
	}
	if cfg.Silence <= 0 {
		cfg.Silence = defaultSilence
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	s := &Server{cfg: cfg, listener: l, table: newTable(cfg.Limits), members: map[member]*guest{}, opening: map[net.Conn]bool{},
		left: map[member]bool{}, changed: make(chan struct{}), dead: make(chan struct{})}
	s.wg.Go(s.accept)
	return s, nil
}

// Addr is where it listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Done is closed when the job is dead: a process was lost or said Abort.
func (s *Server) Done() <-chan struct{} { return s.dead }

// Err returns why the job is dead, nil while it lives. Its Peer is the process to blame.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return s.err
}

func (s *Server) accept() {
	pause := time.Millisecond
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many open files, or a client that went away: neither is for ever
			s.mu.Lock()
			closed := s.closed
			s.mu.Unlock()
			if closed {
				return
			}
			time.Sleep(pause)
			pause = min(2*pause, 100*time.Millisecond)
			continue
		}
		pause = time.Millisecond
		s.mu.Lock()
		full := s.closed || len(s.opening) >= maxOpening
		if !full {
			s.opening[conn] = true
			s.wg.Go(func() { s.greet(conn) })
		}
		s.mu.Unlock()
		if full {
			_ = conn.Close()
		}
	}
}

// greet runs the handshake and then serves the client to its end.
func (s *Server) greet(conn net.Conn) {
	h, answer, err := challenge(conn, s.cfg.Token, s.cfg.Silence)
	var g *guest
	if err == nil {
		g, err = s.enter(conn, h)
	}
	s.mu.Lock()
	delete(s.opening, conn)
	s.mu.Unlock()
	if g == nil {
		s.refuse(conn, err)
		return
	}
	_ = conn.SetDeadline(time.Time{})
	g.send(func(b []byte) []byte { return append(appendHead(b, kindWelcome, 0, len(answer)), answer...) })
	s.wg.Go(g.write)
	s.depart(g, g.serve())
}

// enter makes the client a member, or says why not.
func (s *Server) enter(conn net.Conn, h hello) (*guest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.cfg.Size
	if h.agent {
		most = s.cfg.Agents + 1
	}
	switch old := s.members[h.member]; {
	case s.closed:
		return nil, &comm.Error{Peer: comm.NoPeer, Code: comm.Remote, Err: errors.New("the store is closing")}
	case s.err != nil:
		return nil, s.err
	case h.size != s.cfg.Size:
		return nil, invalid("this store is for a job of %d processes, but %v says %d", s.cfg.Size, h.member, h.size)
	case h.rank < 0 || h.rank >= most:
		return nil, invalid("rank %d of %d", h.rank, most)
	case old != nil:
		return nil, invalid("%v is here already (%s): two processes have the same rank", h.member, old.name)
	case s.left[h.member]:
		return nil, invalid("%v has left; a job does not take it back", h.member)
	}
	g := &guest{member: h.member, name: h.name, server: s, waiting: map[uint64]*operation{},
		link: newLink(conn, s.cfg.Silence, s.table.limits.TotalBytes+1<<20)}
	s.members[h.member] = g
	s.change()
	return g, nil
}

// change wakes Drain. s.mu is held.
func (s *Server) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// refuse tells the client why it may not enter, if the handshake got that far.
func (s *Server) refuse(conn net.Conn, err error) {
	defer conn.Close()
	var e *comm.Error
	switch {
	case errors.Is(err, errToken):
		s.cfg.Log.Warn("a client with a wrong token was turned away", "client", conn.RemoteAddr().String())
		e = invalid("wrong token: this process and the store do not belong to the same job (WEFT_TOKEN)").(*comm.Error)
	case !errors.As(err, &e):
		return
	}
	if _, err := conn.Write(appendError(nil, kindError, 0, e)); err != nil {
		return
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = conn.SetReadDeadline(time.Now().Add(lingering))
	_, _ = io.Copy(io.Discard, conn)
}

// depart ends a member whose connection ended with err; nil after Leave.
func (s *Server) depart(g *guest, err error) {
	g.drop()
	if err != nil {
		var why string
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			why = fmt.Sprintf("it was silent for %v: stopped, or its machine or network is gone", s.cfg.Silence)
		case errors.Is(err, errFrame):
			why = err.Error()
		default:
			why = fmt.Sprintf("its connection ended without Leave: killed, crashed or returned early (%v)", err)
		}
		s.kill(g.peer(), fmt.Errorf("%v (%s) is lost: %s", g.member, g.name, why))
	}
	g.linger()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, g.member)
	s.left[g.member] = true
	s.change()
}

// kill declares the job dead, once, and tells all members.
func (s *Server) kill(peer int, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.closed {
		return
	}
	s.err = &comm.Error{Op: "store", Rank: max(peer, 0), Peer: peer, Code: comm.Remote, Err: cause}
	s.cfg.Log.Error("the job is dead", "cause", cause)
	close(s.dead)
	for _, g := range s.members {
		g.send(func(b []byte) []byte { return appendError(b, kindDead, 0, s.err) })
		g.finish()
	}
}

// Abort declares the job dead; peer is the process to blame, or comm.NoPeer.
func (s *Server) Abort(peer int, cause error) { s.kill(peer, cause) }

// Drain waits until all processes have come and left, or the job is dead and all have been told. It returns an error when ctx
// ends before.
func (s *Server) Drain(ctx context.Context) error {
	return s.drain(ctx, func() bool {
		gone := 0
		for m := range s.left {
			if !m.agent {
				gone++
			}
		}
		return gone >= s.cfg.Size
	})
}

// AwaitAgents waits until the launchers of all other nodes have come.
func (s *Server) AwaitAgents(ctx context.Context) error {
	var missing []int
	err := s.drain(ctx, func() bool {
		missing = missing[:0]
		for node := 1; node <= s.cfg.Agents; node++ {
			if m := (member{agent: true, rank: node}); s.members[m] == nil && !s.left[m] {
				missing = append(missing, node)
			}
		}
		return len(missing) == 0
	})
	if err != nil {
		return &comm.Error{Op: "store", Peer: comm.NoPeer, Code: comm.Timeout,
			Err: fmt.Errorf("waited for the launchers of nodes %v: %w", missing, context.Cause(ctx))}
	}
	if err := s.Err(); err != nil {
		return err
	}
	return nil
}

// DrainAgents waits until no launcher is there, or the job is dead and all have been told.
func (s *Server) DrainAgents(ctx context.Context) error {
	return s.drain(ctx, func() bool {
		for m := range s.members {
			if m.agent {
				return false
			}
		}
		return true
	})
}

// drain waits for over, which is called with s.mu held, or the end of a dead job.
func (s *Server) drain(ctx context.Context, over func() bool) error {
	for {
		s.mu.Lock()
		end := over() || s.err != nil && len(s.members) == 0 || s.closed
		changed, here, left := s.changed, len(s.members), len(s.left)
		s.mu.Unlock()
		if end {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return &comm.Error{Op: "store drain", Peer: comm.NoPeer, Code: comm.Timeout,
				Err: fmt.Errorf("%d of %d processes have left, %d are here: %w", left, s.cfg.Size, here, context.Cause(ctx))}
		}
	}
}

// Close ends the store at once, and waits for its goroutines. Clients that are still there get Remote.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	err := s.listener.Close()
	for conn := range s.opening {
		_ = conn.Close()
	}
	for _, g := range s.members {
		g.cut()
	}
	s.change()
	s.mu.Unlock()
	s.wg.Wait()
	return err
}
