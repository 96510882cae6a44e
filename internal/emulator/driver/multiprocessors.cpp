#include "multiprocessors.h"

#include <algorithm>

#include "settings.h"
#include "threads.h"

namespace {
constexpr uint32_t sm_threads = 2048, sm_blocks = 32, sm_shared = 228 << 10, reserved_shared = 1 << 10;

uint32_t warps(uint32_t threads) { return (threads + 31) / 32 * 32; }
}  // namespace

uint32_t occupancy(uint32_t threads, uint32_t shared) {
    return std::min({sm_blocks, sm_threads / std::max(warps(threads), 32u), sm_shared / (shared + reserved_shared)});
}

void Multiprocessors::place(std::vector<Place> &places) {
    if (sms_.empty())
        sms_.resize(size_t(settings().sms));
    while (!waiting_.empty()) {
        Blocks *b = waiting_.front();
        const uint32_t threads = warps(b->threads), shared = b->shared + reserved_shared;
        SM *best = nullptr;
        for (SM &sm : sms_)
            if (sm.threads + threads <= sm_threads && sm.blocks < sm_blocks && sm.shared + shared <= sm_shared &&
                (best == nullptr || sm.blocks < best->blocks))
                best = &sm;
        if (best == nullptr)
            return;
        best->threads += threads;
        best->shared += shared;
        best->blocks++;
        places.push_back({b, b->next++, uint32_t(best - sms_.data())});
        if (b->next == b->total)
            waiting_.pop_front();
    }
}

void Multiprocessors::begin(const std::vector<Place> &places, size_t from) {
    for (size_t i = from; i < places.size(); i++)
        pooled([this, p = places[i]] { carry(p, false); });
}

void Multiprocessors::carry(Place p, bool once) {
    for (;;) {
        late();
        Blocks *b = p.blocks;
        b->run(p.index);
        std::vector<Place> places;
        {
            std::lock_guard lock(mu_);
            SM &sm = sms_[p.sm];
            sm.threads -= warps(b->threads);
            sm.shared -= b->shared + reserved_shared;
            sm.blocks--;
            place(places);
        }
        begin(places, once ? 0 : 1);
        // The last touch of b: its owner may go on as soon as left is 0. A wake of a word that is gone does no harm.
        if (b->left.fetch_sub(1, std::memory_order_acq_rel) == 1)
            wake(b->left);
        if (once || places.empty())
            return;
        p = places[0];
    }
}

void Multiprocessors::run(Blocks &b) {
    b.left = b.total;
    b.next = 0;
    std::vector<Place> places;
    {
        std::lock_guard lock(mu_);
        waiting_.push_back(&b);
        place(places);
    }
    // The stream's own thread takes the first of its blocks and no other stream's.
    size_t own = 0;
    while (own < places.size() && places[own].blocks != &b)
        own++;
    if (own < places.size()) {
        const Place first = places[own];
        places.erase(places.begin() + ptrdiff_t(own));
        begin(places, 0);
        carry(first, true);
    } else {
        begin(places, 0);
    }
    for (uint32_t left; (left = b.left.load(std::memory_order_acquire)) != 0;)
        park(b.left, left);
}
