// The C interface of the kernels. Callers check shapes; pointers to vectors must stay valid as long as the network.
#include "decoder.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

// The instruction set that this library was compiled for.
EXPORT const char* uncurse_instruction_set() {
#if defined(__AVX512VNNI__)
    return "avx512";
#elif defined(__AVX2__)
    return "avx2";
#else
    return "portable";
#endif
}

// The best instruction set of this CPU; only the portable library may be asked.
EXPORT const char* uncurse_best_instruction_set() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vnni");
    if (avx512) return "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
    return "portable";
}

EXPORT int32_t uncurse_max_quantized() { return MAX_QUANTIZED; }

EXPORT void* uncurse_linear_new(int32_t outputs, int32_t inputs, const void* values, const float* step,
                                const float* bias, const int64_t* rows) {
    return pack(outputs, inputs, values, step, bias, rows);
}

EXPORT void uncurse_linear_delete(void* linear) { release(static_cast<Linear*>(linear)); }

// Changes with the interface below, so that a library built from other sources is not used.
EXPORT int32_t uncurse_interface() { return 4; }

// config: d_model, heads, layers of the encoder and of the decoder, vocab_size, activation, pre_norm. linears: those of
// each encoder layer (query_key_value, output, inner, outer), then of each decoder layer (and then cross_query,
// cross_key_value, cross_output), then the output layer. norms: of the embeddings and of the first sublayer of the
// encoder, then of the decoder; of each encoder layer (after attention, after feed-forward), then of each decoder layer
// (and then after cross-attention). A norm is gamma, then beta, or null twice. positions: the encoder's, the decoder's.
EXPORT void* uncurse_network_new(const int32_t* config, float embedding_multiplier, void* const* linears,
                                 const float* const* norms, const float* const* positions, const void* embeddings,
                                 const float* embedding_scale, const int64_t* allowed) {
    Network* network = new Network{};
    network->d_model = config[0];
    network->heads = config[1];
    network->encoder_layers = config[2];
    network->decoder_layers = config[3];
    network->vocab_size = config[4];
    network->activation = static_cast<Activation>(config[5]);
    network->pre_norm = config[6];
    network->embedding_multiplier = embedding_multiplier;
    network->embeddings = embeddings;
    network->embedding_scale = embedding_scale;
    network->allowed = allowed;
    network->layers = new Layer[config[2] + config[3]]{};
    auto linear = [&] { return static_cast<const Linear*>(*linears++); };
    auto norm = [&] {
        norms += 2;
        return Norm{norms[-2], norms[-1]};
    };
    for (Start* start : {&network->encoder_start, &network->decoder_start}) {
        start->positions = *positions++;
        start->embedding_norm = norm();
        start->first_norm = norm();
    }
    for (int index = 0; index < config[2] + config[3]; ++index) {
        Layer& layer = network->layers[index];
        layer.query_key_value = linear();
        layer.attention_output = linear();
        layer.inner = linear();
        layer.outer = linear();
        layer.attention_norm = norm();
        layer.feed_forward_norm = norm();
        if (index < config[2]) continue;
        layer.cross_query = linear();
        layer.cross_key_value = linear();
        layer.cross_output = linear();
        layer.cross_norm = norm();
    }
    network->output = linear();
    return network;
}

EXPORT void uncurse_network_delete(void* given) {
    Network* network = static_cast<Network*>(given);
    delete[] network->layers;
    delete network;
}

// The floats between two positions or nodes of a KV cache.
EXPORT int64_t uncurse_cache_stride(const void* network) {
    return static_cast<int64_t>(static_cast<const Network*>(network)->cache_stride());
}

EXPORT void uncurse_encode(const void* network, int32_t threads, int32_t sentences, const int64_t* tokens,
                           const int32_t* first, float* out) {
    encode(*static_cast<const Network*>(network), threads, sentences, tokens, first, out);
}

EXPORT void uncurse_cross_attention_cache(const void* network, int32_t threads, int32_t rows, const float* states,
                                          float* out) {
    cross_attention_cache(*static_cast<const Network*>(network), threads, rows, states, out);
}

EXPORT void uncurse_decode(const void* network, int32_t threads, const Step* step, int32_t sentences,
                           const Found* found) {
    decode(*static_cast<const Network*>(network), threads, *step, sentences, *found);
}

namespace {

// Rows with their bytes, for the kernels that are called on their own.
Rows quantized_rows(const Linear& linear, int rows, const float* values) {
    size_t stride = padded_inputs(linear.inputs);
    uint8_t* bytes = scratch().get<uint8_t>(BYTES, rows * stride);
    float *step = scratch().get<float>(STEP, rows), *low = scratch().get<float>(LOW, rows);
    if (linear.bytes)
        for (int row = 0; row < rows; ++row)
            quantize(values + size_t(row) * linear.inputs, linear.inputs, bytes + row * stride, stride, step + row,
                     low + row);
    return {values, bytes, step, low, size_t(linear.inputs), stride};
}

}  // namespace

EXPORT void uncurse_linear(const void* given, int32_t threads, int32_t rows, const float* values, int32_t activation,
                           float* out) {
    const Linear& linear = *static_cast<const Linear*>(given);
    run_linear(threads, linear, quantized_rows(linear, rows, values), rows, out, linear.outputs,
               static_cast<Activation>(activation), [](int) {});
}

EXPORT void uncurse_top_k(const void* given, int32_t threads, int32_t rows, const float* values, int32_t k,
                          int64_t* tokens, double* log_probs) {
    const Linear& linear = *static_cast<const Linear*>(given);
    Rows in = quantized_rows(linear, rows, values);
    Part all{&linear, nullptr, 0, rows, 0, 0};
    if (k)
        top_k(threads, &all, 1, in, rows, k, tokens, log_probs);
    else
        all_log_probs(threads, &all, 1, in, rows, linear.outputs, log_probs);
}

// Attention of each row, [rows, heads · size], to the same positions: keys, then values, [positions, heads · size].
EXPORT void uncurse_attention(int32_t rows, int32_t positions, int32_t heads, int32_t size, const float* queries,
                              const float* keys_and_values, float* out, float* received) {
    size_t d_model = size_t(heads) * size;
    const float** keys = scratch().get<const float*>(KEYS, positions);
    float* scores = scratch().get<float>(SCORES, positions + LANES);
    for (int p = 0; p < positions; ++p) keys[p] = keys_and_values + p * d_model;
    for (int row = 0; row < rows; ++row)
        attend(queries + row * d_model, keys, positions * d_model, positions, heads, size, scores, out + row * d_model,
               received + size_t(row) * positions);
}

EXPORT void uncurse_add_and_normalize(int32_t rows, int32_t size, float* states, const float* added,
                                      const float* gamma, const float* beta) {
    for (int row = 0; row < rows; ++row) {
        add(states + size_t(row) * size, added + size_t(row) * size, size);
        normalize(states + size_t(row) * size, gamma, beta, states + size_t(row) * size, size);
    }
}
