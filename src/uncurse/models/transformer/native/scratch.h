// Memory that a thread keeps from one call to the next: fresh pages would cost more than what is computed in them.
#pragma once

#include <cstdlib>

namespace {

class Scratch {
public:
    ~Scratch() {
        for (Block& block : blocks_) std::free(block.start);
    }

    // The memory of a slot, for at least `count` values; what it held before may be lost.
    template <class T> T* get(int slot, size_t count) {
        Block& block = blocks_[slot];
        size_t bytes = (count * sizeof(T) + 64) / 64 * 64;
        if (bytes > block.bytes) {
            std::free(block.start);
            block.bytes = bytes + bytes / 2 / 64 * 64;
            block.start = std::aligned_alloc(64, block.bytes);
        }
        return static_cast<T*>(block.start);
    }

private:
    struct Block {
        void* start = nullptr;
        size_t bytes = 0;
    };
    Block blocks_[23];
};

inline Scratch& scratch() {
    static thread_local Scratch kept;
    return kept;
}

enum Slot {  // of scratch memory; no two live at the same time share one
    STATES, PROJECTED, ATTENDED, ADDED, INNER, BYTES, INNER_BYTES, STEP, LOW, INNER_STEP, INNER_LOW,
    SCORES, KEYS, NODES, CANDIDATES, COUNTS, BARS, PARTIAL, LANE_SUMS, REFERENCES, NORMED, PARTS,
    TASKS
};

}  // namespace
