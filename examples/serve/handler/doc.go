// Package handler gives the server's routes to other programs of the examples: examples/judge sends its workload through them.
package handler
