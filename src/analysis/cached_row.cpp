#include "analysis/cached_row.h"

#include <algorithm>
#include <cmath>

#include "attention/cached_blocks.h"
#include "core/parallel.h"
#include "layers/rows.h"

namespace attend::analysis {

namespace {

// Few enough to stay in a core's first cache while the heads of a group read them.
constexpr std::int64_t rows_at_once = 64;

// The dot products of each query head's row of `rows` [H,size] and the cached positions of a block below `length`:
// calls body(head, first key, products, count).
template <class Body>
void multiply(const models::AttentionStep& step, const KvCache& cache, CachedPart part, std::int64_t length,
              const float* rows, Body body) {
  const std::int64_t G = step.heads / step.kv_heads;
  const std::int64_t size = part == CachedPart::keys ? cache.d_k() : cache.d_v();
  for_each_block(cache, part, [&](const CachedBlock& block) {
    const std::int64_t end = std::min(block.count, length - block.first);
    float products[rows_at_once];
    for (std::int64_t first = 0; first < end; first += rows_at_once) {
      const std::int64_t count = std::min(rows_at_once, end - first);
      for (std::int64_t h = block.head * G; h < (block.head + 1) * G; ++h) {
        multiply_rows(rows + h * size, block.rows + first * size, size, count, products);
        body(h, block.first + first, products, count);
      }
    }
  });
}

void cap(double softcap, float* scores, std::int64_t count) {
  const auto most = static_cast<float>(softcap);
  for (std::int64_t n = 0; n < count; ++n) scores[n] = most * std::tanh(scores[n] / most);
}

// bias [2R+1], f32; behind: how many positions the first of the keys is behind the query.
void add_distance_bias(const View& bias, std::int64_t behind, float* scores, std::int64_t count) {
  const std::int64_t R = bias.size(0) / 2;
  const auto* values = static_cast<const float*>(bias.raw());
  for (std::int64_t n = 0; n < count; ++n) scores[n] += values[std::clamp(n - behind, -R, R) + R];
}

void softmax(float* row, std::int64_t hidden, std::int64_t length) {
  std::fill_n(row, hidden, 0.0F);
  const float most = *std::max_element(row + hidden, row + length);
  double sum = 0;
  for (std::int64_t j = hidden; j < length; ++j) sum += static_cast<double>(row[j] = std::exp(row[j] - most));
  const auto share = static_cast<float>(1 / sum);
  for (std::int64_t j = hidden; j < length; ++j) row[j] *= share;
}

}  // namespace

void weigh_row(const models::AttentionStep& step, const View& q, const KvCache& cache, std::int64_t length,
               float* weights) {
  const Tensor queries = q.to(DType::f32);
  const auto scale = static_cast<float>(step.scale.value_or(1 / std::sqrt(static_cast<double>(cache.d_k()))));
  multiply(step, cache, CachedPart::keys, length, queries.data<float>(),
           [&](std::int64_t h, std::int64_t first, const float* scores, std::int64_t count) {
             float* row = weights + h * length + first;
             for (std::int64_t n = 0; n < count; ++n) row[n] = scale * scores[n];
             if (step.softcap > 0) cap(step.softcap, row, count);
             if (step.distance_bias)
               add_distance_bias(step.distance_bias->select(0, h), length - 1 - first, row, count);
           });
  const std::int64_t hidden = step.window > 0 ? std::max<std::int64_t>(0, length - step.window) : 0;
  parallel_for(step.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t h = begin; h < end; ++h) softmax(weights + h * length, hidden, length);
  });
}

void multiply_by_values(const models::AttentionStep& step, const KvCache& cache, std::int64_t length,
                        const float* direction, float* weights) {
  multiply(step, cache, CachedPart::values, length, direction,
           [&](std::int64_t h, std::int64_t first, const float* products, std::int64_t count) {
             float* row = weights + h * length + first;
             for (std::int64_t n = 0; n < count; ++n) row[n] *= products[n];
           });
}

}  // namespace attend::analysis
