#include "threads.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <vector>

#include "futex.h"

namespace {
constexpr size_t stack_bytes = 512 << 10, alternate_bytes = 64 << 10;

// Faults stay deliverable, on a stack of their own, so that Go's handler can print the address.
void *enter(void *p) {
    std::unique_ptr<std::function<void()>> fn(static_cast<std::function<void()> *>(p));
    stack_t alternate = {};
    alternate.ss_sp = malloc(alternate_bytes);
    alternate.ss_size = alternate_bytes;
    sigaltstack(&alternate, nullptr);
    (*fn)();
    fn.reset();
    alternate.ss_flags = SS_DISABLE;
    void *memory = alternate.ss_sp;
    sigaltstack(&alternate, nullptr);
    free(memory);
    return nullptr;
}

struct Worker {
    Word turn{0};
    std::function<void()> fn;
};

std::mutex idle_mu;
std::vector<Worker *> &idle() {
    static auto &list = *new std::vector<Worker *>;
    return list;
}

void work(Worker *w) {
    for (;;) {
        w->fn();
        w->fn = nullptr;
        uint32_t now = w->turn.load();
        {
            std::lock_guard lock(idle_mu);
            idle().push_back(w);
        }
        while (w->turn.load(std::memory_order_acquire) == now)
            park(w->turn, now);
    }
}
}  // namespace

void spawn(std::function<void()> fn) {
    sigset_t all, before;
    sigfillset(&all);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
        sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, stack_bytes);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    if (pthread_create(&thread, &attr, enter, new std::function<void()>(std::move(fn))) != 0) {
        fprintf(stderr, "weft emulator: cannot start a thread\n");
        abort();
    }
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void pooled(std::function<void()> fn) {
    Worker *w = nullptr;
    {
        std::lock_guard lock(idle_mu);
        if (!idle().empty()) {
            w = idle().back();
            idle().pop_back();
        }
    }
    if (w != nullptr) {
        w->fn = std::move(fn);
        w->turn.fetch_add(1, std::memory_order_release);
        wake(w->turn, 1);
        return;
    }
    w = new Worker;
    w->fn = std::move(fn);
    spawn([w] { work(w); });
}
