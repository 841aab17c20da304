// The encoder and a step of the decoder, each in one call.
//
// Rows are never padded: those of all sentences follow one another, and each says which sentence it belongs to. A step
// has eight phases a layer (six products and two attentions) with a barrier between them; what concerns one row alone,
// such as layer norm and quantisation for the next product, is done by the thread that completed it.
#pragma once

#include "attention.h"
#include "output.h"

namespace {

constexpr int ROW_PADDING = 16;  // floats after each cached key and value, so that rows do not share sets of the L1 cache

struct Norm {
    const float *gamma, *beta;  // null: none
};

// The encoder's or the decoder's way from tokens to its first layer.
struct Start {
    const float* positions;  // [positions, d_model]
    Norm embedding_norm;
    Norm first_norm;  // in a pre-norm model, of the first sublayer
};

// Of the encoder without, of the decoder with cross-attention. A norm is the one after a sublayer: its own in a post-norm
// model; in a pre-norm model that of the next sublayer or, after the last one, of the end.
struct Layer {
    const Linear *query_key_value, *attention_output, *inner, *outer, *cross_query, *cross_key_value, *cross_output;
    Norm attention_norm, feed_forward_norm, cross_norm;
};

struct Network {
    int d_model, heads, encoder_layers, decoder_layers, vocab_size;
    Activation activation;
    bool pre_norm;
    float embedding_multiplier;
    const void* embeddings;        // [vocab_size, d_model] int8 with scales, or float32
    const float* embedding_scale;  // [vocab_size], or null
    Start encoder_start, decoder_start;
    const Linear* output;
    const int64_t* allowed;  // the tokens of the outputs, or null: all
    Layer* layers;           // those of the encoder first

    bool quantized() const { return output->bytes; }
    int head_size() const { return d_model / heads; }
    size_t cache_stride() const { return 2 * d_model + ROW_PADDING; }  // of a node or position: its key and its value
};

inline void embed(const Network& network, const float* encoding, int64_t token, float* row) {
    int size = network.d_model;
    if (token >= network.vocab_size) return std::copy(encoding, encoding + size, row), void();
    float scale = network.embedding_multiplier;
    if (network.embedding_scale) {
        const int8_t* from = static_cast<const int8_t*>(network.embeddings) + token * size;
        float divisor = network.embedding_scale[token];
        for (int i = 0; i < size; ++i) row[i] = from[i] / divisor * scale + encoding[i];
    } else {
        const float* from = static_cast<const float*>(network.embeddings) + token * size;
        for (int i = 0; i < size; ++i) row[i] = from[i] * scale + encoding[i];
    }
}

// The activations of a call, and the phases of a layer.
class Run {
public:
    Run(const Network& network, int threads, int rows)
        : network_(network), threads_(threads), rows_(rows), size_(network.d_model), inner_size_(0) {
        int layers = network.encoder_layers + network.decoder_layers;
        for (int i = 0; i < layers; ++i) inner_size_ = std::max(inner_size_, network.layers[i].inner->outputs);
        Scratch& kept = scratch();
        states_ = kept.get<float>(STATES, size_t(rows) * size_);
        normed_ = network.pre_norm ? kept.get<float>(NORMED, size_t(rows) * size_) : states_;
        projected = kept.get<float>(PROJECTED, size_t(rows) * 3 * size_);
        attended_ = kept.get<float>(ATTENDED, size_t(rows) * size_);
        added_ = kept.get<float>(ADDED, size_t(rows) * size_);
        inner_ = kept.get<float>(INNER, size_t(rows) * inner_size_);
        bytes_ = kept.get<uint8_t>(BYTES, size_t(rows) * padded_inputs(size_));
        inner_bytes_ = kept.get<uint8_t>(INNER_BYTES, size_t(rows) * padded_inputs(inner_size_));
        step_ = kept.get<float>(STEP, rows);
        low_ = kept.get<float>(LOW, rows);
        inner_step_ = kept.get<float>(INNER_STEP, rows);
        inner_low_ = kept.get<float>(INNER_LOW, rows);
    }

    float* projected;  // [rows, 3 · d_model] queries, keys and values

    void embed_rows(const Start& start, const int64_t* tokens, const int32_t* positions) {
        parallel(threads_, (rows_ + 15) / 16, [&](int task, int) {
            for (int row = task * 16; row < std::min(rows_, task * 16 + 16); ++row) {
                float* state = states_ + size_t(row) * size_;
                embed(network_, start.positions + size_t(positions[row]) * size_, tokens[row], state);
                if (start.embedding_norm.gamma) normalize_row(state, start.embedding_norm, state);
                if (start.first_norm.gamma) normalize_row(state, start.first_norm, normed_ + size_t(row) * size_);
                quantize_row(normed_, row);
            }
        });
    }

    // What the next sublayer reads or, after the last one, the result, [rows, d_model].
    const float* result() const { return normed_; }
    Rows input() const { return rows(normed_); }

    void project(const Linear& linear, float* out, size_t stride) const {
        run_linear(threads_, linear, input(), rows_, out, stride, NO_ACTIVATION, [](int) {});
    }

    // attention(row, out, scores, keys): the attention output of a row; `scores` and `keys` have room for `positions`.
    template <class Attention> void attend_rows(int positions, const Attention& attention) {
        int block = rows_ < 16 * threads_ ? 1 : 4;
        size_t room = size_t(positions + LANES + 15) / 16 * 16;
        float* scores = scratch().get<float>(SCORES, threads_ * room);
        const float** keys = scratch().get<const float*>(KEYS, threads_ * room);
        parallel(threads_, (rows_ + block - 1) / block, [&](int task, int thread) {
            for (int row = task * block; row < std::min(rows_, (task + 1) * block); ++row) {
                attention(row, attended_ + size_t(row) * size_, scores + thread * room, keys + thread * room);
                quantize_row(attended_, row);
            }
        });
    }

    void finish_attention(const Linear& linear, const Norm& norm) { close(linear, rows(attended_), norm); }

    void feed_forward(const Layer& layer) {
        int size = layer.inner->outputs, stride = padded_inputs(size);
        run_linear(threads_, *layer.inner, input(), rows_, inner_, size, network_.activation, [&](int row) {
            if (network_.quantized())
                quantize(inner_ + size_t(row) * size, size, inner_bytes_ + size_t(row) * stride, stride,
                         inner_step_ + row, inner_low_ + row);
        });
        Rows inner{inner_, inner_bytes_, inner_step_, inner_low_, size_t(size), size_t(stride)};
        close(*layer.outer, inner, layer.feed_forward_norm);
    }

private:
    Rows rows(const float* values) const {
        return {values, bytes_, step_, low_, size_t(size_), size_t(padded_inputs(size_))};
    }

    void quantize_row(const float* values, int row) {
        if (!network_.quantized()) return;
        int stride = padded_inputs(size_);
        quantize(values + size_t(row) * size_, size_, bytes_ + size_t(row) * stride, stride, step_ + row, low_ + row);
    }

    void normalize_row(const float* row, const Norm& norm, float* out) {
        normalize(row, norm.gamma, norm.beta, out, size_);
    }

    // The end of a sublayer: projection, residual connection, layer norm; then the states are ready for the next one.
    // `in` may be the bytes that are written here: a row is finished only when nothing reads its group any more.
    void close(const Linear& linear, const Rows& in, const Norm& norm) {
        run_linear(threads_, linear, in, rows_, added_, size_, NO_ACTIVATION, [&](int row) {
            float* state = states_ + size_t(row) * size_;
            add(state, added_ + size_t(row) * size_, size_);
            normalize_row(state, norm, normed_ + size_t(row) * size_);
            quantize_row(normed_, row);
        });
    }

    const Network& network_;
    int threads_, rows_, size_, inner_size_;
    float *states_, *normed_;  // [rows, d_model] the sums of all sublayers, and what the next one reads; post-norm: one
    float *attended_, *added_, *inner_;
    uint8_t *bytes_, *inner_bytes_;
    float *step_, *low_, *inner_step_, *inner_low_;
};

// Encoder states, [tokens, d_model], of sentences one after the other; sentence s has tokens first[s] … first[s + 1] - 1.
inline void encode(const Network& network, int threads, int sentences, const int64_t* tokens, const int32_t* first,
                   float* out) {
    int rows = first[sentences], size = network.d_model;
    Run run(network, threads, rows);
    int32_t* positions = scratch().get<int32_t>(NODES, 2 * size_t(rows));
    int32_t* sentence = positions + rows;
    int longest = 0;
    for (int s = 0; s < sentences; ++s) {
        longest = std::max(longest, first[s + 1] - first[s]);
        for (int row = first[s]; row < first[s + 1]; ++row) positions[row] = row - first[s], sentence[row] = s;
    }
    run.embed_rows(network.encoder_start, tokens, positions);
    for (int index = 0; index < network.encoder_layers; ++index) {
        const Layer& layer = network.layers[index];
        run.project(*layer.query_key_value, run.projected, 3 * size);
        run.attend_rows(longest, [&](int row, float* attended, float* scores, const float** keys) {
            int s = sentence[row], length = first[s + 1] - first[s];
            for (int p = 0; p < length; ++p) keys[p] = run.projected + size_t(first[s] + p) * 3 * size + size;
            const float* query = run.projected + size_t(row) * 3 * size;
            attend(query, keys, size, length, network.heads, network.head_size(), scores, attended, nullptr);
        });
        run.finish_attention(*layer.attention_output, layer.attention_norm);
        run.feed_forward(layer);
    }
    std::copy(run.result(), run.result() + size_t(rows) * size, out);
}

// Keys and values of encoder states for the cross-attention of each decoder layer, [layers, tokens, cache stride].
inline void cross_attention_cache(const Network& network, int threads, int rows, const float* states, float* out) {
    int size = network.d_model, stride = padded_inputs(size);
    uint8_t* bytes = scratch().get<uint8_t>(BYTES, size_t(rows) * stride);
    float *step = scratch().get<float>(STEP, rows), *low = scratch().get<float>(LOW, rows);
    if (network.quantized())
        for (int row = 0; row < rows; ++row)
            quantize(states + size_t(row) * size, size, bytes + size_t(row) * stride, stride, step + row, low + row);
    Rows in{states, bytes, step, low, size_t(size), size_t(stride)};
    for (int index = 0; index < network.decoder_layers; ++index) {
        const Layer& layer = network.layers[network.encoder_layers + index];
        run_linear(threads, *layer.cross_key_value, in, rows, out + size_t(index) * rows * network.cache_stride(),
                   network.cache_stride(), NO_ACTIVATION, [](int) {});
    }
}

}  // namespace
