// Package gpurank is what a rank of a GPU driver has, whatever carries its data: comm/p2p and nccl/ncclworld share it.
//
//	Streams   the rank's own stream and those of its caller, one after the other
//	Memory    copies between the host and the device through pinned memory
//	Pool      device memory that stays until the world closes
//	Kept      a copy of an Op that outlives the call, for messages
//	CodeOf    the class of an error of the packages below
package gpurank
