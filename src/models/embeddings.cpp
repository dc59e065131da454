#include "models/embeddings.h"

#include "kernels/targets.h"

namespace attend::models {

void add_embeddings(Tensor& sum, const View& table, std::span<const std::int64_t> ids, double scale) {
  const std::int64_t E = sum.size(1), bytes = E * size_of(table.dtype());
  const auto factor = static_cast<float>(scale);
  for (std::size_t n = 0; n < ids.size(); ++n) {
    float* to = sum.data<float>() + static_cast<std::int64_t>(n) * E;
    if (scale == 1) {
      const auto* from = static_cast<const std::byte*>(table.raw()) + ids[n] * bytes;
      kernels::target().rows.add(to, from, table.dtype(), E);
      continue;
    }
    const Tensor row = table.select(0, ids[n]).to(DType::f32);
    for (std::int64_t e = 0; e < E; ++e) to[e] += factor * row.data<float>()[e];
  }
}

void multiply(Tensor& x, float factor) {
  float* values = x.data<float>();
  for (std::int64_t n = 0; n < x.count(); ++n) values[n] *= factor;
}

}  // namespace attend::models
