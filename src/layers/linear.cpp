#include <algorithm>
#include <cmath>

#include "attend/layers.h"
#include "core/divide_up.h"
#include "core/message.h"
#include "core/parallel.h"
#include "kernels/linear.h"

namespace attend {

namespace {

// A block of weights (192 KiB at in = 768) stays in the L2 cache while the rows of x pass by.
constexpr std::int64_t outs_per_item = 64;
constexpr std::int64_t rows_per_item = 32;
// Less work than this is done before another thread has woken up.
constexpr std::int64_t multiplications_per_range = 1 << 16;

Dims weight_shape(std::int64_t in_size, std::int64_t out_size) {
  if (in_size < 1) fail(ErrorCode::bad_value, "Linear: in_size is {}, expected at least 1", in_size);
  if (out_size < 1) fail(ErrorCode::bad_value, "Linear: out_size is {}, expected at least 1", out_size);
  return {out_size, in_size};
}

void check_parameters(const View& weight, const std::optional<View>& bias) {
  if (weight.rank() != 2 || weight.size(0) < 1 || weight.size(1) < 1) {
    fail(ErrorCode::bad_shape, "Linear: weight has shape {}, expected [out,in], both at least 1", weight.shape());
  }
  if (!is_floating(weight.dtype()))
    fail(ErrorCode::bad_dtype, "Linear: weight is {}, expected floating point", weight.dtype());
  if (!bias) return;
  if (bias->shape() != Dims{weight.size(0)}) {
    fail(ErrorCode::bad_shape, "Linear: bias has shape {}, expected [{}] (weight {})", bias->shape(), weight.size(0),
         weight.shape());
  }
  if (!is_floating(bias->dtype()))
    fail(ErrorCode::bad_dtype, "Linear: bias is {}, expected floating point", bias->dtype());
}

void check_input(const View& x, std::int64_t in_size) {
  if (!is_floating(x.dtype())) fail(ErrorCode::bad_dtype, "Linear: x is {}, expected floating point", x.dtype());
  if (x.rank() == 0) fail(ErrorCode::bad_shape, "Linear: x has no axes, expected [...,{}]", in_size);
  if (x.size(-1) != in_size) {
    fail(ErrorCode::bad_shape, "Linear: x has {} features (x {}), the layer takes {}", x.size(-1), x.shape(), in_size);
  }
}

}  // namespace

Linear::Linear(std::int64_t in_size, std::int64_t out_size, Generator& generator, LinearOptions options)
    : weight_(generator.kaiming_uniform(weight_shape(in_size, out_size))) {
  if (!options.bias) return;
  const double bound = 1 / std::sqrt(static_cast<double>(in_size));
  bias_ = generator.uniform({out_size}, -bound, bound);
}

Linear::Linear(const View& weight, const std::optional<View>& bias) {
  check_parameters(weight, bias);
  weight_ = weight.to(DType::f32);
  if (bias) bias_ = bias->to(DType::f32);
}

Tensor Linear::forward(const View& x) const {
  check_input(x, in_size());
  const Tensor rows_of_x = x.to(DType::f64);  // converted once here, not once for each output
  Dims shape = x.shape();
  shape[shape.rank() - 1] = out_size();
  Tensor y = Tensor::uninitialized(shape);

  kernels::LinearOperands operands;
  operands.x = rows_of_x.data<double>();
  operands.weight = weight_.data<float>();
  operands.bias = bias_ ? bias_->data<float>() : nullptr;
  operands.y = y.data<float>();
  operands.in = operands.x_stride = in_size();
  operands.y_stride = out_size();

  const std::int64_t rows = x.count() / in_size();
  const std::int64_t row_items = divide_up(rows, rows_per_item);
  const std::int64_t items = row_items * divide_up(out_size(), outs_per_item);
  const std::int64_t grain = divide_up(multiplications_per_range, rows_per_item * outs_per_item * in_size());
  parallel_for(items, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t row = item % row_items * rows_per_item;
      const std::int64_t out = item / row_items * outs_per_item;
      kernels::linear(operands, row, std::min(row + rows_per_item, rows), out,
                      std::min(out + outs_per_item, out_size()));
    }
  });
  return y;
}

}  // namespace attend
