// Vectors of one register's width, by the compiler's vector extensions; only the dot product of bytes needs intrinsics.
//
// The same sources are compiled once for every instruction set, each into a library of its own, so that no function
// compiled for AVX-512 can end up in the code for a CPU without it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX512VNNI__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512VNNI__)
constexpr int LANES = 16;           // floats in a register
constexpr int TILE_VECTORS = 4;     // registers of outputs in a tile: 4 · 16 = 64
constexpr int TILE_ROWS = 6;        // 6 · 4 accumulators, 4 of weights and 1 of inputs: 29 of 32 registers
constexpr int MAX_QUANTIZED = 255;  // the largest input of the byte product
#elif defined(__AVX2__)
constexpr int LANES = 8;
constexpr int TILE_VECTORS = 2;     // a tile of 64 outputs in four passes
constexpr int TILE_ROWS = 4;        // 4 · 2 accumulators, 2 of weights, 1 of inputs, 2 temporaries: 13 of 16 registers
constexpr int MAX_QUANTIZED = 127;  // pairs of products are added in 16 bits: 2 · 127 · 127 fits, 2 · 255 · 127 does not
#else
constexpr int LANES = 4;
constexpr int TILE_VECTORS = 2;
constexpr int TILE_ROWS = 2;
constexpr int MAX_QUANTIZED = 255;
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint8_t Bytes __attribute__((vector_size(LANES)));

inline Floats all(float value) { return Floats{} + value; }

template <class Vector = Floats> inline Vector load(const void* from) {
    Vector vector;
    std::memcpy(&vector, from, sizeof vector);
    return vector;
}

template <class Vector> inline void store(void* to, Vector vector) { std::memcpy(to, &vector, sizeof vector); }

// The first n floats, the rest zero: for sizes that are no multiple of a register.
inline Floats load_first(const float* from, int n) {
    if (n >= LANES) return load(from);
    Floats vector{};
    for (int i = 0; i < n; ++i) vector[i] = from[i];
    return vector;
}

inline void store_first(float* to, Floats vector, int n) {
    if (n >= LANES) return store(to, vector);
    for (int i = 0; i < n; ++i) to[i] = vector[i];
}

inline Floats largest(Floats a, Floats b) { return a > b ? a : b; }
inline Floats smallest(Floats a, Floats b) { return a < b ? a : b; }

// Horizontal operations by halves, always in the same order.
#if defined(__AVX512VNNI__)
inline float sum(Floats v) { return _mm512_reduce_add_ps((__m512)v); }
inline float max(Floats v) { return _mm512_reduce_max_ps((__m512)v); }
#elif defined(__AVX2__)
inline float sum(Floats v) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float max(Floats v) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
#else
inline float sum(Floats v) { return (v[0] + v[2]) + (v[1] + v[3]); }
inline float max(Floats v) {
    float a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
    return a > b ? a : b;
}
#endif

// The sums of four vectors, at less than half the cost of one at a time.
inline void four_sums(const Floats (&v)[4], float* out) {
#if defined(__AVX512VNNI__)
    __m512 a = (__m512)v[0], b = (__m512)v[1], c = (__m512)v[2], d = (__m512)v[3];
    __m512d ab = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
    __m512d cd = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d)));
    __m512 all = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)), _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
#elif defined(__AVX2__)
    __m256 ab = _mm256_hadd_ps((__m256)v[0], (__m256)v[1]), cd = _mm256_hadd_ps((__m256)v[2], (__m256)v[3]);
    __m256 all = _mm256_hadd_ps(ab, cd);
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
#else
    for (int i = 0; i < 4; ++i) out[i] = sum(v[i]);
#endif
}

inline bool any_at_least(Floats v, float bar) {
#if defined(__AVX512VNNI__)
    return _mm512_cmp_ps_mask((__m512)v, _mm512_set1_ps(bar), _CMP_GE_OQ);
#elif defined(__AVX2__)
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)v, _mm256_set1_ps(bar), _CMP_GE_OQ));
#else
    return v[0] >= bar || v[1] >= bar || v[2] >= bar || v[3] >= bar;
#endif
}

// e^x within 2e-7, by Cephes' polynomial; below -87 it is e^-87, which no float32 sum with a term of 1 notices.
inline Floats exponential(Floats x) {
    x = smallest(largest(x, all(-87.0f)), all(88.0f));
    const float shift = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer, which the low bits then hold
    Floats shifted = x * 1.44269504f + shift, n = shifted - shift;
    Floats r = x - n * 0.693359375f + n * 2.12194440e-4f;
    Floats p = all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (Floats)(((Ints)shifted << 23) + 0x3F800000);
}

// sums + inputs · weights for groups of four unsigned inputs and four signed weights.
inline Ints dot_bytes(Ints sums, Ints inputs, Ints weights) {
#if defined(__AVX512VNNI__)
    return (Ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)inputs, (__m512i)weights);
#elif defined(__AVX2__)
    __m256i pairs = _mm256_maddubs_epi16((__m256i)inputs, (__m256i)weights);
    return sums + (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#else
    Ints low = (inputs & 255) * ((weights << 24) >> 24), second = ((inputs >> 8) & 255) * ((weights << 16) >> 24);
    Ints third = ((inputs >> 16) & 255) * ((weights << 8) >> 24), high = ((inputs >> 24) & 255) * (weights >> 24);
    return sums + low + second + third + high;
#endif
}

}  // namespace
