#include "analysis/cached_row.h"

#include <algorithm>

#include "attend/summary.h"
#include "attention/cached_blocks.h"
#include "layers/rows.h"

namespace attend::inline v1::analysis {

namespace {

// Few enough to stay in a core's first cache while the heads of a group read them.
constexpr std::int64_t cached_rows_at_once = 64;

}  // namespace

Tensor row_weights(const models::AttentionStep& step, const View& q, const KvCache& cache, std::int64_t row,
                   std::int64_t length) {
  AttentionOptions options = step.options();
  if (options.offset) options.offset = Offset(row);  // the keys may go on behind it
  return attention_weights(q, cache, {}, options, {.lse_low = {}, .queries = {}, .keys = Range{0, length}});
}

void multiply_by_values(const models::AttentionStep& step, const KvCache& cache, std::int64_t length,
                        const float* direction, float* weights) {
  const std::int64_t G = step.heads / step.kv_heads, size = cache.d_v();
  for_each_value_block(cache, [&](const CachedBlock& block) {
    const std::int64_t end = std::min(block.count, length - block.first);
    float products[cached_rows_at_once];
    for (std::int64_t first = 0; first < end; first += cached_rows_at_once) {
      const std::int64_t count = std::min(cached_rows_at_once, end - first);
      for (std::int64_t h = block.head * G; h < (block.head + 1) * G; ++h) {
        multiply_rows(direction + h * size, block.rows + first * size, size, count, products);
        float* row = weights + h * length + block.first + first;
        for (std::int64_t n = 0; n < count; ++n) row[n] *= products[n];
      }
    }
  });
}

}  // namespace attend::inline v1::analysis
