#include "kernels/linear.h"

namespace attend::kernels {

namespace {

// Partial sums of one dot product. Without them each addition would wait for the one before.
constexpr std::int64_t lanes = 4;

// One column of y for `Rows` rows: each weight is widened once for all of them.
template <std::int64_t Rows>
void dot_rows(const LinearOperands& a, std::int64_t row, std::int64_t out) {
  const double* x = a.x + row * a.x_stride;
  const float* weight = a.weight + out * a.in;
  double sums[Rows][lanes] = {};
  const std::int64_t whole = a.in - a.in % lanes;
  for (std::int64_t i = 0; i < whole; i += lanes) {
    for (std::int64_t r = 0; r < Rows; ++r) {
      for (std::int64_t l = 0; l < lanes; ++l) {
        sums[r][l] += x[r * a.x_stride + i + l] * static_cast<double>(weight[i + l]);
      }
    }
  }
  for (std::int64_t r = 0; r < Rows; ++r) {
    for (std::int64_t i = whole; i < a.in; ++i) {
      sums[r][i - whole] += x[r * a.x_stride + i] * static_cast<double>(weight[i]);
    }
    const double sum = (sums[r][0] + sums[r][1]) + (sums[r][2] + sums[r][3]);
    a.y[(row + r) * a.y_stride + out] = static_cast<float>(a.bias ? sum + static_cast<double>(a.bias[out]) : sum);
  }
}

}  // namespace

void linear(const LinearOperands& a, std::int64_t first_row, std::int64_t last_row, std::int64_t first_out,
            std::int64_t last_out) {
  std::int64_t row = first_row;
  for (; row + 4 <= last_row; row += 4) {
    for (std::int64_t out = first_out; out < last_out; ++out) dot_rows<4>(a, row, out);
  }
  for (; row < last_row; ++row) {
    for (std::int64_t out = first_out; out < last_out; ++out) dot_rows<1>(a, row, out);
  }
}

}  // namespace attend::kernels
