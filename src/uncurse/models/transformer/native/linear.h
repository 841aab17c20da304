// Linear layers in int8 and float32.
//
// Weights are packed once in panels of 64 outputs: in int8 [panels, inputs / 4, 64, 4], as the byte product takes four
// inputs at a time; in float32 [panels, inputs, 64]. The inner kernel holds a tile of TILE_ROWS rows × 64 outputs (or a
// part of them, where registers are fewer) in registers while it runs down all inputs, so that a weight is loaded once
// for several rows and a sum never leaves its register. A panel for 512 inputs has 32 kB in int8: it stays in the L1 or
// L2 cache while all rows of a group pass by. Every output is summed over its inputs in order: the result of a row is
// the same bit for bit, whatever rows are computed beside it and by whatever number of threads.
#pragma once

#include <cstdlib>

#include "pool.h"
#include "rows.h"

namespace {

constexpr int PANEL = 64;
constexpr int GROUP = 48;  // rows that go through a panel together

struct Linear {
    int outputs, inputs, panels;
    int8_t* bytes;   // packed; null in float32
    float* floats;   // packed; null in int8
    float* step;     // [panels · 64] of each output's weights, in int8
    float* sums;     // [panels · 64] the sum of each output's weights, in int8
    float* bias;     // [panels · 64], -inf after the last output
};

template <class T> T* allocate(size_t count) {
    return static_cast<T*>(std::aligned_alloc(64, (count * sizeof(T) + 63) / 64 * 64));
}

inline int padded_inputs(int inputs) { return (inputs + 3) / 4 * 4; }

// values: [outputs, inputs] int8 with a step for each output, or float32 with step = null. rows: the outputs to pack, if
// not all of them; vocabulary selection packs some for every sentence.
inline Linear* pack(int outputs, int inputs, const void* values, const float* step, const float* bias,
                    const int64_t* rows) {
    int panels = (outputs + PANEL - 1) / PANEL, padded = padded_inputs(inputs);
    size_t columns = size_t(panels) * PANEL;
    Linear* linear = new Linear{outputs, inputs, panels, nullptr, nullptr, nullptr, nullptr, allocate<float>(columns)};
    auto row = [&](size_t j) { return rows ? size_t(rows[j]) : j; };
    for (size_t j = 0; j < columns; ++j)
        linear->bias[j] = j < size_t(outputs) ? bias ? bias[row(j)] : 0.0f : -INFINITY;
    if (!step) {
        const float* from = static_cast<const float*>(values);
        linear->floats = allocate<float>(columns * inputs);
        for (size_t j = 0; j < columns; ++j)
            for (int i = 0; i < inputs; ++i)
                linear->floats[(j / PANEL * inputs + i) * PANEL + j % PANEL] =
                    j < size_t(outputs) ? from[row(j) * inputs + i] : 0.0f;
        return linear;
    }
    const int8_t* from = static_cast<const int8_t*>(values);
    linear->bytes = allocate<int8_t>(columns * padded);
    linear->step = allocate<float>(columns);
    linear->sums = allocate<float>(columns);
    for (size_t j = 0; j < columns; ++j) {
        bool real = j < size_t(outputs);
        int used = real ? inputs : 0;
        const int8_t* given = from + (real ? row(j) * inputs : 0);
        int8_t* to = linear->bytes + j / PANEL * padded * PANEL + j % PANEL * 4;
        int32_t total = 0;
        for (int i = 0; i < used; ++i) total += given[i];
        for (int i = 0; i < padded; i += 4, to += PANEL * 4) {
            int8_t four[4] = {};
            if (i + 4 <= used)
                std::memcpy(four, given + i, 4);
            else
                for (int n = 0; i + n < used; ++n) four[n] = given[i + n];
            std::memcpy(to, four, 4);
        }
        linear->step[j] = real ? step[row(j)] : 0.0f;
        linear->sums[j] = static_cast<float>(total) * linear->step[j];
    }
    return linear;
}

inline void release(Linear* linear) {
    std::free(linear->bytes);
    std::free(linear->floats);
    std::free(linear->step);
    std::free(linear->sums);
    std::free(linear->bias);
    delete linear;
}

// R rows × one panel, with the bias: tile[R][64].
template <int R> inline void int8_tile(const Linear& linear, const Rows& rows, int row, int panel, float* tile) {
    constexpr int V = TILE_VECTORS;
    int groups = padded_inputs(linear.inputs) / 4;
    const uint8_t* input = rows.bytes + row * rows.byte_stride;
    const int8_t* weights = linear.bytes + size_t(panel) * groups * PANEL * 4;
    for (int part = 0; part < PANEL; part += V * LANES) {
        Ints sums[R][V] = {};
        const int8_t* at = weights + part * 4;
        for (int g = 0; g < groups; ++g, at += PANEL * 4) {
            Ints weight[V];
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) weight[v] = load<Ints>(at + v * LANES * 4);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                int32_t four;
                std::memcpy(&four, input + r * rows.byte_stride + g * 4, 4);
                Ints given = Ints{} + four;
#pragma GCC unroll 8
                for (int v = 0; v < V; ++v) sums[r][v] = dot_bytes(sums[r][v], given, weight[v]);
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
            Floats step = all(rows.step[row + r]), low = all(rows.low[row + r]);
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) {
                size_t j = size_t(panel) * PANEL + part + v * LANES;
                Floats product = __builtin_convertvector(sums[r][v], Floats) * load(linear.step + j);
                Floats found = product * step + load(linear.bias + j);
                store(tile + r * PANEL + part + v * LANES, found + low * load(linear.sums + j));
            }
        }
    }
}

template <int R> inline void float_tile(const Linear& linear, const Rows& rows, int row, int panel, float* tile) {
    constexpr int V = TILE_VECTORS;
    const float* input = rows.values + row * rows.stride;
    const float* weights = linear.floats + size_t(panel) * linear.inputs * PANEL;
    for (int part = 0; part < PANEL; part += V * LANES) {
        Floats sums[R][V] = {};
        const float* at = weights + part;
        for (int i = 0; i < linear.inputs; ++i, at += PANEL) {
            Floats weight[V];
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) weight[v] = load(at + v * LANES);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                Floats given = all(input[r * rows.stride + i]);
#pragma GCC unroll 8
                for (int v = 0; v < V; ++v) sums[r][v] += given * weight[v];
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) {
                const float* bias = linear.bias + size_t(panel) * PANEL + part + v * LANES;
                store(tile + r * PANEL + part + v * LANES, sums[r][v] + load(bias));
            }
    }
}

template <int R> void tile_of(const Linear& linear, const Rows& rows, int row, int count, int panel, float* tile) {
    if constexpr (R > 1)
        if (count < R) return tile_of<R - 1>(linear, rows, row, count, panel, tile);
    linear.bytes ? int8_tile<R>(linear, rows, row, panel, tile) : float_tile<R>(linear, rows, row, panel, tile);
}

// Up to TILE_ROWS rows × one panel.
inline void compute_tile(const Linear& linear, const Rows& rows, int row, int count, int panel, float* tile) {
    tile_of<TILE_ROWS>(linear, rows, row, count, panel, tile);
}

// Row groups of nearly equal size, each a multiple of a tile.
struct Groups {
    int rows, count, size;
    explicit Groups(int rows) : rows(rows) {
        count = (rows + GROUP - 1) / GROUP;
        size = ((rows + count - 1) / count + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
        count = (rows + size - 1) / size;
    }
    int first(int group) const { return group * size; }
    int last(int group) const { return group + 1 == count ? rows : (group + 1) * size; }
};

// out = activation(rows · weights + bias), [rows, stride]; `finish(row)` is called for a row when it is complete, by the
// thread that completed its group.
template <class Finish>
void run_linear(int threads, const Linear& linear, const Rows& in, int rows, float* out, size_t stride,
                Activation activation, const Finish& finish) {
    Groups groups(rows);
    int per_task = groups.count * linear.panels / (8 * threads);
    per_task = per_task < 1 ? 1 : per_task > 8 ? 8 : per_task;
    int tasks = (linear.panels + per_task - 1) / per_task;  // of each group
    int* left = static_cast<int*>(std::malloc(groups.count * sizeof(int)));
    for (int group = 0; group < groups.count; ++group) left[group] = tasks;
    parallel(threads, groups.count * tasks, [&](int task, int) {
        alignas(64) float tile[TILE_ROWS * PANEL];
        int group = task / tasks, begin = task % tasks * per_task, end = begin + per_task;
        if (end > linear.panels) end = linear.panels;
        int first = groups.first(group), last = groups.last(group);
        for (int panel = begin; panel < end; ++panel) {
            int columns = linear.outputs - panel * PANEL;
            if (columns > PANEL) columns = PANEL;
            for (int row = first; row < last; row += TILE_ROWS) {
                int count = last - row < TILE_ROWS ? last - row : TILE_ROWS;
                compute_tile(linear, in, row, count, panel, tile);
                for (int r = 0; r < count; ++r) {
                    float* to = out + (row + r) * stride + panel * PANEL;
                    for (int j = 0; j < columns; j += LANES)
                        store_first(to + j, activate(load(tile + r * PANEL + j), activation), columns - j);
                }
            }
        }
        if (__atomic_sub_fetch(&left[group], 1, __ATOMIC_ACQ_REL) == 0)
            for (int row = first; row < last; ++row) finish(row);
    });
    std::free(left);
}

}  // namespace
