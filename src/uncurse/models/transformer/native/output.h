// The output layer in one pass: product, bias, log-sum-exp and the k best tokens of each row; no logits are stored.
//
// The outputs of a row are one part, or two with vocabulary selection: those that all sentences have, and those of its
// own sentence. Parts are cut into chunks of 16 panels. A thread takes a chunk and lets all rows of a range pass by each
// of its panels. A tile of logits is consumed while it is in the L1 cache: exponentials are added up relative to a
// reference logit, and logits that reach the row's bar, a lower bound of its k-th best, are kept as candidates. Where
// tokens are ordered by frequency hardly any reach it after the first panels. The sums of the chunks are added in the
// order of the outputs, so that no result depends on the number of threads or on the batch.
#pragma once

#include <algorithm>

#include "linear.h"
#include "scratch.h"

namespace {

constexpr int CHUNK_PANELS = 16;
constexpr int RANGE = 384;        // rows whose inputs stay in the L2 cache
constexpr float LOWEST = -1e30f;  // a reference of -inf would give NaN
constexpr float MARGIN = 40.0f;   // by how much a logit may exceed the reference before sums are scaled anew

// Outputs of some rows.
struct Part {
    const Linear* linear;
    const int64_t* ids;         // the tokens of its outputs; null: the same
    int first, last;            // rows
    int before, chunks_before;  // outputs and chunks that these rows have in the part before
    int chunks() const { return (linear->panels + CHUNK_PANELS - 1) / CHUNK_PANELS; }
    bool has(int row) const { return first <= row && row < last; }
};

// The token of a row's output.
inline int64_t token_of(const Part* parts, int row, int output) {
    while (!parts->has(row) || output - parts->before >= parts->linear->outputs) ++parts;
    return parts->ids ? parts->ids[output - parts->before] : output;
}

struct Candidate {
    float logit;
    int32_t output;
    bool operator<(const Candidate& other) const {  // better: a higher logit, or the same and an earlier output
        return logit > other.logit || (logit == other.logit && output < other.output);
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
            reference = std::max(max(highest), LOWEST);
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

    void add(const float* logits, int32_t output, int columns) {
        for (int j = 0; j < columns; ++j)
            if (logits[j] >= bar) found[count++] = {logits[j], output + j};
        if (count > 2 * k) {
            std::nth_element(found, found + (k - 1), found + count);
            count = k;
            bar = found[k - 1].logit;
        }
    }
};

struct OutputTask {
    const Part* part;
    int first, last, chunk;
};

// The chunks of all parts for ranges of their rows; `count` becomes how many there are.
inline const OutputTask* output_tasks(const Part* parts, int& count) {
    int most = 0, tasks = 0;
    for (int p = 0; p < count; ++p) most += parts[p].chunks() * ((parts[p].last - parts[p].first) / RANGE + 1);
    OutputTask* found = scratch().get<OutputTask>(TASKS, most);
    for (const Part* part = parts; part < parts + count; ++part)
        for (int first = part->first; first < part->last; first += RANGE)
            for (int chunk = 0; chunk < part->chunks(); ++chunk)
                found[tasks++] = {part, first, std::min(first + RANGE, part->last), chunk};
    count = tasks;
    return found;
}

// Log-probabilities, [rows, k], falling, and ids of the k most likely tokens. A row whose logits are NaN has
// log-probabilities of NaN.
inline void top_k(int threads, const Part* parts, int count, const Rows& in, int rows, int k, int64_t* tokens,
                  double* log_probs) {
    int chunks = 0, capacity = 2 * k + PANEL;
    for (int p = 0; p < count; ++p) chunks = std::max(chunks, parts[p].chunks_before + parts[p].chunks());
    size_t slots = size_t(threads) * rows;
    Candidate* candidates = scratch().get<Candidate>(CANDIDATES, slots * capacity);
    int* counts = scratch().get<int>(COUNTS, slots);
    float* bars = scratch().get<float>(BARS, slots);
    Partial* partial = scratch().get<Partial>(PARTIAL, size_t(chunks) * rows);
    Floats* lane_sums = scratch().get<Floats>(LANE_SUMS, size_t(threads) * RANGE);
    float* references = scratch().get<float>(REFERENCES, size_t(threads) * RANGE);
    std::fill(counts, counts + slots, 0);
    std::fill(bars, bars + slots, -INFINITY);
    std::fill(partial, partial + size_t(chunks) * rows, Partial{LOWEST, 0.0f});  // rows may have fewer chunks
    const OutputTask* tasks = output_tasks(parts, count);
    parallel(threads, count, [&](int index, int thread) {
        alignas(64) float tile[TILE_ROWS * PANEL];
        const OutputTask& task = tasks[index];
        const Part& part = *task.part;
        const Linear& linear = *part.linear;
        int end = std::min((task.chunk + 1) * CHUNK_PANELS, linear.panels);
        for (int panel = task.chunk * CHUNK_PANELS; panel < end; ++panel)
            for (int row = task.first; row < task.last; row += TILE_ROWS) {
                int some = std::min(task.last - row, TILE_ROWS);
                int columns = std::min(linear.outputs - panel * PANEL, PANEL);
                compute_tile(linear, in, row, some, panel, tile);
                for (int r = 0; r < some; ++r) {
                    const float* logits = tile + r * PANEL;
                    size_t local = size_t(thread) * RANGE + row + r - task.first;
                    size_t slot = size_t(thread) * rows + row + r;
                    Floats highest = highest_of(logits);
                    RunningSum{lane_sums[local], references[local]}.add(logits, highest, panel % CHUNK_PANELS == 0);
                    if (any_at_least(highest, bars[slot]))
                        Best{candidates + slot * capacity, counts[slot], bars[slot], k}.add(
                            logits, part.before + panel * PANEL, columns);
                }
            }
        for (int row = task.first; row < task.last; ++row) {
            size_t local = size_t(thread) * RANGE + row - task.first;
            partial[size_t(part.chunks_before + task.chunk) * rows + row] = {references[local], sum(lane_sums[local])};
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
            tokens[size_t(row) * k + i] = token_of(parts, row, i < given ? found[i].output : i);
            log_probs[size_t(row) * k + i] = given == k ? found[i].logit - total : NAN;
        }
    });
}

// Log-probabilities of all tokens, [rows, vocab_size]; those that no part names have -inf.
inline void all_log_probs(int threads, const Part* parts, int count, const Rows& in, int rows, int vocab_size,
                          double* log_probs) {
    parallel(threads, rows, [&](int row, int) {
        alignas(64) float tile[TILE_ROWS * PANEL];
        int chunks = 0;
        for (int p = 0; p < count; ++p) chunks += parts[p].has(row) ? parts[p].chunks() : 0;
        double* out = log_probs + size_t(row) * vocab_size;
        std::fill(out, out + vocab_size, -INFINITY);
        Partial* partial = scratch().get<Partial>(PARTIAL, chunks);
        Floats sums{};
        float reference = 0.0f;
        for (const Part* part = parts; part < parts + count; ++part)
            for (int panel = 0; part->has(row) && panel < part->linear->panels; ++panel) {
                compute_tile(*part->linear, in, row, 1, panel, tile);
                RunningSum{sums, reference}.add(tile, highest_of(tile), panel % CHUNK_PANELS == 0);
                partial[part->chunks_before + panel / CHUNK_PANELS] = {reference, sum(sums)};
                for (int j = panel * PANEL; j < std::min((panel + 1) * PANEL, part->linear->outputs); ++j)
                    out[part->ids ? part->ids[j] : j] = tile[j % PANEL];
            }
        double total = log_sum_exp(partial, 1, chunks);
        for (int token = 0; token < vocab_size; ++token) out[token] -= total;
    });
}

}  // namespace
