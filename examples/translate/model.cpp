#include "model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "attend/error.h"
#include "mix.h"

namespace translate {
namespace {

using attend::AttentionOptions;
using attend::Linear;
using attend::LinearGradients;
using attend::MultiHeadAttention;
using attend::MultiHeadAttentionCall;
using attend::MultiHeadAttentionGradients;

// Dropout's places, so that no two of a step draw alike: a hash of the name of what is dropped there (FNV-1a).
Dropping at_place(const Dropping& dropping, std::string_view name, std::string_view what) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const std::string_view part : {name, what})
    for (const char byte : part) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
  return {dropping.p, mix(dropping.seed, hash)};
}

void drop(Tensor& x, const Dropping& dropping, std::string_view name, std::string_view what) {
  dropout(x, dropping.p, at_place(dropping, name, what).seed);
}

const Tensor& parameter(const TensorMap& parameters, const std::string& name, const attend::Dims& shape) {
  const auto found = parameters.find(name);
  if (found == parameters.end())
    throw attend::Error(attend::ErrorCode::bad_value, "Model", fmt::format("there is no parameter {}", name));
  if (found->second.shape() != shape) {
    throw attend::Error(attend::ErrorCode::bad_shape, "Model",
                        fmt::format("{} has shape {}, expected {}", name, found->second.shape().str(), shape.str()));
  }
  return found->second;
}

Linear make_linear(const TensorMap& parameters, const std::string& name, std::int64_t in, std::int64_t out) {
  return Linear(parameter(parameters, name + ".weight", {out, in}),
                parameter(parameters, name + ".bias", {out}).view());
}

void keep(TensorMap& gradients, const std::string& name, LinearGradients& linear) {
  gradients[name + ".weight"] = std::move(linear.dweight);
  gradients[name + ".bias"] = std::move(*linear.dbias);
}

View starts_of(const Sentences& sentences) {
  return View(sentences.starts.data(), attend::DType::i64, {static_cast<std::int64_t>(sentences.starts.size())});
}

MultiHeadAttentionCall call_between(const Sentences& queries, const Sentences& keys, bool causal) {
  MultiHeadAttentionCall call;
  call.attention.causal = causal;
  call.attention.query_starts = starts_of(queries);
  call.attention.key_starts = starts_of(keys);
  return call;
}

}  // namespace

TensorMap draw_parameters(const ModelSizes& sizes, attend::Generator& generator) {
  TensorMap out;
  const std::int64_t e = sizes.embedding;
  const auto norm = [&](const std::string& name) {
    out[name + ".bias"] = Tensor({e});
    Tensor& ones = out[name + ".weight"] = Tensor({e});
    std::fill_n(ones.data<float>(), e, 1.0f);
  };
  const auto attention = [&](const std::string& name) {
    for (auto& [entry, tensor] : MultiHeadAttention(e, sizes.heads, generator).state_dict())
      out[name + "." + entry] = std::move(tensor);
  };
  const auto linear = [&](const std::string& name, std::int64_t in, std::int64_t size) {
    const Linear layer(in, size, generator);
    out[name + ".weight"] = layer.weight().clone();
    out[name + ".bias"] = layer.bias()->clone();
  };
  out["embedding.weight"] = generator.normal({sizes.vocabulary, e}, 0, 1 / std::sqrt(static_cast<double>(e)));
  for (const bool decoder : {false, true}) {
    for (std::int64_t i = 0; i < sizes.layers; ++i) {
      const std::string layer = fmt::format("{}.layers.{}.", decoder ? "decoder" : "encoder", i);
      attention(layer + "self_attn");
      if (decoder) attention(layer + "multihead_attn");
      linear(layer + "linear1", e, sizes.hidden);
      linear(layer + "linear2", sizes.hidden, e);
      for (int n = 1; n <= (decoder ? 3 : 2); ++n) norm(fmt::format("{}norm{}", layer, n));
    }
    norm(decoder ? "decoder.norm" : "encoder.norm");
  }
  return out;
}

void Sentences::append(std::span<const std::int64_t> sentence) {
  ids.insert(ids.end(), sentence.begin(), sentence.end());
  starts.push_back(tokens());
}

Model::Model(const TensorMap& parameters, const ModelSizes& sizes)
    : sizes_(sizes),
      embedding_(parameter(parameters, "embedding.weight", {sizes.vocabulary, sizes.embedding})),
      output_(embedding_.weight()) {
  const std::int64_t e = sizes.embedding;
  const auto norm = [&](const std::string& name) {
    return Norm{name, parameter(parameters, name + ".weight", {e}), parameter(parameters, name + ".bias", {e})};
  };
  const auto attention = [&](const std::string& name, Norm before) {
    parameter(parameters, name + ".in_proj_weight", {3 * e, e});
    return Attention{name, std::move(before),
                     MultiHeadAttention::from_state_dict(parameters, sizes.heads, {}, name + ".")};
  };
  const auto feed_forward = [&](const std::string& layer, Norm before) {
    return FeedForward{layer, std::move(before), make_linear(parameters, layer + ".linear1", e, sizes.hidden),
                       make_linear(parameters, layer + ".linear2", sizes.hidden, e)};
  };
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    const std::string layer = fmt::format("encoder.layers.{}", i);
    encoder_.push_back(
        {attention(layer + ".self_attn", norm(layer + ".norm1")), feed_forward(layer, norm(layer + ".norm2"))});
  }
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    const std::string layer = fmt::format("decoder.layers.{}", i);
    decoder_.push_back({attention(layer + ".self_attn", norm(layer + ".norm1")),
                        attention(layer + ".multihead_attn", norm(layer + ".norm2")),
                        feed_forward(layer, norm(layer + ".norm3"))});
  }
  encoder_norm_ = norm("encoder.norm");
  decoder_norm_ = norm("decoder.norm");
}

void Model::Norm::forward(const View& x, NormState& state) const {
  state.output = layer_norm(x, weight, bias, state.norm);
}

Tensor Model::Norm::backward(const View& dy, const NormState& state, TensorMap& gradients) const {
  LayerNormGradients norm = layer_norm_backward(dy, weight, state.norm);
  gradients[name + ".weight"] = std::move(norm.dweight);
  gradients[name + ".bias"] = std::move(norm.dbias);
  return std::move(norm.dx);
}

void Model::FeedForward::forward(Tensor& x, const Dropping& dropping, FeedForwardState& state) const {
  norm.forward(x, state.norm);                      // 1
  state.hidden = first.forward(state.norm.output);  // 2
  relu(state.hidden);                               // 3
  drop(state.hidden, dropping, name, "hidden");     // 4
  Tensor output = second.forward(state.hidden);     // 5
  drop(output, dropping, name, "output");           // 6
  add(x, output);                                   // 7
}

void Model::FeedForward::backward(Tensor& dx, const Dropping& dropping, const FeedForwardState& state,
                                  TensorMap& gradients) const {
  Tensor doutput = dx.clone();                                                               // 7
  drop(doutput, dropping, name, "output");                                                   // 6
  LinearGradients second_gradients = second.backward(doutput, state.hidden);                 // 5
  drop(second_gradients.dx, dropping, name, "hidden");                                       // 4
  relu_backward(second_gradients.dx, state.hidden);                                          // 3
  LinearGradients first_gradients = first.backward(second_gradients.dx, state.norm.output);  // 2
  add(dx, norm.backward(first_gradients.dx, state.norm, gradients));                         // 1
  keep(gradients, name + ".linear1", first_gradients);
  keep(gradients, name + ".linear2", second_gradients);
}

std::optional<Tensor> Model::Attention::forward(Tensor& x, const View* memory, const MultiHeadAttentionCall& call,
                                                const Dropping& dropping, AttentionState& state) const {
  const Dropping weights = at_place(dropping, name, "weights");
  MultiHeadAttentionCall dropped = call;
  dropped.attention.dropout = {weights.p, weights.seed};
  norm.forward(x, state.norm);  // 1
  const View normed = state.norm.output;
  attend::MultiHeadAttentionResult result =  // 2
      memory == nullptr ? attention.forward(normed, dropped, state.attention)
                        : attention.forward(normed, *memory, *memory, dropped, state.attention);
  drop(result.output, dropping, name, "output");  // 3
  add(x, result.output);                          // 4
  return std::move(result.weights);
}

void Model::Attention::backward(Tensor& dx, const View* memory, Tensor* dmemory, const MultiHeadAttentionCall& call,
                                const Dropping& dropping, const AttentionState& state, TensorMap& gradients) const {
  const Dropping weights = at_place(dropping, name, "weights");
  MultiHeadAttentionCall dropped = call;
  dropped.attention.dropout = {weights.p, weights.seed};
  Tensor doutput = dx.clone();              // 4
  drop(doutput, dropping, name, "output");  // 3
  const View normed = state.norm.output;
  MultiHeadAttentionGradients inner =  // 2
      memory == nullptr ? attention.backward(doutput, normed, state.attention, dropped)
                        : attention.backward(doutput, normed, *memory, *memory, state.attention, dropped);
  if (memory != nullptr) {
    add(*dmemory, inner.dkey);
    add(*dmemory, inner.dvalue);
  }
  add(dx, norm.backward(inner.dquery, state.norm, gradients));  // 1
  for (auto& [entry, gradient] : inner.parameters) gradients[name + "." + entry] = std::move(gradient);
}

// Embeddings have a variance of 1/E, so that the logits of the output, which shares them, begin near 0; times sqrt(E)
// they are as large as the positions.
Tensor Model::embed(const Sentences& sentences, const Dropping& dropping) const {
  Tensor x = embedding_.forward(sentences.ids);
  scale(x, std::sqrt(static_cast<double>(sizes_.embedding)));
  const std::span<const std::int64_t> starts = sentences.starts;
  std::int64_t longest = 0;
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) longest = std::max(longest, starts[i + 1] - starts[i]);
  const Tensor table = positions(longest, sizes_.embedding);
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    const float* from = table.data<float>();
    float* to = x.data<float>() + starts[i] * sizes_.embedding;
    const std::int64_t count = (starts[i + 1] - starts[i]) * sizes_.embedding;
    for (std::int64_t j = 0; j < count; ++j) to[j] += from[j];
  }
  dropout(x, dropping.p, dropping.seed);
  return x;
}

void Model::embed_backward(Tensor dx, const Sentences& sentences, const Dropping& dropping, Tensor& dweight) const {
  dropout(dx, dropping.p, dropping.seed);
  scale(dx, std::sqrt(static_cast<double>(sizes_.embedding)));
  add(dweight, embedding_.backward(dx, sentences.ids));
}

void Model::encode(const Sentences& source, const Dropping& dropping, EncoderState& state) const {
  const MultiHeadAttentionCall call = call_between(source, source, false);
  state.layers.resize(encoder_.size());
  Tensor x = embed(source, at_place(dropping, "encoder", "embedding"));
  for (std::size_t i = 0; i < encoder_.size(); ++i) {
    encoder_[i].self.forward(x, nullptr, call, dropping, state.layers[i].self);
    encoder_[i].feed_forward.forward(x, dropping, state.layers[i].feed_forward);
  }
  encoder_norm_.forward(x, state.norm);
}

void Model::decode(const Sentences& target, const View& memory, const Sentences& source, const Dropping& dropping,
                   DecoderState& state, bool keep_weights) const {
  const MultiHeadAttentionCall self = call_between(target, target, true);
  MultiHeadAttentionCall cross = call_between(target, source, false);
  if (keep_weights) cross.weights = MultiHeadAttentionCall::Weights::per_head;
  state.layers.resize(decoder_.size());
  state.weights.clear();
  Tensor x = embed(target, at_place(dropping, "decoder", "embedding"));
  for (std::size_t i = 0; i < decoder_.size(); ++i) {
    decoder_[i].self.forward(x, nullptr, self, dropping, state.layers[i].self);
    std::optional<Tensor> weights = decoder_[i].cross.forward(x, &memory, cross, dropping, state.layers[i].cross);
    if (weights) state.weights.push_back(std::move(*weights));
    decoder_[i].feed_forward.forward(x, dropping, state.layers[i].feed_forward);
  }
  decoder_norm_.forward(x, state.norm);
}

TensorMap Model::backward(const Tensor& dlogits, const Sentences& source, const Sentences& target,
                          const Dropping& dropping, const EncoderState& encoder, const DecoderState& decoder) const {
  TensorMap gradients;
  const MultiHeadAttentionCall self = call_between(target, target, true);
  const MultiHeadAttentionCall cross = call_between(target, source, false);
  const View memory = encoder.norm.output;
  Tensor dmemory(memory.shape());
  LinearGradients output = output_.backward(dlogits, decoder.norm.output);
  Tensor dx = decoder_norm_.backward(output.dx, decoder.norm, gradients);
  for (std::size_t i = decoder_.size(); i-- > 0;) {
    decoder_[i].feed_forward.backward(dx, dropping, decoder.layers[i].feed_forward, gradients);
    decoder_[i].cross.backward(dx, &memory, &dmemory, cross, dropping, decoder.layers[i].cross, gradients);
    decoder_[i].self.backward(dx, nullptr, nullptr, self, dropping, decoder.layers[i].self, gradients);
  }
  embed_backward(std::move(dx), target, at_place(dropping, "decoder", "embedding"), output.dweight);

  const MultiHeadAttentionCall inside = call_between(source, source, false);
  dx = encoder_norm_.backward(dmemory, encoder.norm, gradients);
  for (std::size_t i = encoder_.size(); i-- > 0;) {
    encoder_[i].feed_forward.backward(dx, dropping, encoder.layers[i].feed_forward, gradients);
    encoder_[i].self.backward(dx, nullptr, nullptr, inside, dropping, encoder.layers[i].self, gradients);
  }
  embed_backward(std::move(dx), source, at_place(dropping, "encoder", "embedding"), output.dweight);
  gradients["embedding.weight"] = std::move(output.dweight);
  return gradients;
}

}  // namespace translate
