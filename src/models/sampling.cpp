#include "models/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/message.h"

namespace attend::models {

namespace {

constexpr const char* function = "Model.generate";

}  // namespace

void check_sampling(const GenerateOptions& options) {
  if (options.max_new_tokens < 0)
    fail(ErrorCode::bad_value, function, "max_new_tokens is {}, expected at least 0", options.max_new_tokens);
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    fail(ErrorCode::bad_value, function, "temperature is {}, expected a number from 0", options.temperature);
  if (options.top_k < 0) fail(ErrorCode::bad_value, function, "top_k is {}, expected at least 0", options.top_k);
  if (!(options.top_p > 0 && options.top_p <= 1))
    fail(ErrorCode::bad_value, function, "top_p is {}, expected a number above 0, at most 1", options.top_p);
}

Sampler::Sampler(const GenerateOptions& options, std::uint64_t seed)
    : temperature_(options.temperature), top_p_(options.top_p), top_k_(options.top_k), generator_(seed) {}

std::int64_t Sampler::choose(std::span<const float> logits) {
  if (temperature_ == 0) return std::ranges::max_element(logits) - logits.begin();
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto logit = [&](std::int64_t id) { return static_cast<double>(logits[static_cast<std::size_t>(id)]); };
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) { return logit(a) > logit(b); });
  if (top_k_ > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(top_k_)));

  std::vector<double> shares;
  shares.reserve(order.size());
  for (const std::int64_t id : order) shares.push_back(std::exp((logit(id) - logit(order[0])) / temperature_));
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  double kept = 0;
  std::size_t count = 0;
  while (count < shares.size() && kept < top_p_ * all) kept += shares[count++];

  double left = generator_.rand({1}, DType::f64).item({0}) * kept;
  for (std::size_t n = 0; n + 1 < count; ++n) {
    if (left < shares[n]) return order[n];
    left -= shares[n];
  }
  return order[count - 1];
}

}  // namespace attend::models
