// A step of the decoder: every live prefix is fed its last token, and the most likely next tokens come out.
#pragma once

#include "network.h"

namespace {

// The prefixes of a step and the KV caches of their sentences.
struct Step {
    int32_t rows, path_length;
    const int64_t* tokens;      // [rows] vocab_size: none, whose embedding is zero
    const int32_t* positions;   // [rows]
    const int32_t* sentence;    // [rows]
    const int32_t* paths;       // [rows, path_length] nodes of the prefix; the last one is new, negative ones are none
    float* const* trees;        // [sentences] each [decoder layers, capacity, cache stride]
    const int32_t* capacities;  // [sentences]
    const float* const* sources;     // [sentences] each [positions, cache stride] of the first layer
    const int64_t* source_strides;   // [sentences] floats from one layer to the next
    const int32_t* source_lengths;   // [sentences]
    const Linear* const* outputs;    // [sentences] the output layer for the tokens of each, or null: the network's
    const int64_t* const* allowed;   // [sentences] those tokens
    const Linear* common;            // beside `outputs`, for other tokens that all sentences have, or null
    const int64_t* common_allowed;   // those tokens
};

// Continuations of a step; k = 0: log-probabilities of all tokens, [rows, vocab_size]; log_probs = null: none, as while
// a prompt is fed.
struct Found {
    int32_t k, received_stride;
    int64_t* tokens;    // [rows, k]
    double* log_probs;  // [rows, k]
    float* received;    // [rows, received_stride] mean cross-attention of the last layer, or null
};

// Self-attention along the path of a row. Its own key and value are stored in the tree, too.
inline void attend_to_path(const Network& network, const Step& step, int layer, int row, const float* projected,
                           float* attended, float* scores, const float** keys) {
    int size = network.d_model, sentence = step.sentence[row], positions = 0;
    size_t stride = network.cache_stride();
    float* tree = step.trees[sentence] + size_t(layer) * step.capacities[sentence] * stride;
    const int32_t* path = step.paths + size_t(row) * step.path_length;
    const float* query = projected + size_t(row) * 3 * size;
    std::copy(query + size, query + 3 * size, tree + path[step.path_length - 1] * stride);
    for (int i = 0; i < step.path_length; ++i)
        if (path[i] >= 0) keys[positions++] = tree + path[i] * stride;
    attend(query, keys, size, positions, network.heads, network.head_size(), scores, attended, nullptr);
}

inline void attend_to_source(const Network& network, const Step& step, int layer, int row, const float* projected,
                             float* attended, float* scores, const float** keys, float* received) {
    int sentence = step.sentence[row], positions = step.source_lengths[sentence];
    const float* source = step.sources[sentence] + layer * step.source_strides[sentence];
    for (int p = 0; p < positions; ++p) keys[p] = source + p * network.cache_stride();
    attend(projected + size_t(row) * network.d_model, keys, network.d_model, positions, network.heads,
           network.head_size(), scores, attended, received);
}

// The output layers of all rows; `count` becomes how many there are.
inline const Part* output_parts(const Network& network, const Step& step, int& count) {
    Part* parts = scratch().get<Part>(PARTS, step.rows + 1);
    count = 1;
    parts[0] = {network.output, network.allowed, 0, step.rows, 0, 0};
    if (!step.outputs) return parts;
    parts[0].linear = step.common;
    parts[0].ids = step.common_allowed;
    count = step.common ? 1 : 0;
    int before = count ? step.common->outputs : 0, chunks = count ? parts[0].chunks() : 0;
    for (int first = 0, last; first < step.rows; first = last) {  // rows with the same output layer together
        int sentence = step.sentence[first];
        auto same = [&](int row) { return step.outputs[step.sentence[row]] == step.outputs[sentence]; };
        for (last = first + 1; last < step.rows && same(last);) ++last;
        parts[count++] = {step.outputs[sentence], step.allowed[sentence], first, last, before, chunks};
    }
    return parts;
}

inline void decode(const Network& network, int threads, const Step& step, int sentences, const Found& found) {
    int size = network.d_model;
    int longest = *std::max_element(step.source_lengths, step.source_lengths + sentences);
    Run run(network, threads, step.rows);
    run.embed_rows(network.decoder_start, step.tokens, step.positions);
    for (int index = 0; index < network.decoder_layers; ++index) {
        const Layer& layer = network.layers[network.encoder_layers + index];
        bool last = index + 1 == network.decoder_layers;
        run.project(*layer.query_key_value, run.projected, 3 * size);
        run.attend_rows(step.path_length, [&](int row, float* attended, float* scores, const float** keys) {
            attend_to_path(network, step, index, row, run.projected, attended, scores, keys);
        });
        run.finish_attention(*layer.attention_output, layer.attention_norm);
        run.project(*layer.cross_query, run.projected, size);
        run.attend_rows(longest, [&](int row, float* attended, float* scores, const float** keys) {
            float* received = last && found.received ? found.received + size_t(row) * found.received_stride : nullptr;
            attend_to_source(network, step, index, row, run.projected, attended, scores, keys, received);
        });
        run.finish_attention(*layer.cross_output, layer.cross_norm);
        run.feed_forward(layer);
    }
    if (!found.log_probs) return;
    int count;
    const Part* parts = output_parts(network, step, count);
    if (found.k)
        top_k(threads, parts, count, run.input(), step.rows, found.k, found.tokens, found.log_probs);
    else
        all_log_probs(threads, parts, count, run.input(), step.rows, network.vocab_size, found.log_probs);
}

}  // namespace
