#include "arena.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device.h"

namespace {
constexpr size_t arena_bytes = size_t(1) << 42;  // of a sparse file
constexpr char prefix[] = "/memfd:weft-gpu-";
}  // namespace

size_t page_bytes() {
    static const size_t bytes = size_t(sysconf(_SC_PAGESIZE));
    return bytes;
}

int memory_file(int device, size_t bytes) {
    char name[32];
    snprintf(name, sizeof name, "weft-gpu-%d", device);
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, off_t(bytes)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int device_of(int fd) {
    char path[64], name[128];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, name, sizeof name - 1);
    if (n <= 0)
        return -1;
    name[n] = 0;
    return strncmp(name, prefix, sizeof prefix - 1) == 0 ? atoi(name + sizeof prefix - 1) : -1;
}

int64_t Arena::take(size_t bytes) {
    std::lock_guard lock(mu_);
    if (fd_ < 0) {
        if ((fd_ = memory_file(device_, arena_bytes)) < 0)
            return -1;
        free_[0] = arena_bytes;
    }
    for (auto it = free_.begin(); it != free_.end(); ++it) {
        auto [offset, size] = *it;
        if (size < bytes)
            continue;
        free_.erase(it);
        if (size > bytes)
            free_[offset + int64_t(bytes)] = size - bytes;
        return offset;
    }
    return -1;
}

void Arena::give(int64_t offset, size_t bytes) {
    std::lock_guard lock(mu_);
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, off_t(bytes));
    auto after = free_.lower_bound(offset);
    if (after != free_.end() && offset + int64_t(bytes) == after->first) {
        bytes += after->second;
        after = free_.erase(after);
    }
    if (after != free_.begin()) {
        auto before = std::prev(after);
        if (before->first + int64_t(before->second) == offset) {
            before->second += bytes;
            return;
        }
    }
    free_[offset] = bytes;
}

Arena &arena_of(int device) {
    static auto &list = *[] {
        auto *l = new std::vector<Arena *>;
        for (Device *d : devices())
            l->push_back(new Arena(d->ordinal));
        return l;
    }();
    return *list[size_t(device)];
}

uintptr_t map_guarded(int fd, int64_t offset, size_t bytes) {
    const size_t page = page_bytes();
    void *all = mmap(nullptr, bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return 0;
    void *at = static_cast<char *>(all) + page;
    const int flags = MAP_FIXED | MAP_NORESERVE | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, flags, fd, fd < 0 ? 0 : offset) == MAP_FAILED) {
        munmap(all, bytes + 2 * page);
        return 0;
    }
    return reinterpret_cast<uintptr_t>(at);
}

void unmap_guarded(uintptr_t addr, size_t bytes) {
    munmap(reinterpret_cast<void *>(addr - page_bytes()), bytes + 2 * page_bytes());
}
