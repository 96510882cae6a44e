// How ranks meet on the device. Every rank has a Ctl per group in its own memory; peers write into it and only its owner
// polls it. No header of CUDA is needed.
//
//	begin:  block 0 writes its Entry into every peer's inbox, 8 bytes with the epoch in each 16-byte line, so that data
//	        and flag arrive together and no fence is needed: what the entry points to was written by earlier kernels.
//	        Every block polls the lines of its own inbox, and then has all entries: pointers, shapes, counts, signatures.
//	finish: the last block of a rank tells all peers, after a fence, that it no longer touches their memory, and waits for
//	        the same.
//
// Epochs live in device memory, grow by one per meeting and are compared with >= (in lines: equal), so a replayed graph needs
// no new arguments. Inboxes are double-buffered by the epoch's lowest bit: a rank publishes epoch e + 2 only after all ranks
// published e + 1, which they do after their kernel of epoch e has ended.
//
// Every spin looks at the abort words and at the clock. On expiry a rank writes a Record into pinned host memory, raises
// the abort word of every rank and returns; nothing traps and nothing spins for ever.

#define MAX_RANKS 32
#define MAX_PARTS 8
#define NUM_RECORDS 8
#define THREADS 512
#define WHOLE 65536ull // what the blocks of a launch add to epoch and launches together: one epoch, one launch

enum { ALL_REDUCE, ALL_GATHER, ALL_GATHERV, REDUCE_SCATTER, REDUCE_SCATTERV, ALL_TO_ALLV, BROADCAST, REDUCE, SEND, RECV,
       BARRIER, SPLIT };
enum { SUM, PROD, MIN, MAX, AVG };
enum { F32 = 1, BF16, F16, E4M3, E5M2, I8, U8, I32, I64 };

// Why a Record was written.
enum { TIMEOUT = 1, ABORTED, CLOSED, DISAGREE, OWN_RANGE, SEND_RANGE, EXPECTED, TAKES, SRC_OWN, SRC_SUM, DST_OWN, SRC_SEND };

// Part is one tensor as its rank published it. Strides are in bytes.
struct Part {
    u64 src, dst;
    i64 srcStride, dstStride;
    u32 srcRows, dstRows, cols, dtype;
};

// Entry is what a rank tells its peers of one call.
struct __align__(16) Entry {
    u64 signature;
    u32 call; // number of the call in its rank's log on the host, for messages
    u32 numParts;
    u32 hostCounts; // bit 0: send is the host's; bit 1: recv is
    u32 sendLimit, recvLimit;
    u32 pad;
    Part parts[MAX_PARTS];
    int send[MAX_RANKS], recv[MAX_RANKS];
};

// Line is 8 bytes that arrive together with the epoch they belong to.
struct __align__(16) Line {
    u32 a, flagA, b, flagB;
};

// LINES carry an Entry; the first HEAD of them are what every call has.
#define LINES (sizeof(Entry) / 8)
#define HEAD 4u

// The buffer for small all_reduces: see small.cu.
#define SMALL_BYTES (64 << 10)
#define SMALL_LINES (SMALL_BYTES / 8)
#define SMALL_STRIDE (SMALL_LINES + 8) // lines of one source; line 0 is its header

// Record is an asynchronous error in pinned host memory. seq is written last.
struct Record {
    u64 seq, why, call, otherCall, epochSeen, epochWanted, missing, by;
    i64 a, b, n, limit;
    u64 group, phase, pad[2];
};

// Rank is one rank's words for all its groups.
struct Rank {
    u64 abort; // 0, or 1 + the world rank that raised it
    u64 numRecords;
    u64 pad[14];
};

// Ctl is one rank's end of a group.
struct Ctl {
    u64 epoch, launches;      // of this rank's kernels alone, in units of WHOLE
    u64 reported, doneBlocks; // the last launch with a record; blocks that have come to its end
    u64 timeout;                               // nanoseconds
    u64 hostAbort, records;                    // pinned host memory
    u32 rank, size, worldRank, worldSize;
    u64 group;
    u64 sent[MAX_RANKS], received[MAX_RANKS]; // messages to and from each rank
    Ctl *peers[MAX_RANKS];
    Rank *world[MAX_RANKS];
    u64 small[MAX_RANKS]; // where each rank receives small all_reduces
    u64 shift[MAX_RANKS]; // what turns a rank's addresses into this rank's; not 0 for ranks of other processes
    u64 tickets[2]; // chunks taken in even and odd epochs
    u64 pad[4];     // the words below begin a cache line
    // Written by peers, each in its own word.
    u64 done[MAX_RANKS], mail[MAX_RANKS], ack[MAX_RANKS];
    u64 closed[3][MAX_RANKS]; // first epoch, message and answer that will never come; 0 while the peer lives
    u64 answers[MAX_RANKS];   // call number << 1 | whether the shapes differ
    Line inbox[2][MAX_RANKS][LINES];
    Entry letters[MAX_RANKS];
};

// Args are a launch's parameters.
struct Args {
    Ctl *ctl;
    u32 kind, reduce, peer, entryWords; // entryWords: 16-byte words of the entry before its counts
    u64 own, all;                       // counts on the device
    u32 numOwn;
    u16 ragged, shared; // shared: bit 0: all ranks of the group are on one GPU; bit 1: some are in other processes
    Entry entry;
};

// MemoryArgs are the parameters of a copy in one address space.
struct MemoryArgs {
    u64 dst, src;
    i64 dstStride, srcStride;
    u64 rows, bytes;
};

struct Shared {
    Entry entries[MAX_RANKS]; // of all ranks, after begin
    Entry entry;
    u64 epoch;
    u64 total; // rows of an all-to-all, over all ranks
    u32 missing, bad, last, faults, more;
    int rows[MAX_RANKS + 1]; // prefix sums
};
