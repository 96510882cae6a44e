package rendezvous

import "context"

// Memory is a Store within one process, for worlds of one process and for tests.
type Memory struct{ t *table }

// NewMemory makes an empty store.
func NewMemory() *Memory { return &Memory{t: newTable(Limits{})} }

// Set implements Store.
func (m *Memory) Set(ctx context.Context, key string, value []byte) error {
	if err := alive(ctx); err != nil {
		return failure("set", key, err)
	}
	return failure("set", key, m.t.set(key, value))
}

// Get implements Store.
func (m *Memory) Get(ctx context.Context, key string) ([]byte, error) {
	values, err := m.wait(ctx, func(w *waiter) error { return m.t.get(key, w) })
	if err != nil {
		return nil, failure("get", key, err)
	}
	return values[0], nil
}

// Add implements Store.
func (m *Memory) Add(ctx context.Context, key string, delta int64) (int64, error) {
	if err := alive(ctx); err != nil {
		return 0, failure("add", key, err)
	}
	sum, err := m.t.add(key, delta)
	return sum, failure("add", key, err)
}

// Gather implements Gatherer.
func (m *Memory) Gather(ctx context.Context, name string, rank, size int, mine []byte) ([][]byte, error) {
	values, err := m.wait(ctx, func(w *waiter) error { return m.t.gather(name, rank, size, mine, w) })
	return values, failure("exchange", name, err)
}

// wait starts an operation and waits for its end or ctx's.
func (m *Memory) wait(ctx context.Context, start func(*waiter) error) ([][]byte, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	var values [][]byte
	done := make(chan struct{})
	w := &waiter{done: func(v [][]byte) {
		values = v
		close(done)
	}}
	if err := start(w); err != nil {
		return nil, err
	}
	select {
	case <-done:
		return values, nil
	case <-ctx.Done():
	}
	if late := m.t.cancel(w); late != "" {
		return nil, ended(ctx, late)
	}
	<-done // it was finished in between
	return values, nil
}
