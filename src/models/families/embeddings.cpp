#include "models/families/embeddings.h"

#include <vector>

#include "kernels/targets.h"
#include "layers/blocks.h"

namespace attend::inline v1::models {

void add_embeddings(Tensor& sum, const View& table, std::span<const std::int64_t> ids) {
  const std::int64_t E = sum.size(1), bytes = E * size_of(table.dtype());
  for (std::size_t n = 0; n < ids.size(); ++n) {
    kernels::target().rows.add(sum.data<float>() + static_cast<std::int64_t>(n) * E,
                               static_cast<const std::byte*>(table.raw()) + ids[n] * bytes, table.dtype(), E);
  }
}

void add_embeddings(Tensor& sum, const Matrix& table, std::span<const std::int64_t> ids) {
  if (!table.blocks) return add_embeddings(sum, table.view, ids);
  const std::int64_t E = sum.size(1);
  std::vector<float> row(static_cast<std::size_t>(E));
  for (std::size_t n = 0; n < ids.size(); ++n) {
    kernels::target().linear.widen(cut(*table.blocks), ids[n], ids[n] + 1, row.data(), E);
    kernels::target().rows.add(sum.data<float>() + static_cast<std::int64_t>(n) * E, row.data(), DType::f32, E);
  }
}

void multiply(Tensor& x, float factor) {
  float* values = x.data<float>();
  for (std::int64_t n = 0; n < x.count(); ++n) values[n] *= factor;
}

}  // namespace attend::inline v1::models
