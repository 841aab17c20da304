// A small pool of threads that takes tasks from one counter.
//
// A caller works on its own tasks and never waits for a thread that has not begun one: on a busy machine a thread that
// gets no CPU costs nothing. Which thread does which task does not change any result. PyTorch's own threads (OpenMP)
// are idle meanwhile, as a model's step is one call.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

class Pool {
public:
    using Work = void (*)(const void* context, int task, int thread);

    // work(context, task, thread) for all tasks, by up to so many threads; `thread` is below `threads`.
    void run(int threads, int tasks, Work work, const void* context) {
        std::unique_lock<std::mutex> lock(busy_, std::try_to_lock);
        if (threads < 2 || tasks < 2 || !lock.owns_lock()) {  // another caller has the threads
            for (int task = 0; task < tasks; ++task) work(context, task, 0);
            return;
        }
        if (threads > MAX_THREADS) threads = MAX_THREADS;
        while (static_cast<int>(workers_.size()) < threads - 1)
            workers_.emplace_back(&Pool::serve, this, static_cast<int>(workers_.size()) + 1);
        work_ = work;
        context_ = context;
        tasks_ = tasks;
        done_.store(0, std::memory_order_relaxed);
        uint64_t generation = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
        ticket_.store(generation << 32 | uint64_t(threads) << 24 | uint64_t(tasks), std::memory_order_release);
        epoch_.store(static_cast<uint32_t>(generation), std::memory_order_release);
        epoch_.notify_all();
        take_tasks(0);
        for (int spins = 0; done_.load(std::memory_order_acquire) < tasks; ++spins) {
            if (spins < 4000) relax(); else std::this_thread::yield();
        }
    }

private:
    static constexpr int MAX_THREADS = 255;
    static constexpr int SPINS = 4000;  // some 50 µs: longer than the time between two phases of a step

    // A ticket holds a generation (32 bits), the threads that may take part (8) and the tasks left (24). Whoever takes
    // a task of this generation keeps the others waiting until it is done, so the job cannot change meanwhile.
    void take_tasks(int thread) {
        uint64_t ticket = ticket_.load(std::memory_order_acquire);
        for (;;) {
            uint64_t left = ticket & 0xFFFFFF;
            if (!left || thread >= static_cast<int>(ticket >> 24 & 0xFF)) return;
            if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel)) continue;
            work_(context_, tasks_ - static_cast<int>(left), thread);
            done_.fetch_add(1, std::memory_order_release);
            ticket = ticket_.load(std::memory_order_acquire);
        }
    }

    void serve(int thread) {
        uint32_t seen = 0;
        for (;;) {
            uint32_t epoch = epoch_.load(std::memory_order_acquire);
            for (int spins = 0; epoch == seen && spins < SPINS; ++spins) {
                relax();
                epoch = epoch_.load(std::memory_order_acquire);
            }
            if (epoch == seen) {
                epoch_.wait(seen, std::memory_order_acquire);
                continue;
            }
            seen = epoch;
            take_tasks(thread);
        }
    }

    std::mutex busy_;
    std::vector<std::thread> workers_;
    Work work_ = nullptr;
    const void* context_ = nullptr;
    int tasks_ = 0;
    alignas(64) std::atomic<uint64_t> ticket_{0};
    alignas(64) std::atomic<uint32_t> epoch_{0};
    alignas(64) std::atomic<int> done_{0};
};

// The pool of this process; a forked child has none of its parent's threads and begins with a new one.
inline Pool& pool() {
    static std::atomic<Pool*> current{nullptr};
    static std::atomic<int> owner{0};
    static std::mutex making;
    int process = static_cast<int>(getpid());
    if (owner.load(std::memory_order_acquire) != process) {
        std::lock_guard<std::mutex> lock(making);
        if (owner.load(std::memory_order_relaxed) != process) {
            current.store(new Pool, std::memory_order_release);  // never deleted: its threads wait for work until exit
            owner.store(process, std::memory_order_release);
        }
    }
    return *current.load(std::memory_order_acquire);
}

// body(task, thread) for all tasks.
template <class Body> void parallel(int threads, int tasks, const Body& body) {
    pool().run(
        threads, tasks,
        [](const void* context, int task, int thread) { (*static_cast<const Body*>(context))(task, thread); }, &body);
}

}  // namespace
