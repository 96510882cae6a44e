package nccl

import (
	"math"
	"sync"
	"unsafe"

	"github.com/weftgo/weft/nccl/internal/calls"
)

// Options tune a communicator. A zero field leaves the choice to the library. Environment variables NCCL_* are the
// library's own: weft neither reads nor sets them.
type Options struct {
	Blocking            bool   // calls return when done; without it they return at once and Ready waits, so that it can be cancelled
	ClusterSize         int    // thread blocks of a cluster, on Hopper and newer
	MinCTAs, MaxCTAs    int    // thread blocks of an operation
	NetName             string // which network module
	SplitShare          bool   // Split shares resources with its parent
	TrafficClass        int    // of the network; 2.26
	Name                string // for the library's logs; 2.27
	Collnet             bool   // 2.27
	Policy              Policy // 2.27
	ShrinkShare         bool   // Shrink shares resources with its parent; 2.27
	NVLSCTAs            int    // 2.27
	ChannelsPerNetPeer  int    // 2.28
	NVLinkCentric       bool   // 2.28
	GraphUsageMode      int    // 2.29
	NumRMAContexts      int    // 2.29
	MaxP2PPeers         int    // 2.30
	GraphStreamOrdering int    // 2.30
}

// Policy says what an operation may use of the GPU.
type Policy int

// The policies.
const (
	PolicyDefault    Policy = 0
	PolicyEfficiency Policy = 1 // fewer thread blocks
	PolicyZero       Policy = 2 // copy engines instead of thread blocks, on symmetric windows
)

// layout is ncclConfig_t as 2.30.7 has it. Older libraries read the fields they know, newer ones use their defaults for
// those that are not here: version is that of this layout, not the library's.
type layout struct {
	size                                                                      uintptr
	magic, version                                                            uint32
	blocking, clusterSize, minCTAs, maxCTAs                                   int32
	netName                                                                   uintptr
	splitShare, trafficClass                                                  int32
	commName                                                                  uintptr
	collnet, policy, shrinkShare, nvlsCTAs, channelsPerNetPeer, nvlinkCentric int32
	graphUsageMode, numRMAContexts, maxP2PPeers, graphStreamOrdering          int32
}

const (
	configBytes   = 96
	configVersion = 23007
	configMagic   = 0xcafebeef
	configWords   = configBytes / 8
)

// undefined is what the library takes for "not set".
const undefined = math.MinInt32

var kept sync.Map // names in C memory

// keep returns a name in C memory that stays: the library may hold the pointer as long as any communicator made with it.
func keep(name string) uintptr {
	if name == "" {
		return 0
	}
	if p, ok := kept.Load(name); ok {
		return p.(uintptr)
	}
	p := calls.CString(name)
	if old, there := kept.LoadOrStore(name, p); there {
		calls.FreeSlot(p)
		return old.(uintptr)
	}
	return p
}

// layout fills the struct.
func (o Options) layout() (l layout) {
	number := func(x int) int32 {
		if x == 0 {
			return undefined
		}
		return int32(x)
	}
	yes := func(b bool) int32 {
		if b {
			return 1
		}
		return undefined
	}
	l = layout{size: configBytes, magic: configMagic, version: configVersion,
		clusterSize: number(o.ClusterSize), minCTAs: number(o.MinCTAs), maxCTAs: number(o.MaxCTAs), netName: keep(o.NetName),
		splitShare: yes(o.SplitShare), trafficClass: number(o.TrafficClass), commName: keep(o.Name), collnet: yes(o.Collnet),
		policy: number(int(o.Policy)), shrinkShare: yes(o.ShrinkShare), nvlsCTAs: number(o.NVLSCTAs),
		channelsPerNetPeer: number(o.ChannelsPerNetPeer), nvlinkCentric: yes(o.NVLinkCentric), graphUsageMode: number(o.GraphUsageMode),
		numRMAContexts: number(o.NumRMAContexts), maxP2PPeers: number(o.MaxP2PPeers), graphStreamOrdering: number(o.GraphStreamOrdering)}
	if o.Blocking {
		l.blocking = 1
	}
	return l
}

// words returns the struct as the words of a call.
func (l *layout) words() []uint64 { return unsafe.Slice((*uint64)(unsafe.Pointer(l)), configWords) }

// ID is an ncclUniqueId: what the ranks of a new communicator share. One ID is for one communicator.
type ID [128]byte

const idWords = 16

func (id *ID) words() []uint64 {
	w := make([]uint64, idWords)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), len(id)), id[:])
	return w
}

func idOf(w []uint64) (id ID) {
	copy(id[:], unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), len(id)))
	return id
}
