#include "layers/rows.h"

#include <array>
#include <numeric>

#include "core/parallel.h"
#include "kernels/targets.h"

namespace attend::inline v1 {

namespace {

// Fewer elements are done before another thread has woken up.
constexpr std::int64_t grain = 1 << 16;

}  // namespace

Tensor converted(const View& x, DType dtype) {
  if (!x.is_contiguous() || !is_floating(x.dtype())) return x.to(dtype);
  Tensor out = Tensor::uninitialized(x.shape(), dtype);
  parallel_for(x.count(), grain, [&](std::int64_t begin, std::int64_t end) {
    kernels::target().rows.convert(static_cast<const std::byte*>(x.raw()) + begin * size_of(x.dtype()), x.dtype(),
                                   static_cast<std::byte*>(out.raw()) + begin * size_of(dtype), dtype, end - begin);
  });
  return out;
}

View in_row_major(const View& x, Tensor& made) {
  if (x.is_contiguous()) return x;
  made = x.clone();
  return made;
}

Tensor rows_at(const View& x, std::span<const std::int64_t> rows) {
  Tensor out = Tensor::uninitialized({std::ssize(rows), x.size(1)}, DType::f32);
  for (std::int64_t n = 0; n < out.size(0); ++n) {
    const std::int64_t row = rows[static_cast<std::size_t>(n)];
    out.view().slice(0, n, n + 1).copy_from(x.slice(0, row, row + 1));
  }
  return out;
}

double dot(const float* a, const float* b, std::int64_t count) {
  std::array<double, 8> sums{};  // side by side, as compilers make vectors of them
  std::int64_t n = 0;
  for (; n + 8 <= count; n += 8)
    for (std::size_t j = 0; j < 8; ++j)
      sums[j] += static_cast<double>(a[n + static_cast<std::int64_t>(j)]) *
                 static_cast<double>(b[n + static_cast<std::int64_t>(j)]);
  for (; n < count; ++n) sums[0] += static_cast<double>(a[n]) * static_cast<double>(b[n]);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

void multiply_rows(const float* row, const float* rows, std::int64_t size, std::int64_t count, float* products) {
  kernels::target().rows.multiply(row, rows, size, count, products);
}

void add_to(Tensor& sum, const View& x) {
  parallel_for(sum.count(), grain, [&](std::int64_t begin, std::int64_t end) {
    kernels::target().rows.add(sum.data<float>() + begin,
                               static_cast<const std::byte*>(x.raw()) + begin * size_of(x.dtype()), x.dtype(),
                               end - begin);
  });
}

}  // namespace attend::inline v1
