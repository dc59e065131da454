#include <algorithm>
#include <cmath>
#include <utility>

#include "core/message.h"
#include "core/tensor_memory.h"
#include "models/model.h"

namespace attend::inline v1 {

using models::output_of;

void ModelCache::truncate(std::int64_t length) {
  if (length < 0 || length > this->length())
    fail(ErrorCode::bad_value, "ModelCache.truncate", "length is {}, expected 0 to {}", length, this->length());
  for (KvCache& layer : layers_) layer.truncate(length);
  ids_.resize(static_cast<std::size_t>(length));
}

const ModelInfo& Model::info() const {
  return parts_->info;
}

namespace {

constexpr const char* model_function = "Model";

}  // namespace

namespace models {

void check_decoder(const ModelInfo& info, std::string_view asked, std::string_view argument) {
  if (info.decoder()) return;
  fail(ErrorCode::bad_value, asked, "{}expected a decoder, and the model is an encoder of type {}", argument,
       info.type);
}

void check_exact(const ModelInfo& info, std::string_view asked) {
  if (info.activations == Activations::exact) return;
  fail(ErrorCode::bad_value, asked, "the model's activations are {}, expected exact: sums would not hold",
       name_of(info.activations));
}

void check_finite(const Tensor& hidden) {
  const float* values = hidden.data<float>();
  if (std::all_of(values, values + hidden.count(), [](float value) { return std::isfinite(value); })) return;
  fail(ErrorCode::bad_value, model_function, "the hidden states have NaN or infinity: check the weights for them");
}

std::vector<double> mean_direction(const Tensor& hidden, std::int64_t begin, std::int64_t end) {
  const std::int64_t E = hidden.size(1);
  std::vector<double> sums(static_cast<std::size_t>(E));
  for (std::int64_t n = begin; n < end; ++n)
    for (std::int64_t e = 0; e < E; ++e) sums[static_cast<std::size_t>(e)] += double(hidden.data<float>()[n * E + e]);
  double squares = 0;
  for (const double sum : sums) squares += sum * sum;
  const double length = squares > 0 ? std::sqrt(squares) : 1;  // the mean's factor 1 / T falls out
  for (double& sum : sums) sum /= length;
  return sums;
}

const Output& output_of(const Model::Parts& parts, std::string_view asked) {
  check_decoder(parts.info, asked);
  const Output* output = std::visit(
      [](const auto& of) -> const Output* {
        if constexpr (requires { of.output(); }) return of.output() ? &*of.output() : nullptr;
        return nullptr;
      },
      parts.family);
  if (!output)
    fail(ErrorCode::bad_value, asked, "expected a model with an output layer, and this one has no lm_head.weight");
  return *output;
}

}  // namespace models

Tensor Model::forward(std::span<const std::int64_t> ids, const ModelCall& call) const {
  if (info().encoder_decoder() && call.decoder_ids.empty())
    fail(ErrorCode::bad_value, model_function,
         "there are no decoder_ids: an encoder-decoder's forward() gives the states of the decoder's text, which "
         "begins with info().start; encoder_states() gives the encoder's");
  return ModelAccess::forward(*this, ids, call, nullptr);
}

Tensor Model::encoder_states(std::span<const std::int64_t> ids, const ModelCall& call) const {
  if (!info().encoder_decoder())
    fail(ErrorCode::bad_value, model_function, "encoder_states() needs an encoder-decoder, the model is of type {}: {}",
         info().type, "expected forward()");
  if (!call.decoder_ids.empty() || !call.caches.empty())
    fail(ErrorCode::bad_value, model_function, "encoder_states() takes no decoder_ids and no caches: forward() does");
  return ModelAccess::forward(*this, ids, call, nullptr);
}

Tensor Model::logits(const View& hidden) const {
  return output_of(*parts_, "Model.logits").logits(hidden);
}

ModelCache Model::cache(std::optional<DType> dtype) const {
  const ModelInfo& info = parts_->info;
  models::check_decoder(info, "Model.cache");
  if (dtype && *dtype != info.dtype && *dtype != DType::i8)
    fail(ErrorCode::bad_dtype, model_function, "a cache in {}, expected {} or i8", *dtype, info.dtype);
  ModelCache cache;
  cache.activations_ = info.activations;
  const KvCache empty(1, info.kv_heads, info.head_size, info.head_size, dtype.value_or(info.dtype));
  cache.layers_.assign(static_cast<std::size_t>(info.layers), empty);
  if (info.encoder_decoder()) cache.cross_ = cache.layers_;
  return cache;
}

}  // namespace attend::inline v1
