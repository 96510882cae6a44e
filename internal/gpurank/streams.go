package gpurank

import (
	"errors"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/cuda"
)

// Streams puts the work that a rank's caller gives to several streams into the order of the calls. One goroutine uses it at
// a time.
type Streams struct {
	Own *cuda.Stream // weft's own
	// Shared says that ranks share the device: the default streams, which wait for all of them, are refused.
	Shared bool

	dev     *cuda.Device
	event   *cuda.Event
	last    *cuda.Stream // where the latest work went
	adopted map[uintptr]*cuda.Stream
}

// Open makes the rank's own stream. After an error Close frees what there is.
func (s *Streams) Open(dev *cuda.Device) (err error) {
	s.dev, s.adopted = dev, map[uintptr]*cuda.Stream{}
	if s.Own, err = dev.NewStream(0); err != nil {
		return err
	}
	s.last = s.Own
	s.event, err = dev.NewEvent(false)
	return err
}

var errDefault = errors.New("the default streams (handles 1 and 2) wait for all ranks of the GPU, which wait for each other; use a stream made with cudaStreamNonBlocking")

// Of returns where work given to a stream goes. The zero Stream is weft's own.
func (s *Streams) Of(given comm.Stream) (*cuda.Stream, error) {
	if given.Handle == 0 {
		return s.Own, nil
	}
	if st := s.adopted[given.Handle]; st != nil {
		return st, nil
	}
	if given.Handle <= 2 && s.Shared {
		return nil, errDefault
	}
	st, err := s.dev.Adopt(given.Handle)
	if err != nil {
		return nil, err
	}
	s.adopted[given.Handle] = st
	return st, nil
}

// Order makes work enqueued on st follow the rank's latest, which went to another stream.
func (s *Streams) Order(st *cuda.Stream) error {
	if st == s.last {
		return nil
	}
	capturing, err := st.Capturing()
	if err != nil || capturing {
		return err // a graph's order is the caller's
	}
	if capturing, err = s.last.Capturing(); err == nil && !capturing {
		if err = s.event.Record(s.last); err == nil {
			err = st.WaitEvent(s.event)
		}
	}
	s.last = st
	return err
}

// Drained says that all work of st is done: nothing of it is left to order, and the caller may destroy it now.
func (s *Streams) Drained(st *cuda.Stream) {
	if s.last == st {
		s.last = s.Own
	}
}

// Close gives back what Open made.
func (s *Streams) Close() error {
	var errs []error
	if s.event != nil {
		errs = append(errs, s.event.Close())
	}
	if s.Own != nil {
		errs = append(errs, s.Own.Close())
	}
	return errors.Join(errs...)
}
