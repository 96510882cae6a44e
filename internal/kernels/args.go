package kernels

// Limits of the device structs.
const (
	MaxRanks   = 32 // of a group
	MaxParts   = 8  // tensors of a launch
	NumRecords = 8  // asynchronous errors of a rank that are kept
	Threads    = 512
	SmallBytes = 64 << 10 // the largest vector that the kernel for small ones takes
)

// Bits of Args.Shared.
const (
	SameGPU = 1 // all ranks of the group are on one GPU, in this process
	Foreign = 2 // some ranks are in other processes: their addresses need Ctl.Shift
)

// Kinds of Args, beyond those of comm.OpKind, whose numbers they share.
const Split = 11

// Why a Record was written.
const (
	Timeout   = iota + 1 // Missing did not come
	Aborted              // the world died while waiting for Missing
	Closed               // Missing closed
	Disagree             // ranks A and B are in different calls: EpochSeen and OtherCall are their calls
	OwnRange             // count N of rank A is not in [0, Limit]
	SendRange            // rank A's count N for rank B is not in [0, Limit]
	Expected             // rank A sends N rows to rank B, which expects Limit
	Takes                // rank A sends N rows to rank B, which takes at most Limit
	SrcOwn               // rank A's count N exceeds the Limit rows of its source
	SrcSum               // rank A's source has Limit rows, all counts need N
	DstOwn               // rank A's destination has Limit rows, its count is N
	SrcSend              // rank A's source has Limit rows, its counts send N
)

// Part is one tensor of a call. Strides are in bytes.
type Part struct {
	Src, Dst                     uint64
	SrcStride, DstStride         int64
	SrcRows, DstRows, Cols, DTyp uint32
}

// Entry is what a rank tells its peers of one call.
type Entry struct {
	Signature            uint64
	Call                 uint32 // the call's number in the log of its rank
	NumParts             uint32
	HostCounts           uint32 // bit 0: Send is the host's; bit 1: Recv is
	SendLimit, RecvLimit uint32
	_                    uint32
	Parts                [MaxParts]Part
	Send, Recv           [MaxRanks]int32
}

// Args are a launch's parameters.
type Args struct {
	Ctl                            uint64
	Kind, Reduce, Peer, EntryWords uint32
	Own, All                       uint64 // counts on the device, or 0
	NumOwn                         uint32
	Ragged, Shared                 uint16 // Shared: SameGPU, Foreign
	Entry                          Entry
}

// SetEntryWords sets how much of the entry travels, from its number of parts.
func (a *Args) SetEntryWords() { a.EntryWords = 2 + 3*a.Entry.NumParts }

// numLines is the 16-byte lines that carry an entry, 8 bytes each.
const numLines = (32 + MaxParts*48 + 2*MaxRanks*4) / 8

// Record is an asynchronous error in pinned host memory. Seq is written last.
type Record struct {
	Seq, Why, Call, OtherCall, EpochSeen, EpochWanted, Missing, By uint64
	A, B, N, Limit                                                 int64
	Group, Phase                                                   uint64
	_                                                              [2]uint64
}

// Rank is one rank's words for all its groups.
type Rank struct {
	Abort, NumRecords uint64
	_                 [14]uint64
}

// Ctl is one rank's end of a group, in its device's memory. The host writes it once, before the first launch.
type Ctl struct {
	Epoch, Launches                  uint64 // in units of 65536
	Reported, DoneBlocks             uint64
	Timeout                          uint64 // nanoseconds
	HostAbort, Records               uint64 // pinned host memory
	Rank, Size, WorldRank, WorldSize uint32
	Group                            uint64
	Sent, Received                   [MaxRanks]uint64
	Peers, World, Small              [MaxRanks]uint64
	Shift                            [MaxRanks]uint64 // added to a rank's addresses
	_                                [6]uint64
	Done, Mail, Ack                  [MaxRanks]uint64
	Closed                           [3][MaxRanks]uint64
	Answers                          [MaxRanks]uint64
	Inbox                            [2][MaxRanks][numLines][2]uint64
	Letters                          [MaxRanks]Entry
}

// smallStride is the bytes of one source's lines in the buffer for small vectors: a 16-byte line for every 8 bytes, a
// header, and padding.
const smallStride = (SmallBytes/8 + 8) * 16

// SmallBuffer is the bytes of the buffer for small vectors of a group of size ranks.
func SmallBuffer(size int) int { return 2 * size * smallStride }

// MemoryArgs are the parameters of a copy. Strides are in bytes.
type MemoryArgs struct {
	Dst, Src             uint64
	DstStride, SrcStride int64
	Rows, RowBytes       uint64
}
