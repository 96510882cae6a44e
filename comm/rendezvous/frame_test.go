package rendezvous

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
)

// Whatever the other side sends, parsing ends with an error or with something that encodes to the same bytes.
func FuzzFrame(f *testing.F) {
	f.Add((&request{key: "key", rank: 1, size: 2, number: -3, value: []byte("v")}).append(nil, kindGather, 7))
	f.Add(appendValues(nil, 9, [][]byte{nil, []byte("a"), []byte("bcd")}))
	f.Add(appendError(nil, kindDead, 0, &comm.Error{Peer: 3, Code: comm.Remote, Err: errors.New("gone")}))
	f.Add((&hello{member: member{agent: true, rank: 4}, size: 8, name: "host, pid 1"}).append(nil))
	f.Add(appendHead(nil, kindPing, 1, 0))
	f.Add([]byte{255, 255, 255, 255, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 1 << 12
		fr, err := readFrame(bytes.NewReader(b), limit)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(fr.body), limit)
		frame := b[:frameHead+len(fr.body)]
		if q, err := parseRequest(fr.body); err == nil {
			require.Equal(t, frame, q.append(nil, fr.kind, fr.id))
		}
		if v, err := parseValues(fr.body); err == nil {
			require.Equal(t, frame[frameHead:], appendValues(nil, fr.id, v)[frameHead:])
		}
		if e, err := parseError(fr.body); err == nil {
			require.GreaterOrEqual(t, e.Peer, comm.NoPeer)
			require.NotEmpty(t, e.Error())
			require.Equal(t, frame[frameHead:], appendError(nil, fr.kind, fr.id, e)[frameHead:])
		}
		if h, err := parseHello(fr.body); err == nil {
			require.LessOrEqual(t, len(h.name), 3*maxName)
		}
	})
}

// The body of a frame is not made before its length has been checked.
func TestFrameLimit(t *testing.T) {
	b := appendHead(nil, kindSet, 1, 1<<30)
	_, err := readFrame(bytes.NewReader(b), 1<<20)
	require.ErrorIs(t, err, errFrame)
	_, err = readFrame(bytes.NewReader([]byte{0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), 1<<20)
	require.ErrorIs(t, err, errFrame, "shorter than its head")
}

// Each part of what a client says is under its signature, and the signatures of both sides differ.
func TestSignature(t *testing.T) {
	h := hello{member: member{rank: 1}, size: 4, name: "a"}
	nonce := [nonceBytes]byte{1}
	want := h.sign("token", nonce)
	require.Equal(t, want, h.sign("token", nonce))
	for name, change := range map[string]func(h *hello, n *[nonceBytes]byte, token *string){
		"rank":         func(h *hello, _ *[nonceBytes]byte, _ *string) { h.rank = 2 },
		"size":         func(h *hello, _ *[nonceBytes]byte, _ *string) { h.size = 2 },
		"role":         func(h *hello, _ *[nonceBytes]byte, _ *string) { h.agent = true },
		"name":         func(h *hello, _ *[nonceBytes]byte, _ *string) { h.name = "b" },
		"nonce":        func(h *hello, _ *[nonceBytes]byte, _ *string) { h.nonce[5] = 1 },
		"server nonce": func(_ *hello, n *[nonceBytes]byte, _ *string) { n[5] = 1 },
		"token":        func(_ *hello, _ *[nonceBytes]byte, token *string) { *token = "Token" },
	} {
		h, n, token := h, nonce, "token"
		change(&h, &n, &token)
		require.NotEqual(t, want, h.sign(token, n), name)
	}
	require.NotEqual(t, want, h.answer("token", nonce, time.Second)[8:])
	require.NotEqual(t, h.answer("token", nonce, 1), h.answer("token", nonce, 2))
}
