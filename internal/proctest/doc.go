// Package proctest runs a test in several processes: the test binary starts itself again once for each, and serves the store
// in which they meet. It is for tests alone.
package proctest
