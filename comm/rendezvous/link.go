package rendezvous

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// link is one connection after the handshake. Frames are queued by anyone and written by the link's goroutine, so that nobody
// waits for a slow peer; the owner reads.
type link struct {
	conn    net.Conn
	reader  *bufio.Reader
	silence time.Duration // longest wait for a frame, and for a write
	most    int           // bytes that may be queued

	mu      sync.Mutex
	queue   []byte
	closing bool // close after what is queued
	broken  bool
	wake    chan struct{} // 1
}

func newLink(conn net.Conn, silence time.Duration, most int) *link {
	return &link{conn: conn, reader: bufio.NewReader(conn), silence: silence, most: most, wake: make(chan struct{}, 1)}
}

// send queues what add appends. On a link that is closing or broken it does nothing.
func (l *link) send(add func(b []byte) []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing || l.broken {
		return
	}
	if l.queue = add(l.queue); len(l.queue) > l.most {
		l.broken = true // the peer reads nothing; its reader here sees the end
		_ = l.conn.Close()
	}
	l.signal()
}

// finish lets the link write what is queued, and then close.
func (l *link) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closing = true
	l.signal()
}

func (l *link) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// cut closes the link at once. What is queued is lost.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	_ = l.conn.Close()
	l.signal()
}

// write is the link's goroutine; it returns when the link is broken, or closed for writing after finish.
func (l *link) write() {
	var buf []byte
	for range l.wake {
		l.mu.Lock()
		buf, l.queue = l.queue, buf[:0]
		closing, broken := l.closing, l.broken
		l.mu.Unlock()
		if broken {
			return
		}
		if len(buf) > 0 {
			_ = l.conn.SetWriteDeadline(time.Now().Add(l.silence))
			if _, err := l.conn.Write(buf); err != nil {
				l.cut()
				return
			}
		}
		if closing {
			l.closeWrite()
			return
		}
		if cap(buf) > 1<<20 {
			buf = nil
		}
	}
}

// lingering is how long a link that was closed for writing waits for the peer to close too.
const lingering = 2 * time.Second

// closeWrite ends the writing half: a full close would throw away what the peer has not read yet when bytes of it are on
// their way here. The reader goes on until the peer closes, for at most lingering.
func (l *link) closeWrite() {
	half, ok := l.conn.(interface{ CloseWrite() error })
	if !ok {
		_ = l.conn.Close()
		return
	}
	_ = half.CloseWrite()
	_ = l.conn.SetReadDeadline(time.Now().Add(lingering))
}

// read returns the next frame, or an error after silence.
func (l *link) read(limit int) (frame, error) {
	l.mu.Lock()
	if !l.closing {
		_ = l.conn.SetReadDeadline(time.Now().Add(l.silence))
	}
	l.mu.Unlock()
	return readFrame(l.reader, limit)
}
