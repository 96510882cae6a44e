// Package clienttest talks to the server as OpenAI's Go client does. It is a module of its own, since the client takes minutes
// to compile and weft does not need it:
//
//	go -C examples/serve/clienttest test ./...
package clienttest
