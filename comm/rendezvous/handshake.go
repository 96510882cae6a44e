package rendezvous

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/weftgo/weft/comm"
)

// The handshake: the server sends magic and a random nonce; the client answers with who it is, a nonce of its own, and an
// HMAC under the token of all that; the server answers with an HMAC over the nonces the other way round. So neither learns the
// token from the other, nothing can be replayed, and HMACs are compared in constant time. What follows is not encrypted.
const (
	magic         = "weft st1"
	nonceBytes    = 32
	maxName       = 128
	helloBytes    = len(magic) + 1 + 4 + 4 + nonceBytes + sha256.Size // and the name
	handshakeTime = 5 * time.Second
)

// member is one client: a process of the job, or an agent, which starts processes on its node and serves none of them itself.
type member struct {
	agent bool
	rank  int
}

func (m member) String() string {
	if m.agent {
		return fmt.Sprintf("the launcher of node %d", m.rank)
	}
	return fmt.Sprintf("process %d", m.rank)
}

// peer is the number that errors name: agents have none.
func (m member) peer() int {
	if m.agent {
		return comm.NoPeer
	}
	return m.rank
}

// hello is what a client says of itself.
type hello struct {
	member
	size  int
	nonce [nonceBytes]byte
	mac   [sha256.Size]byte
	name  string // host and process id, for messages
}

func (h *hello) append(b []byte) []byte {
	b = appendHead(b, kindHello, 0, helloBytes+len(h.name))
	b = append(b, magic...)
	b = append(b, h.role())
	b = binary.LittleEndian.AppendUint32(b, uint32(h.rank))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.size))
	b = append(b, h.nonce[:]...)
	b = append(b, h.mac[:]...)
	return append(b, h.name...)
}

func (h *hello) role() byte {
	if h.agent {
		return 1
	}
	return 0
}

func parseHello(b []byte) (hello, error) {
	if len(b) < helloBytes || len(b) > helloBytes+maxName || string(b[:len(magic)]) != magic || b[len(magic)] > 1 {
		return hello{}, errFrame
	}
	b = b[len(magic):]
	h := hello{member: member{agent: b[0] == 1, rank: int(binary.LittleEndian.Uint32(b[1:]))}, size: int(binary.LittleEndian.Uint32(b[5:]))}
	b = b[9:]
	copy(h.nonce[:], b)
	copy(h.mac[:], b[nonceBytes:])
	h.name = strings.ToValidUTF8(string(b[nonceBytes+sha256.Size:]), "?")
	return h, nil
}

// sign is the client's HMAC; it covers everything the client says.
func (h *hello) sign(token string, server [nonceBytes]byte) []byte {
	m := hmac.New(sha256.New, []byte(token))
	m.Write([]byte("weft client"))
	m.Write(server[:])
	m.Write(h.nonce[:])
	var n [9]byte
	n[0] = h.role()
	binary.LittleEndian.PutUint32(n[1:], uint32(h.rank))
	binary.LittleEndian.PutUint32(n[5:], uint32(h.size))
	m.Write(n[:])
	m.Write([]byte(h.name))
	return m.Sum(nil)
}

// welcomeBytes is the body of the server's answer: nanoseconds of silence after which a client is lost, and an HMAC.
const welcomeBytes = 8 + sha256.Size

// answer is the server's proof.
func (h *hello) answer(token string, server [nonceBytes]byte, silence time.Duration) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(silence))
	m := hmac.New(sha256.New, []byte(token))
	m.Write([]byte("weft server"))
	m.Write(h.nonce[:])
	m.Write(server[:])
	m.Write(b)
	return m.Sum(b)
}

// challenge is the server's half up to the point where the client has proved itself. A client with the wrong token gets
// errToken; nothing of it was believed.
func challenge(conn net.Conn, token string, silence time.Duration) (h hello, answer []byte, err error) {
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	var nonce [nonceBytes]byte
	_, _ = rand.Read(nonce[:]) // never fails
	if _, err := conn.Write(append([]byte(magic), nonce[:]...)); err != nil {
		return h, nil, err
	}
	f, err := readFrame(conn, helloBytes+maxName)
	if err != nil {
		return h, nil, err
	}
	if f.kind != kindHello {
		return h, nil, errFrame
	}
	if h, err = parseHello(f.body); err != nil {
		return h, nil, err
	}
	if !hmac.Equal(h.mac[:], h.sign(token, nonce)) {
		return h, nil, errToken
	}
	return h, h.answer(token, nonce, silence), nil
}

var errToken = errors.New("wrong token")

// retry is an error after which the client tries again: the store may be about to start.
type retry struct{ error }

func (r retry) Unwrap() error { return r.error }

// introduce is the client's half; it returns the server's silence. A refusal is the comm.Error that the server sent; a
// connection that breaks is a retry.
func introduce(conn net.Conn, token string, h hello) (time.Duration, error) {
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	var head [len(magic) + nonceBytes]byte
	if n, err := io.ReadFull(conn, head[:]); err != nil {
		if n > 0 && !strings.HasPrefix(magic, string(head[:min(n, len(magic))])) {
			return 0, notOurs(conn)
		}
		return 0, retry{fmt.Errorf("who answers says nothing (is it a weft store?): %w", err)}
	}
	if string(head[:len(magic)]) != magic {
		return 0, notOurs(conn)
	}
	var nonce [nonceBytes]byte
	copy(nonce[:], head[len(magic):])
	_, _ = rand.Read(h.nonce[:])
	copy(h.mac[:], h.sign(token, nonce))
	if _, err := conn.Write(h.append(nil)); err != nil {
		return 0, retry{err}
	}
	f, err := readFrame(conn, 5+maxText)
	if err != nil {
		return 0, retry{err}
	}
	switch f.kind {
	case kindWelcome:
		if len(f.body) == welcomeBytes {
			silence := time.Duration(binary.LittleEndian.Uint64(f.body))
			if !hmac.Equal(f.body, h.answer(token, nonce, silence)) || silence <= 0 {
				return 0, invalid("the store does not know the token (WEFT_TOKEN)")
			}
			return silence, nil
		}
	case kindError, kindDead: // dead: the job died in between
		if e, err := parseError(f.body); err == nil {
			return 0, e
		}
	}
	return 0, notOurs(conn)
}

func notOurs(conn net.Conn) error {
	return invalid("what answers at %v is not this version's weft store; choose another port by WEFT_STORE=host:port", conn.RemoteAddr())
}
