// Files without a name that hold device memory, so that other processes can map it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

size_t page_bytes();
inline size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// poison is the byte that fresh memory is filled with: floats of it are NaN.
constexpr int poison = 0xff;

// memory_file returns a file of bytes whose name tells its device, or -1.
int memory_file(int device, size_t bytes);
// device_of returns the device of a memory_file of any process, and -1 for other files.
int device_of(int fd);

// Arena is one file for all memory of cuMemAlloc of a device; a file each would use up the descriptors.
class Arena {
  public:
    explicit Arena(int device) : device_(device) {}
    // take returns the offset of bytes, a multiple of the page; -1 when the file cannot be made.
    int64_t take(size_t bytes);
    void give(int64_t offset, size_t bytes);
    int fd() const { return fd_; }

  private:
    const int device_;
    std::mutex mu_;
    int fd_ = -1;
    std::map<int64_t, size_t> free_;
};

Arena &arena_of(int device);

// map_guarded maps bytes (whole pages) of a file, or anonymous memory for -1, with a page on both sides that faults. It returns
// the first byte, 0 on failure. shared: writes reach the file.
uintptr_t map_guarded(int fd, int64_t offset, size_t bytes);
void unmap_guarded(uintptr_t addr, size_t bytes);
