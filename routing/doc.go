// Package routing turns top-k expert ids into counts, offsets and slots, in pure Go over host slices.
package routing
