#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "core/message.h"
#include "core/tensor_memory.h"
#include "models/edits.h"
#include "models/model.h"
#include "models/sampling.h"

namespace attend {

using models::Batch;
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

constexpr const char* function = "Model";

// What the text of an encoder-decoder's decoder begins with.
std::int64_t checked_start(const ModelInfo& info) {
  if (info.start >= 0 && info.start < info.vocabulary) return info.start;
  fail(ErrorCode::bad_value, function,
       "generate() needs a decoder_start_token_id from 0 to {}, and config.json says {}", info.vocabulary - 1,
       info.start < 0 ? "none" : std::to_string(info.start));
}

// After how many tokens a text that grows is computed again from its beginning; 0: never.
std::int64_t computed_again_after(const Model::Parts& parts) {
  return std::visit(
      [](const auto& of) -> std::int64_t {
        if constexpr (requires { of.computed_again_after(); }) return of.computed_again_after();
        return 0;
      },
      parts.family);
}

}  // namespace

namespace models {

void check_decoder(const ModelInfo& info, std::string_view what) {
  if (info.decoder()) return;
  fail(ErrorCode::bad_value, function, "{} need a decoder, the model is of type {}", what, info.type);
}

void check_finite(const Tensor& hidden) {
  const float* values = hidden.data<float>();
  if (std::all_of(values, values + hidden.count(), [](float value) { return std::isfinite(value); })) return;
  fail(ErrorCode::bad_value, function, "the hidden states have NaN or infinity: do the weights?");
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

const Output& output_of(const Model::Parts& parts, std::string_view what) {
  check_decoder(parts.info, what);
  const Output* output = std::visit(
      [](const auto& of) -> const Output* {
        if constexpr (requires { of.output(); }) return of.output() ? &*of.output() : nullptr;
        return nullptr;
      },
      parts.family);
  if (!output)
    fail(ErrorCode::bad_value, function, "{} need an output layer, and the model is a bare one: no lm_head.weight",
         what);
  return *output;
}

}  // namespace models

Tensor Model::forward(std::span<const std::int64_t> ids, const ModelCall& call) const {
  return ModelAccess::forward(*this, ids, call, nullptr);
}

Tensor Model::logits(const View& hidden) const {
  return output_of(*parts_, "logits").logits(hidden);
}

ModelCache Model::cache(std::optional<DType> dtype) const {
  const ModelInfo& info = parts_->info;
  models::check_decoder(info, "caches");
  if (dtype && *dtype != info.dtype && *dtype != DType::i8)
    fail(ErrorCode::bad_dtype, function, "a cache in {}, expected {} or i8", *dtype, info.dtype);
  ModelCache cache;
  const KvCache empty(1, info.kv_heads, info.head_size, info.head_size, dtype.value_or(info.dtype));
  cache.layers_.assign(static_cast<std::size_t>(info.layers), empty);
  if (info.encoder_decoder()) cache.cross_ = cache.layers_;
  return cache;
}

std::vector<std::int64_t> Model::generate(std::span<const std::int64_t> ids, const GenerateOptions& options) const {
  output_of(*parts_, "generate()");
  models::Sampler sampler(options);
  const std::vector<std::int64_t>& end = options.end ? *options.end : parts_->info.end;
  ModelCache cache = this->cache();
  ModelCache* const caches[] = {&cache};
  ModelCall call{.caches = caches, .recorder = options.recorder, .edits = options.edits};
  std::vector<Edit> lasting;  // the edits of every token
  const std::int64_t again = computed_again_after(*parts_);
  std::ranges::copy_if(options.edits, std::back_inserter(lasting),
                       [](const Edit& edit) { return !edit.rows && !models::is_of_encoder(edit.at); });
  const bool both = parts_->info.encoder_decoder();
  const std::int64_t start = both ? checked_start(parts_->info) : -1;
  if (both) call.decoder_ids = {&start, 1};
  std::vector<std::int64_t> made, text;
  std::span<const std::int64_t> given = ids;
  while (std::ssize(made) < options.max_new_tokens) {
    if (!made.empty() && cache.length() == parts_->info.longest) break;
    if (!made.empty() && cache.length() == again) {
      if (options.recorder)
        fail(ErrorCode::bad_value, function,
             "a recorder can't follow a text beyond {} tokens: all is computed again there", again);
      text.assign(ids.begin(), ids.end());
      text.insert(text.end(), made.begin(), made.end());
      cache.truncate(0);
      given = text;
      call.edits = options.edits;
    }
    const Tensor hidden = forward(given, call);
    Tensor logits = this->logits(hidden.view().select(0, hidden.size(0) - 1));
    for (const std::int64_t id : parts_->info.never)
      if (id < logits.count()) logits.data<float>()[id] = -std::numeric_limits<float>::infinity();
    const std::int64_t chosen = sampler.choose({logits.data<float>(), static_cast<std::size_t>(logits.count())});
    const std::int64_t next = made.empty() ? parts_->info.first.value_or(chosen) : chosen;
    if (std::ranges::find(end, next) != end.end()) break;
    made.push_back(next);
    if (options.on_token && !options.on_token(next)) break;
    given = both ? std::span<const std::int64_t>() : std::span<const std::int64_t>(&made.back(), 1);
    if (both) call.decoder_ids = {&made.back(), 1};
    call.edits = lasting;
  }
  return made;
}

}  // namespace attend
