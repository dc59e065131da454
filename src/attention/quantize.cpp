#include "attention/quantize.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

namespace attend::inline v1 {

namespace {

// body(elements from the first of rows, scales from the first of scales, number of the row), for each row.
template <class Body>
void for_each_row(const View& rows, const View& scales, Body body) {
  const auto place = [](const View& x, std::int64_t b, std::int64_t h, std::int64_t t) {
    return b * x.strides()[0] + h * x.strides()[1] + t * x.strides()[2];
  };
  std::int64_t n = 0;
  for (std::int64_t b = 0; b < rows.size(0); ++b) {
    for (std::int64_t h = 0; h < rows.size(1); ++h) {
      for (std::int64_t t = 0; t < rows.size(2); ++t) body(place(rows, b, h, t), place(scales, b, h, t), n++);
    }
  }
}

// Returns the scale.
float quantize_row(const float* x, std::int64_t count, std::int8_t* to) {
  constexpr float largest = 127;
  float most = 0, odd = 0;  // odd: 0, or NaN
  for (std::int64_t d = 0; d < count; ++d) most = std::max(most, std::abs(x[d])), odd += x[d] - x[d];
  const bool finite = odd == 0, tiny = most / largest < FLT_MIN;
  const float growth = !finite || tiny ? 0 : largest / most;
  // Adding it leaves no room for a fraction: rounded to nearest even, in a loop that the compiler turns into vectors.
  constexpr float whole = 0x1.8p23f;
  for (std::int64_t d = 0; d < count; ++d) {
    const float rounded = (finite ? x[d] : 0) * growth + whole - whole;
    to[d] = static_cast<std::int8_t>(static_cast<std::int32_t>(rounded));
  }
  if (!finite) return std::numeric_limits<float>::quiet_NaN();
  return tiny ? 0 : most / largest;
}

}  // namespace

void quantize(const View& x, const MutableView& rows, const MutableView& scales) {
  const Tensor wide = x.to(DType::f32);
  const std::int64_t D = rows.size(3);
  for_each_row(rows, scales,
               [=, from = wide.data<float>(), to = rows.data<std::int8_t>(), to_scales = scales.data<float>()](
                   std::int64_t row, std::int64_t scale, std::int64_t n) {
                 to_scales[scale] = quantize_row(from + n * D, D, to + row);
               });
}

void dequantize(const View& rows, const View& scales, const MutableView& x) {
  Tensor wide = Tensor::uninitialized(x.shape());
  const std::int64_t D = rows.size(3);
  for_each_row(rows, scales,
               [=, from = rows.data<std::int8_t>(), by = scales.data<float>(), to = wide.data<float>()](
                   std::int64_t row, std::int64_t scale, std::int64_t n) {
                 for (std::int64_t d = 0; d < D; ++d) to[n * D + d] = static_cast<float>(from[row + d]) * by[scale];
               });
  x.copy_from(wide);
}

}  // namespace attend::inline v1
