#include "models/sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "models/logits.h"

namespace attend::inline v1::models {

namespace {

// Ids, the likeliest first, sorted as far as they are asked for: of a vocabulary few are. What is among the first n has
// at least the n-th largest of the largest logits of pieces, so that few logits are looked at twice.
class Ranking {
 public:
  explicit Ranking(std::span<const float> logits) : logits_(logits), largest_((logits.size() + piece - 1) / piece) {
    for (std::size_t n = 0; n < largest_.size(); ++n) {
      const std::span<const float> some = part(n);
      largest_[n] = *std::max_element(some.begin(), some.end());
    }
  }

  std::int64_t operator[](std::size_t n) {
    while (n >= ids_.size()) sort_more();
    return ids_[n];
  }

 private:
  static constexpr std::size_t piece = 64;

  std::span<const float> part(std::size_t n) const {
    return logits_.subspan(n * piece, std::min(piece, logits_.size() - n * piece));
  }

  void sort_more() {
    const std::size_t count = std::max<std::size_t>(64, 4 * ids_.size());
    float least = -std::numeric_limits<float>::infinity();
    if (count <= largest_.size()) {
      std::vector<float> largest = largest_;
      const auto nth = largest.begin() + static_cast<std::ptrdiff_t>(count - 1);
      std::nth_element(largest.begin(), nth, largest.end(), std::greater());
      least = *nth;
    }
    ids_.clear();
    for (std::size_t n = 0; n < largest_.size(); ++n) {
      if (largest_[n] < least) continue;
      const std::span<const float> some = part(n);
      for (std::size_t i = 0; i < some.size(); ++i)
        if (some[i] >= least) ids_.push_back(static_cast<std::int64_t>(n * piece + i));
    }
    std::sort(ids_.begin(), ids_.end(), [&](std::int64_t a, std::int64_t b) {
      const float one = logits_[static_cast<std::size_t>(a)], other = logits_[static_cast<std::size_t>(b)];
      return one > other || (one == other && a < b);
    });
  }

  std::span<const float> logits_;
  std::vector<float> largest_;  // of each piece
  std::vector<std::int64_t> ids_;
};

}  // namespace

Sampler::Sampler(const Settings& settings, std::uint64_t seed)
    : temperature_(settings.temperature),
      top_p_(settings.top_p),
      min_p_(settings.min_p),
      top_k_(settings.top_k),
      generator_(seed) {}

std::int64_t Sampler::choose(std::span<const float> logits) {
  const float largest = largest_logit(logits);
  if (temperature_ == 0) return std::find(logits.begin(), logits.end(), largest) - logits.begin();
  const bool of_all = (top_k_ == 0 || top_k_ >= std::ssize(logits)) && top_p_ == 1 && min_p_ == 0;
  return of_all ? draw_of_all(logits, largest) : draw_of_part(logits, largest);
}

// A number from 0 to 1.
double Sampler::uniform() {
  return generator_.rand({1}, DType::f64).item({0});
}

// Where the shares of the tokens before it, in the order of their ids, have passed a part of all: nothing is sorted.
std::int64_t Sampler::draw_of_all(std::span<const float> logits, float largest) {
  constexpr std::size_t piece = 1024;
  std::vector<double> shares;
  for (std::size_t begin = 0; begin < logits.size(); begin += piece)
    shares.push_back(
        sum_of_shares(logits.subspan(begin, std::min(piece, logits.size() - begin)), largest, 1 / temperature_));
  double left = uniform() * std::accumulate(shares.begin(), shares.end(), 0.0);
  std::size_t in = 0;
  while (in + 1 < shares.size() && left >= shares[in]) left -= shares[in++];
  // Where rounding leaves a rest, the last one that may come.
  std::size_t found = logits.size();
  const std::size_t end = std::min(logits.size(), (in + 1) * piece);
  for (std::size_t n = in * piece; n < end && left >= 0; ++n) {
    const double own = share(logits[n], largest);
    if (own > 0) found = n;
    left -= own;
  }
  if (found == logits.size())
    found = static_cast<std::size_t>(std::find(logits.begin(), logits.end(), largest) - logits.begin());
  return static_cast<std::int64_t>(found);
}

// Of the likeliest token's probability.
double Sampler::share(float logit, float largest) const {
  return std::exp((double(logit) - double(largest)) / temperature_);
}

// Of the tokens that top_k, top_p and min_p keep, the likeliest first.
std::int64_t Sampler::draw_of_part(std::span<const float> logits, float largest) {
  Ranking ranking(logits);
  const auto logit = [&](std::size_t n) { return logits[static_cast<std::size_t>(ranking[n])]; };
  const auto share_of = [&](std::size_t n) { return share(logit(n), largest); };
  std::size_t count = logits.size();
  if (top_k_ > 0 && top_k_ < std::ssize(logits)) {
    count = static_cast<std::size_t>(top_k_);
    const float least = logit(count - 1);
    while (count < logits.size() && logit(count) == least) ++count;
  }
  if (top_p_ < 1) {
    double all = 0;
    if (count == logits.size()) all = sum_of_shares(logits, largest, 1 / temperature_);
    for (std::size_t n = 0; n < count && count < logits.size(); ++n) all += share_of(n);
    const std::size_t most = count;
    double kept = 0;
    for (count = 0; count < most && kept < top_p_ * all; ++count) kept += share_of(count);
  }
  double kept = 0;
  std::size_t n = 0;
  for (; n < count && (n == 0 || share_of(n) >= min_p_); ++n) kept += share_of(n);
  count = n;
  double left = uniform() * kept;
  for (n = 0; n + 1 < count && left >= share_of(n); ++n) left -= share_of(n);
  return ranking[n];
}

}  // namespace attend::inline v1::models
