package ipc

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// office hands descriptors to processes that know the token, over an abstract Unix socket, which no file system holds.
type office struct {
	name     string
	listener *net.UnixListener
	wg       sync.WaitGroup
}

// patience bounds a conversation.
const patience = 10 * time.Second

func openOffice(token string, fds []int) (*office, error) {
	name := "@weft-" + rand.Text()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	p := &office{name: name, listener: l}
	p.wg.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return // closed
			}
			p.wg.Go(func() { serve(c, token, fds) })
		}
	})
	return p, nil
}

// serve answers the right token with the descriptors, and others with nothing.
func serve(c *net.UnixConn, token string, fds []int) {
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	got := make([]byte, len(token))
	if _, err := io.ReadFull(c, got); err != nil || subtle.ConstantTimeCompare(got, []byte(token)) != 1 {
		return
	}
	_, _, _ = c.WriteMsgUnix([]byte{byte(len(fds))}, syscall.UnixRights(fds...), nil) // the other side sees what is missing
}

func (p *office) close() {
	_ = p.listener.Close()
	p.wg.Wait()
}

// fetch returns the n descriptors of another process's office; the caller closes them.
func fetch(ctx context.Context, name, token string, n int) ([]int, error) {
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	dialed, err := (&net.Dialer{}).DialContext(limit, "unix", name)
	if err != nil {
		return nil, fmt.Errorf("%w; the processes need one network namespace", err)
	}
	c := dialed.(*net.UnixConn)
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte(token)); err != nil {
		return nil, err
	}
	text, oob := make([]byte, 1), make([]byte, syscall.CmsgSpace(4*n))
	_, numOOB, _, _, err := c.ReadMsgUnix(text, oob)
	if err != nil {
		return nil, fmt.Errorf("no answer to the token: %w", err)
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:numOOB])
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, m := range messages {
		got, err := syscall.ParseUnixRights(&m)
		if err != nil {
			closeFDs(fds)
			return nil, err
		}
		fds = append(fds, got...)
	}
	if len(fds) != n {
		closeFDs(fds)
		return nil, fmt.Errorf("%d descriptors came, want %d", len(fds), n)
	}
	return fds, nil
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		_ = syscall.Close(fd)
	}
}
