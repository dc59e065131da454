#include "models/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/message.h"

namespace attend::inline v0::models {

namespace {

constexpr const char* sampling_function = "Model.generate";

// Ids, the likeliest first, sorted as far as they are asked for: of a vocabulary few are.
class Ranking {
 public:
  explicit Ranking(std::span<const float> logits) : logits_(logits), ids_(logits.size()) {
    std::iota(ids_.begin(), ids_.end(), std::int64_t{0});
  }

  std::int64_t operator[](std::size_t n) {
    while (n >= sorted_) sort_more();
    return ids_[n];
  }

 private:
  void sort_more() {
    const auto before = [&](std::int64_t a, std::int64_t b) {
      const float one = logits_[static_cast<std::size_t>(a)], other = logits_[static_cast<std::size_t>(b)];
      return one > other || (one == other && a < b);
    };
    const std::size_t next = std::min(ids_.size(), std::max<std::size_t>(64, 4 * sorted_));
    const auto at = [&](std::size_t n) { return ids_.begin() + static_cast<std::ptrdiff_t>(n); };
    std::partial_sort(at(sorted_), at(next), ids_.end(), before);
    sorted_ = next;
  }

  std::span<const float> logits_;
  std::vector<std::int64_t> ids_;
  std::size_t sorted_ = 0;
};

// Of logits of which one at least is a number: with others no order and no share is known, and a draw had no end.
float largest_of(std::span<const float> logits) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  float largest = -infinity;
  for (std::size_t n = 0; n < logits.size(); ++n) {
    if (!(logits[n] < infinity)) {
      fail(ErrorCode::bad_value, sampling_function, "the logit of token {} is {}: have the weights NaN or infinity?", n,
           logits[n]);
    }
    largest = std::max(largest, logits[n]);
  }
  if (largest == -infinity) fail(ErrorCode::bad_value, sampling_function, "no token may come: every logit is -inf");
  return largest;
}

}  // namespace

void check_sampling(const GenerateOptions& options) {
  if (options.max_new_tokens < 0)
    fail(ErrorCode::bad_value, sampling_function, "max_new_tokens is {}, expected at least 0", options.max_new_tokens);
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    fail(ErrorCode::bad_value, sampling_function, "temperature is {}, expected a number from 0", options.temperature);
  if (options.top_k < 0)
    fail(ErrorCode::bad_value, sampling_function, "top_k is {}, expected at least 0", options.top_k);
  if (!(options.top_p > 0 && options.top_p <= 1))
    fail(ErrorCode::bad_value, sampling_function, "top_p is {}, expected a number above 0, at most 1", options.top_p);
}

Sampler::Sampler(const GenerateOptions& options, std::uint64_t seed)
    : temperature_(options.temperature), top_p_(options.top_p), top_k_(options.top_k), generator_(seed) {}

std::int64_t Sampler::choose(std::span<const float> logits) {
  const float largest = largest_of(logits);
  if (temperature_ == 0) return std::ranges::find(logits, largest) - logits.begin();
  const auto share = [&](std::int64_t id) {
    return std::exp((double(logits[static_cast<std::size_t>(id)]) - double(largest)) / temperature_);
  };
  Ranking ranking(logits);
  std::size_t count = top_k_ > 0 ? std::min(logits.size(), static_cast<std::size_t>(top_k_)) : logits.size();
  double all = 0;
  for (std::size_t n = 0; n < count; ++n) all += share(top_k_ > 0 ? ranking[n] : static_cast<std::int64_t>(n));
  double kept = all;
  if (top_p_ < 1) {
    const std::size_t most = count;
    for (kept = 0, count = 0; count < most && kept < top_p_ * all; ++count) kept += share(ranking[count]);
  }

  double left = generator_.rand({1}, DType::f64).item({0}) * kept;
  for (std::size_t n = 0; n + 1 < count; ++n) {
    const double own = share(ranking[n]);
    if (left < own) return ranking[n];
    left -= own;
  }
  return ranking[count - 1];
}

}  // namespace attend::inline v0::models
