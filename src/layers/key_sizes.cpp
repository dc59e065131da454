// abs(W_O^h v_j), by products with W_O^h themselves: as much work as the output projection. The quadratic form of
// W_O^h' W_O^h would be less, and cancels where v is nearly in the null space.
#include <cmath>

#include "attend/layers.h"
#include "attend/threads.h"
#include "attention/compute.h"
#include "core/message.h"
#include "layers/rows.h"

namespace attend::inline v1 {

namespace {

constexpr const char* key_sizes_function = "key_sizes";
constexpr std::int64_t rows_at_once = 1024;

// In eight sums, so that vectors can hold them.
double length(const float* x, std::int64_t count) {
  float sums[8] = {};
  std::int64_t e = 0;
  for (; e + 8 <= count; e += 8)
    for (std::int64_t n = 0; n < 8; ++n) sums[n] += x[e + n] * x[e + n];
  double sum = 0;
  for (const float each : sums) sum += static_cast<double>(each);
  for (; e < count; ++e) sum += static_cast<double>(x[e]) * static_cast<double>(x[e]);
  return std::sqrt(sum);
}

void lengths_of(const Tensor& rows, float* to) {
  const std::int64_t E = rows.size(1);
  parallel_for(rows.size(0), 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) to[n] = static_cast<float>(length(rows.data<float>() + n * E, E));
  });
}

// v [Tk,Dv] and weight [E,Dv] in double.
void exact_lengths(const Tensor& v, const Tensor& weight, double* to) {
  const std::int64_t D = v.size(1);
  for (std::int64_t j = 0; j < v.size(0); ++j) {
    double squares = 0;
    for (std::int64_t e = 0; e < weight.size(0); ++e) {
      double sum = 0;
      for (std::int64_t d = 0; d < D; ++d) sum += weight.data<double>()[e * D + d] * v.data<double>()[j * D + d];
      squares += sum * sum;
    }
    to[j] = std::sqrt(squares);
  }
}

void check(const View& v, const View& weight) {
  if (v.rank() != 4)
    fail(ErrorCode::bad_shape, key_sizes_function, "v has shape {}, expected [B,Hkv,Tk,Dv]", v.shape());
  if (weight.rank() != 2)
    fail(ErrorCode::bad_shape, key_sizes_function, "output_weight has shape {}, expected [E,H*Dv]", weight.shape());
  for (const View* x : {&v, &weight})
    if (!is_floating(x->dtype()))
      fail(ErrorCode::bad_dtype, key_sizes_function, "{}, expected floating point", x->dtype());
  const std::int64_t group = v.size(1) * v.size(3);
  if (group == 0 || weight.size(1) == 0 || weight.size(1) % group != 0) {
    fail(ErrorCode::bad_shape, key_sizes_function,
         "output_weight has {} columns, expected a multiple of {} heads of {} numbers", weight.size(1), v.size(1),
         v.size(3));
  }
}

}  // namespace

Tensor key_sizes(const View& v, const View& output_weight) {
  return with_memory(key_sizes_function, v, output_weight, [&] {
    check(v, output_weight);
    const std::int64_t B = v.size(0), Tk = v.size(2), Dv = v.size(3);
    const std::int64_t H = output_weight.size(1) / Dv, G = H / v.size(1);
    Tensor sizes({B, H, Tk}, statistics_dtype(v.dtype()));
    for (std::int64_t h = 0; h < H && Tk > 0; ++h) {
      const View weight = output_weight.slice(1, h * Dv, (h + 1) * Dv);
      if (sizes.dtype() == DType::f64) {
        const Tensor wide = weight.to(DType::f64);
        for (std::int64_t b = 0; b < B; ++b)
          exact_lengths(v.select(0, b).select(0, h / G).to(DType::f64), wide, sizes.data<double>() + (b * H + h) * Tk);
        continue;
      }
      // Of bf16 values and weights the products are exact, and half as much is read.
      const bool narrow = v.dtype() == DType::bf16 && weight.dtype() == DType::bf16;
      const Linear projection = narrow ? Linear(weight).to(DType::bf16) : Linear(weight);
      for (std::int64_t b = 0; b < B; ++b) {
        const View rows = v.select(0, b).select(0, h / G);
        for (std::int64_t begin = 0; begin < Tk; begin += rows_at_once) {
          const std::int64_t end = std::min(Tk, begin + rows_at_once);
          const Tensor written = projection.forward(rows.slice(0, begin, end).to(projection.dtype()), DType::f32);
          lengths_of(written, sizes.data<float>() + (b * H + h) * Tk + begin);
        }
      }
    }
    return sizes;
  });
}

}  // namespace attend::inline v1
