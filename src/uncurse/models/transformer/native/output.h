// The output layer in one pass: product, bias, log-sum-exp and the k best tokens of each row; no logits are stored.
//
// The vocabulary is cut into chunks of 16 panels. A thread takes a chunk and lets all rows of a range pass by each of
// its panels. A tile of logits is consumed while it is in the L1 cache: exponentials are added up relative to a
// reference logit, and logits that reach the row's bar, a lower bound of its k-th best, are kept as candidates. Where
// tokens are ordered by frequency hardly any reach it after the first panels. The sums of the chunks are added in the
// order of the vocabulary, so that no result depends on the number of threads or on the batch.
#pragma once

#include <algorithm>

#include "linear.h"
#include "scratch.h"

namespace {

constexpr int CHUNK_PANELS = 16;
constexpr int RANGE = 384;       // rows whose inputs stay in the L2 cache
constexpr float MARGIN = 40.0f;  // by how much a logit may exceed the reference before sums are scaled anew

struct Candidate {
    float logit;
    int32_t token;
    bool operator<(const Candidate& other) const {  // better: a higher logit, or the same and a lower token id
        return logit > other.logit || (logit == other.logit && token < other.token);
    }
};

struct Partial {  // Σ exp(logit) of a chunk = sum · exp(reference)
    float reference, sum;
};

inline double log_sum_exp(const Partial* partial, size_t stride, int chunks) {
    float top = partial[0].reference;
    for (int c = 1; c < chunks; ++c) top = std::max(top, partial[c * stride].reference);
    double total = 0.0;
    for (int c = 0; c < chunks; ++c)
        total += partial[c * stride].sum * std::exp(static_cast<double>(partial[c * stride].reference) - top);
    return top + std::log(total);
}

// The running sum of one row within a chunk.
struct RunningSum {
    Floats& sums;
    float& reference;

    void add(const float* logits, Floats highest, bool first) {
        if (first) {
            reference = std::max(max(highest), -1e30f);  // a reference of -inf would give NaN
            sums = Floats{};
        } else if (any_at_least(highest, reference + MARGIN)) {
            float top = max(highest);
            sums *= exponential(all(reference - top));
            reference = top;
        }
#pragma GCC unroll 16
        for (int j = 0; j < PANEL; j += LANES) sums += exponential(load(logits + j) - reference);
    }
};

inline Floats highest_of(const float* logits) {
    Floats highest = load(logits);
#pragma GCC unroll 16
    for (int j = LANES; j < PANEL; j += LANES) highest = largest(load(logits + j), highest);
    return highest;
}

// The candidates of one row, unordered; when they are many, the k best are kept and the bar rises.
struct Best {
    Candidate* found;
    int& count;
    float& bar;
    int k;

    void add(const float* logits, int32_t token) {
        for (int j = 0; j < PANEL; ++j)
            if (logits[j] >= bar) found[count++] = {logits[j], token + j};
        if (count > 2 * k) {
            std::nth_element(found, found + (k - 1), found + count);
            count = k;
            bar = found[k - 1].logit;
        }
    }
};

// Log-probabilities, [rows, k], falling, and ids of the k most likely tokens. `ids` maps outputs to tokens; null: the
// same. A row whose logits are NaN has log-probabilities of NaN.
inline void top_k(int threads, const Linear& linear, const Rows& in, int rows, int k, const int64_t* ids,
                  int64_t* tokens, double* log_probs) {
    int chunks = (linear.panels + CHUNK_PANELS - 1) / CHUNK_PANELS, ranges = (rows + RANGE - 1) / RANGE;
    int capacity = 2 * k + PANEL;
    size_t slots = size_t(threads) * rows;
    Candidate* candidates = scratch().get<Candidate>(CANDIDATES, slots * capacity);
    int* counts = scratch().get<int>(COUNTS, slots);
    float* bars = scratch().get<float>(BARS, slots);
    Partial* partial = scratch().get<Partial>(PARTIAL, size_t(chunks) * rows);
    Floats* lane_sums = scratch().get<Floats>(LANE_SUMS, size_t(threads) * RANGE);
    float* references = scratch().get<float>(REFERENCES, size_t(threads) * RANGE);
    std::fill(counts, counts + slots, 0);
    std::fill(bars, bars + slots, -INFINITY);
    parallel(threads, ranges * chunks, [&](int task, int thread) {
        alignas(64) float tile[TILE_ROWS * PANEL];
        int chunk = task % chunks, first = task / chunks * RANGE, last = std::min(first + RANGE, rows);
        int end = std::min((chunk + 1) * CHUNK_PANELS, linear.panels);
        for (int panel = chunk * CHUNK_PANELS; panel < end; ++panel)
            for (int row = first; row < last; row += TILE_ROWS) {
                int count = std::min(last - row, TILE_ROWS);
                compute_tile(linear, in, row, count, panel, tile);
                for (int r = 0; r < count; ++r) {
                    const float* logits = tile + r * PANEL;
                    size_t local = size_t(thread) * RANGE + row + r - first, slot = size_t(thread) * rows + row + r;
                    Floats highest = highest_of(logits);
                    RunningSum{lane_sums[local], references[local]}.add(logits, highest, panel % CHUNK_PANELS == 0);
                    if (any_at_least(highest, bars[slot]))
                        Best{candidates + slot * capacity, counts[slot], bars[slot], k}.add(logits, panel * PANEL);
                }
            }
        for (int row = first; row < last; ++row) {
            size_t local = size_t(thread) * RANGE + row - first;
            partial[size_t(chunk) * rows + row] = {references[local], sum(lane_sums[local])};
        }
    });
    parallel(threads, rows, [&](int row, int) {
        Candidate* found = candidates + size_t(row) * capacity;
        int count = counts[row];
        for (int thread = 1; thread < threads; ++thread) {  // into the first thread's place: it has room for two
            size_t slot = size_t(thread) * rows + row;
            if (count > k) std::nth_element(found, found + (k - 1), found + count);
            count = std::min(count, k);
            Candidate* others = candidates + slot * capacity;
            int more = counts[slot];
            if (more > k) std::nth_element(others, others + (k - 1), others + more);
            more = std::min(more, k);
            std::copy(others, others + more, found + count);
            count += more;
        }
        int given = std::min(count, k);
        std::partial_sort(found, found + given, found + count);
        double total = log_sum_exp(partial + row, rows, chunks);
        for (int i = 0; i < k; ++i) {
            int32_t token = i < given ? found[i].token : i;
            tokens[size_t(row) * k + i] = ids ? ids[token] : token;
            log_probs[size_t(row) * k + i] = given == k ? found[i].logit - total : NAN;
        }
    });
}

// Log-probabilities of all tokens, [rows, vocab_size]; those that `ids` does not name have -inf.
inline void all_log_probs(int threads, const Linear& linear, const Rows& in, int rows, int vocab_size,
                          const int64_t* ids, double* log_probs) {
    parallel(threads, rows, [&](int row, int) {
        alignas(64) float tile[TILE_ROWS * PANEL];
        int chunks = (linear.panels + CHUNK_PANELS - 1) / CHUNK_PANELS;
        double* out = log_probs + size_t(row) * vocab_size;
        std::fill(out, out + vocab_size, -INFINITY);
        Partial* partial = scratch().get<Partial>(PARTIAL, chunks);
        Floats sums{};
        float reference = 0.0f;
        for (int panel = 0; panel < linear.panels; ++panel) {
            compute_tile(linear, in, row, 1, panel, tile);
            RunningSum{sums, reference}.add(tile, highest_of(tile), panel % CHUNK_PANELS == 0);
            partial[panel / CHUNK_PANELS] = {reference, sum(sums)};
            for (int j = 0; j < PANEL && panel * PANEL + j < linear.outputs; ++j) {
                int output = panel * PANEL + j;
                out[ids ? ids[output] : output] = tile[j];
            }
        }
        double total = log_sum_exp(partial, 1, chunks);
        for (int token = 0; token < vocab_size; ++token) out[token] -= total;
    });
}

}  // namespace
