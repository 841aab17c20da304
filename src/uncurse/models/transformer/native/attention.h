// Attention of one row to a list of positions, each given by a pointer to its key; its value lies at a fixed distance.
//
// One kernel serves three uses. Self-attention of the decoder follows a prefix's own path through the tree of its
// beam, so that nodes of other prefixes are never read; cross-attention reads the positions of the row's own sentence,
// and so does the encoder: there is no padding and no mask. Heads are the outer loop: the keys that rows of one
// sentence share stay in the L1 and L2 caches from one row to the next.
#pragma once

#include "rows.h"

namespace {

// The dot products of a query with four keys; N registers a head, or any size with N = 0.
template <int N> inline void four_products(const float* query, const float* const* keys, int at, int size, float* out) {
    Floats totals[4] = {};
    if constexpr (N > 0) {
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v) {
            Floats part = load(query + v * LANES);
#pragma GCC unroll 4
            for (int p = 0; p < 4; ++p) totals[p] += part * load(keys[p] + at + v * LANES);
        }
    } else {
        for (int i = 0; i < size; i += LANES) {
            Floats part = load_first(query + i, size - i);
            for (int p = 0; p < 4; ++p) totals[p] += part * load_first(keys[p] + at + i, size - i);
        }
    }
    four_sums(totals, out);
}

// out = Σ weights[p] · value of p, for one head.
template <int N>
inline void weighted_sum(const float* const* keys, size_t to_value, const float* weights, float scale, int positions,
                         int size, float* out) {
    if constexpr (N > 0) {
        Floats total[N] = {};
        for (int p = 0; p < positions; ++p) {
            const float* value = keys[p] + to_value;
#pragma GCC unroll 8
            for (int v = 0; v < N; ++v) total[v] += weights[p] * load(value + v * LANES);
        }
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v) store(out + v * LANES, total[v] * scale);
        return;
    }
    for (int i = 0; i < size; i += LANES) {
        Floats total{};
        for (int p = 0; p < positions; ++p) total += weights[p] * load_first(keys[p] + to_value + i, size - i);
        store_first(out + i, total * scale, size - i);
    }
}

template <int N>
void attend_heads(const float* query, const float* const* keys, size_t to_value, int positions, int heads, int size,
                  float* scores, float* out, float* received) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(size));
    for (int head = 0; head < heads; ++head) {
        int at = head * size, whole = (positions + LANES - 1) / LANES * LANES, p = 0;
        for (; p + 4 <= positions; p += 4) four_products<N>(query + at, keys + p, at, size, scores + p);
        if (p < positions) {  // the last few, and the last of them again
            const float* rest[4];
            for (int i = 0; i < 4; ++i) rest[i] = keys[p + i < positions ? p + i : positions - 1];
            four_products<N>(query + at, rest, at, size, scores + p);
        }
        for (p = positions; p < whole; ++p) scores[p] = -INFINITY;
        Floats highest = load(scores), total{};  // unscaled: the scale is positive
        for (int p = LANES; p < whole; p += LANES) highest = largest(load(scores + p), highest);
        float top = max(highest);
        for (int p = 0; p < whole; p += LANES) {
            Floats weight = exponential((load(scores + p) - top) * scale);
            store(scores + p, weight);
            total += weight;
        }
        float norm = 1.0f / sum(total);
        weighted_sum<N>(keys, to_value + at, scores, norm, positions, size, out + at);
        if (received)
            for (int p = 0; p < positions; ++p) received[p] += scores[p] * norm / static_cast<float>(heads);
    }
}

// out = attention of one query, [heads · size]; `scores` has room for the positions, rounded up to a register. The mean
// over heads of what each position received is added to `received`, unless it is null.
inline void attend(const float* query, const float* const* keys, size_t to_value, int positions, int heads, int size,
                   float* scores, float* out, float* received) {
    constexpr int USUAL = 64 / LANES;
    if (size == 64)
        attend_heads<USUAL>(query, keys, to_value, positions, heads, size, scores, out, received);
    else
        attend_heads<0>(query, keys, to_value, positions, heads, size, scores, out, received);
}

}  // namespace
