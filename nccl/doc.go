// Package nccl binds NVIDIA's libnccl, and is weft's driver over it. (see below)
package nccl
