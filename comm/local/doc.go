// Package local is the CPU driver: the ranks are goroutines of this process and read each other's buffers directly.
package local
