package rendezvous

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/weftgo/weft/comm"
)

// A frame on the wire is its length (of what follows, 4 bytes), its kind (1), the number of the operation it belongs to (8)
// and a body. All numbers are little-endian.
type frame struct {
	kind kind
	id   uint64
	body []byte
}

type kind uint8

const (
	kindHello   kind = iota + 1 // both sides: handshake
	kindWelcome                 // server: the client is in
	kindSet                     // client, body is a request
	kindGet
	kindAdd
	kindGather
	kindCancel // client: nobody waits for operation id any more
	kindPing   // client; the server answers with the same
	kindLeave  // client: nothing more will come
	kindAbort  // client: the job shall die; value is the reason
	kindValues // server: operation id succeeded
	kindError  // server: operation id failed
	kindDead   // server: the job is dead
	kindForget // client
)

const frameHead = 4 + 1 + 8

// requestHead is what a request has beside key and value.
const requestHead = 2 + 4 + 4 + 8

var errFrame = errors.New("malformed frame")

// readFrame reads one frame whose body has at most limit bytes. The body is new memory.
func readFrame(r io.Reader, limit int) (frame, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	n := int64(binary.LittleEndian.Uint32(head[:])) - (frameHead - 4)
	if n < 0 || n > int64(limit) {
		return frame{}, fmt.Errorf("%w: a body of %d bytes, not 0 to %d", errFrame, n, limit)
	}
	f := frame{kind: kind(head[4]), id: binary.LittleEndian.Uint64(head[5:]), body: make([]byte, n)}
	if _, err := io.ReadFull(r, f.body); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	return f, nil
}

// appendHead appends the head of a frame with a body of n bytes.
func appendHead(b []byte, k kind, id uint64, n int) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(n+frameHead-4))
	b = append(b, byte(k))
	return binary.LittleEndian.AppendUint64(b, id)
}

// request is the body of set, get, add, gather and abort; each uses what it needs.
type request struct {
	key        string
	rank, size uint32
	number     int64 // add: delta; get and gather: nanoseconds to wait, 0 for ever
	value      []byte
}

func (q *request) append(b []byte, k kind, id uint64) []byte {
	b = appendHead(b, k, id, requestHead+len(q.key)+len(q.value))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(q.key)))
	b = append(b, q.key...)
	b = binary.LittleEndian.AppendUint32(b, q.rank)
	b = binary.LittleEndian.AppendUint32(b, q.size)
	b = binary.LittleEndian.AppendUint64(b, uint64(q.number))
	return append(b, q.value...)
}

// parseRequest reads the body of a request. The value is part of b.
func parseRequest(b []byte) (request, error) {
	if len(b) < 2 {
		return request{}, errFrame
	}
	n := int(binary.LittleEndian.Uint16(b))
	if len(b) < requestHead+n {
		return request{}, errFrame
	}
	q := request{key: string(b[2 : 2+n])}
	b = b[2+n:]
	q.rank, q.size = binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	q.number, q.value = int64(binary.LittleEndian.Uint64(b[8:])), b[16:]
	return q, nil
}

// appendValues appends the answer of an operation that succeeded.
func appendValues(b []byte, id uint64, values [][]byte) []byte {
	n := 4
	for _, v := range values {
		n += 4 + len(v)
	}
	b = appendHead(b, kindValues, id, n)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(values)))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
		b = append(b, v...)
	}
	return b
}

// parseValues reads the body of an answer. The values are parts of b.
func parseValues(b []byte) ([][]byte, error) {
	if len(b) < 4 {
		return nil, errFrame
	}
	n := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if uint64(n)*4 > uint64(len(b)) {
		return nil, errFrame
	}
	values := make([][]byte, n)
	for i := range values {
		if len(b) < 4 {
			return nil, errFrame
		}
		size := binary.LittleEndian.Uint32(b)
		b = b[4:]
		if uint64(size) > uint64(len(b)) {
			return nil, errFrame
		}
		values[i] = b[:size:size]
		b = b[size:]
	}
	if len(b) != 0 {
		return nil, errFrame
	}
	return values, nil
}

// maxText bounds the text of an error on the wire.
const maxText = 16 << 10

// appendError appends an error of kind kindError or kindDead.
func appendError(b []byte, k kind, id uint64, e *comm.Error) []byte {
	text := e.Err.Error()
	text = text[:min(len(text), maxText)]
	b = appendHead(b, k, id, 1+4+len(text))
	b = append(b, byte(e.Code))
	b = binary.LittleEndian.AppendUint32(b, uint32(int32(e.Peer)))
	return append(b, text...)
}

// parseError reads the body of an error; the caller sets Op and Rank.
func parseError(b []byte) (*comm.Error, error) {
	if len(b) < 5 || b[0] > byte(comm.Aborted) {
		return nil, errFrame
	}
	peer := int32(binary.LittleEndian.Uint32(b[1:]))
	if peer < comm.NoPeer || peer == math.MaxInt32 {
		return nil, errFrame
	}
	return &comm.Error{Peer: int(peer), Code: comm.Code(b[0]), Err: errors.New(string(b[5:]))}, nil
}
