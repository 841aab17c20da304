// What happens to one row of activations between two products: quantisation, residual connection and layer norm,
// activation functions. A row is summed in one order, whatever batch it is in.
#pragma once

#include "simd.h"

namespace {

enum Activation { NO_ACTIVATION, RELU, SILU, GELU };

// The input of linear layers: float rows, or the same rows as bytes, `low + step · byte`.
struct Rows {
    const float* values;   // [rows, size]
    const uint8_t* bytes;  // [rows, byte_stride]; null in float32
    const float* step;     // [rows]
    const float* low;      // [rows]
    size_t stride;         // of values
    size_t byte_stride;    // a multiple of 4

    Rows from(int row) const {
        return {values + row * stride, bytes ? bytes + row * byte_stride : bytes, step + row, low + row, stride,
                byte_stride};
    }
};

// Spread a row over 0 … MAX_QUANTIZED. A row with a value that is not finite gets a step of NaN, and so do all results.
inline void quantize(const float* row, int size, uint8_t* bytes, size_t byte_stride, float* step, float* low) {
    Floats lowest = all(INFINITY), highest = all(-INFINITY), zero = all(0.0f);
    int whole = size / LANES * LANES;
    for (int i = 0; i < whole; i += LANES) {
        Floats v = load(row + i);
        lowest = smallest(v, lowest);
        highest = largest(v, highest);
        zero += v * 0.0f;
    }
    float minimum = -max(-lowest), maximum = max(highest), check = sum(zero);
    for (int i = whole; i < size; ++i) {
        minimum = row[i] < minimum ? row[i] : minimum;
        maximum = row[i] > maximum ? row[i] : maximum;
        check += row[i] * 0.0f;
    }
    float range = maximum - minimum;
    float width = (range > 1e-30f ? range : 1e-30f) / MAX_QUANTIZED;
    bool finite = check == 0.0f && range < INFINITY;
    *step = finite ? width : NAN;
    *low = finite ? minimum : NAN;
    std::memset(bytes + size, 0, byte_stride - size);
    if (!finite) return std::memset(bytes, 0, size), void();
    const float shift = 12582912.0f;  // rounds to the nearest integer, ties to even, as PyTorch does
    for (int i = 0; i < whole; i += LANES) {
        Ints rounded = (Ints)((load(row + i) - minimum) / width + shift) & 255;
        store(bytes + i, __builtin_convertvector(rounded, Bytes));
    }
    for (int i = whole; i < size; ++i) bytes[i] = static_cast<uint8_t>(std::nearbyint((row[i] - minimum) / width));
}

inline void add(float* row, const float* added, int size) {
    for (int i = 0; i < size; i += LANES) {
        int n = size - i;
        store_first(row + i, load_first(row + i, n) + load_first(added + i, n), n);
    }
}

// out = layer_norm(row), by the mean and then the variance about it; out may be row.
inline void normalize(const float* row, const float* gamma, const float* beta, float* out, int size) {
    Floats total{}, squares{};
    for (int i = 0; i < size; i += LANES) total += load_first(row + i, size - i);
    float mean = sum(total) / size;
    for (int i = 0; i < size; i += LANES) {
        int n = size - i;
        Floats centred = load_first(row + i, n) - mean;
        if (n < LANES)
            for (int lane = n; lane < LANES; ++lane) centred[lane] = 0.0f;
        squares += centred * centred;
    }
    float scale = 1.0f / std::sqrt(sum(squares) / size + 1e-5f);
    for (int i = 0; i < size; i += LANES) {
        int n = size - i;
        Floats v = (load_first(row + i, n) - mean) * scale;
        store_first(out + i, v * load_first(gamma + i, n) + load_first(beta + i, n), n);
    }
}

inline Floats activate(Floats v, Activation activation) {
    if (activation == RELU) return v < all(0.0f) ? all(0.0f) : v;
    if (activation == SILU) return v / (exponential(-v) + 1.0f);
    if (activation == GELU)
        for (int lane = 0; lane < LANES; ++lane) v[lane] *= 0.5f * (1.0f + std::erf(v[lane] * 0.70710678f));
    return v;
}

}  // namespace
