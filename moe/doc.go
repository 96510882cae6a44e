// Package moe is the fused Mixture-of-Experts layer: router, exchange, expert products, combine.
package moe
