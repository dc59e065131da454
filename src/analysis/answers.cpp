#include "analysis/answers.h"

#include <algorithm>
#include <cmath>

#include "attend/analysis.h"
#include "core/from_end.h"
#include "core/parallel.h"
#include "io/file.h"

namespace attend::inline v1 {

namespace {

std::string behind_space(std::string_view text) {
  return std::string(1, ' ').append(text);
}

}  // namespace

std::int64_t single_token(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<std::int64_t> ids = tokenizer.encode(text, false).ids;
  if (ids.size() == 1) return ids[0];
  const std::optional<std::int64_t> word = token_of_word(tokenizer, text);
  const std::string hint = word ? fmt::format("; {} is one", quote(behind_space(text))) : "";
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const std::int64_t id : ids) tokens.push_back(quote(tokenizer.token(id)));
  fail(ErrorCode::bad_value, "single_token", "{} is {} tokens, expected one: {}{}", quote(text), ids.size(),
       fmt::join(tokens, ", "), hint);
}

std::optional<std::int64_t> token_of_word(const Tokenizer& tokenizer, std::string_view text) {
  if (text.empty() || text.front() == ' ') return std::nullopt;
  const std::vector<std::int64_t> alone = tokenizer.encode(text, false).ids;
  const std::vector<std::int64_t> ids = tokenizer.encode(behind_space(text), false).ids;
  return ids.size() == 1 && ids != alone ? std::optional(ids[0]) : std::nullopt;
}

}  // namespace attend::inline v1

namespace attend::inline v1::analysis {

namespace {

constexpr std::int64_t bytes_at_once = std::int64_t{16} << 20;

}  // namespace

Tensor finished(const Model::Parts& parts, Tensor x) {
  return std::visit([&](const auto& family) { return models::layers_of(family).finish(std::move(x)); }, parts.family);
}

double log_sum(std::span<const float> logits) {
  const float most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += static_cast<double>(std::exp(logit - most));
  return static_cast<double>(most) + std::log(sum);
}

std::int64_t likeliest(std::span<const float> logits) {
  return std::ranges::max_element(logits) - logits.begin();
}

void check_token(std::string_view function, std::string_view name, std::int64_t token, const ModelInfo& info) {
  if (token < 0 || token >= info.vocabulary)
    fail(ErrorCode::bad_value, function, "{} is {}, expected 0 to {}", name, token, info.vocabulary - 1);
}

const models::TaskHead& head_of(std::string_view function, const Model::Parts& parts,
                                const std::optional<std::int64_t>& label, const std::optional<std::int64_t>& against) {
  if (!parts.head)
    fail(ErrorCode::bad_value, function, "a label needs a model with a task's head, and this one of type {} has none",
         parts.info.type);
  if (parts.info.encoder_decoder())
    fail(ErrorCode::bad_value, function, "labels of encoder-decoders are not explained, and the model is of type {}",
         parts.info.type);
  const std::int64_t count = parts.head->output.out_size();
  for (const auto& each : {label, against})
    if (each && (*each < 0 || *each >= count))
      fail(ErrorCode::bad_value, function, "a label is {}, expected 0 to {}", *each, count - 1);
  return *parts.head;
}

void check_of(std::string_view function, GradientOf of) {
  if (of != GradientOf::logit && of != GradientOf::label)
    fail(ErrorCode::bad_value, function, "of is for a gradient only, expected logit or label");
}

void check_attention(std::string_view function, AttentionKind attention, const ModelInfo& info) {
  if (attention == AttentionKind::self || info.encoder_decoder()) return;
  fail(ErrorCode::bad_value, function, "only encoder-decoders have heads of {}, the model is of type {}",
       attention == AttentionKind::cross ? "a cross-attention" : "an encoder before a decoder", info.type);
}

ModelPlace place_of(AttentionKind attention) {
  if (attention == AttentionKind::self) return ModelPlace::z;
  return attention == AttentionKind::cross ? ModelPlace::cross_z : ModelPlace::encoder_z;
}

std::vector<std::int64_t> checked_positions(std::string_view function, std::string_view name,
                                            std::span<const std::int64_t> positions, std::int64_t count) {
  std::vector<std::int64_t> places;
  for (std::size_t n = 0; n < positions.size(); ++n) {
    places.push_back(from_end(function, fmt::format("{}[{}] is", name, n), positions[n], count));
    if (n > 0 && places[n] <= places[n - 1])
      fail(ErrorCode::bad_value, function, "{} must rise, and {} follows {}", name, positions[n], positions[n - 1]);
  }
  return places;
}

std::int64_t answers_at_once(std::int64_t logits) {
  return std::max<std::int64_t>(1, bytes_at_once / (4 * logits));
}

void for_each_answer(const models::Output& output, const Tensor& hidden,
                     const std::function<void(std::int64_t, std::span<const float>)>& body) {
  const std::int64_t V = output.layer.out_size();
  const std::int64_t together = answers_at_once(V);
  for (std::int64_t first = 0; first < hidden.size(0); first += together) {
    const std::int64_t last = std::min(first + together, hidden.size(0));
    const Tensor logits = output.logits(hidden.view().slice(0, first, last));
    parallel_for(last - first, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n)
        body(first + n, {logits.data<float>() + n * V, static_cast<std::size_t>(V)});
    });
  }
}

}  // namespace attend::inline v1::analysis
