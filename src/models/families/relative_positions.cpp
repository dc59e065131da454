#include "models/families/relative_positions.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

namespace attend::inline v1::models {

namespace {

// Of distances in one direction. In f32, as Transformers computes it: where a bucket begins is a matter of rounding.
class Buckets {
 public:
  Buckets(std::int64_t near, std::int64_t count, std::int64_t max_distance)
      : near_(near),
        count_(count),
        width_(static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(near)))) {}

  std::int64_t last() const { return count_ - 1; }
  std::int64_t of(std::int64_t distance) const {
    if (distance < near_) return distance;
    const float times = static_cast<float>(distance) / static_cast<float>(near_);
    // As PyTorch rounds, but for 18 beginnings of buckets in 35,020 tables of 2 to 128 buckets, all where log is a
    // fraction of width_ and the last bit decides.
    const auto log = static_cast<float>(std::log(static_cast<double>(times)));
    const float place = log / width_ * static_cast<float>(count_ - near_);
    return near_ + std::min(static_cast<std::int64_t>(place), last() - near_);
  }

 private:
  std::int64_t near_, count_;
  float width_;
};

}  // namespace

Tensor relative_bias(const View& embedding, bool bidirectional, std::int64_t buckets, std::int64_t max_distance,
                     std::int64_t longest) {
  const std::int64_t before = bidirectional ? buckets / 2 : buckets;
  const Buckets of_distance(near_distances(bidirectional, buckets), before, max_distance);
  std::int64_t R = 1;
  while (R < longest && of_distance.of(R) < of_distance.last()) ++R;
  const std::int64_t H = embedding.size(1);
  const Tensor numbers = embedding.to(DType::f32);
  Tensor out({H, 2 * R + 1});
  const auto set = [&](std::int64_t distance, std::int64_t bucket) {
    for (std::int64_t h = 0; h < H; ++h)
      out.data<float>()[h * (2 * R + 1) + R + distance] = numbers.data<float>()[bucket * H + h];
  };
  for (std::int64_t n = 0; n <= R; ++n) {
    set(-n, of_distance.of(n));
    if (n > 0) set(n, bidirectional ? before + of_distance.of(n) : 0);
  }
  return out;
}

Tensor alibi_bias(std::int64_t heads, std::int64_t longest) {
  const std::int64_t reach = std::max<std::int64_t>(1, longest - 1);
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  Tensor bias({heads, 2 * reach + 1});
  for (std::int64_t h = 0; h < heads; ++h) {
    const double step = -8.0 / static_cast<double>(power);
    const double exponent =
        h < power ? step * static_cast<double>(h + 1) : step * (static_cast<double>(h - power) + 0.5);
    const double slope = std::exp2(exponent);
    for (std::int64_t d = -reach; d <= reach; ++d)
      bias.data<float>()[h * bias.size(1) + reach + d] = static_cast<float>(-slope * static_cast<double>(std::abs(d)));
  }
  return bias;
}

}  // namespace attend::inline v1::models
