package rendezvous

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
)

// Whatever a process sends that knows the token, the server lives, and ends when it is told to.
func FuzzServer(f *testing.F) {
	gather := &request{key: "x", size: 2, value: []byte("v")}
	f.Add(gather.append((&request{key: "k", value: []byte("v")}).append(nil, kindSet, 1), kindGather, 2))
	f.Add(gather.append(appendHead((&request{key: "never", number: 1}).append(nil, kindGet, 3), kindCancel, 3, 0), kindGather, 3))
	f.Add((&request{key: "n", number: 1 << 62}).append((&request{key: "n", number: 1 << 62}).append(nil, kindAdd, 1), kindAdd, 1))
	f.Add(appendHead((&request{rank: 1, value: []byte("why")}).append(nil, kindAbort, 1), kindLeave, 2, 0))
	f.Add(appendHead(appendHead(nil, kindLeave, 1, 0), kindPing, 1, 0))
	f.Add((&request{key: "k"}).append((&request{key: "x", rank: 5, size: 1 << 31}).append(nil, kindGather, 1), kindForget, 2))
	f.Add(appendValues(nil, 1, [][]byte{{1}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		l := newPipes()
		s, err := Serve(l, ServerConfig{Token: "t", Size: 2, Log: quiet, Limits: Limits{TotalBytes: 1 << 20}})
		require.NoError(t, err)
		conn, err := l.dial(t.Context(), "", "")
		require.NoError(t, err)
		_, err = introduce(conn, "t", hello{size: 2})
		require.NoError(t, err)
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(io.Discard, conn)
		}()
		_, _ = conn.Write(b)
		require.NoError(t, conn.Close())
		<-read
		if err := s.Err(); err != nil {
			require.ErrorIs(t, err, comm.Remote)
		}
		require.NoError(t, s.Close())
		require.LessOrEqual(t, s.table.bytes, 1<<20)
		require.Empty(t, s.members)
	})
}
