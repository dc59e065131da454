#include <algorithm>
#include <cmath>
#include <utility>

#include "attend/layers.h"
#include "core/divide_up.h"
#include "core/message.h"
#include "core/parallel.h"
#include "kernels/targets.h"

namespace attend {

namespace {

// Less work than this is done before another thread has woken up.
constexpr double parallel_flops = 2e6;

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

// What the kernels multiply in: the layer's dtype where they have products of it, else f32, of the same rounded
// numbers.
DType product_dtype(DType dtype, std::int64_t in) {
  return dtype == DType::bf16 && kernels::target().bf16_dot && in % 2 == 0 ? DType::bf16 : DType::f32;
}

// x, row-major, in `dtype`, rounded to `rounding` on the way; `made` holds it where it is not x itself.
const void* rows_of(const View& x, DType dtype, DType rounding, Tensor& made) {
  if (x.dtype() == dtype && (dtype == rounding || x.dtype() == rounding) && x.is_contiguous()) return x.raw();
  made = x.to(rounding);
  if (dtype != rounding) made = made.view().to(dtype);
  return made.raw();
}

}  // namespace

Linear::Linear(std::int64_t in_size, std::int64_t out_size, Generator& generator, LinearOptions options)
    : weight_(generator.kaiming_uniform(weight_shape(in_size, out_size))) {
  if (options.bias) {
    const double bound = 1 / std::sqrt(static_cast<double>(in_size));
    bias_ = generator.uniform({out_size}, -bound, bound);
  }
  pack();
}

Linear::Linear(const View& weight, const std::optional<View>& bias) {
  check_parameters(weight, bias);
  weight_ = weight.to(DType::f32);
  if (bias) bias_ = bias->to(DType::f32);
  pack();
}

Linear::Linear(Tensor weight, std::optional<Tensor> bias, DType dtype)
    : weight_(std::move(weight)), bias_(std::move(bias)), dtype_(dtype) {
  pack();
}

Linear Linear::to(DType dtype) const {
  if (dtype != DType::f32 && dtype != DType::bf16)
    fail(ErrorCode::bad_dtype, "Linear: dtype is {}, expected f32 or bf16", dtype);
  return Linear(weight_.view().to(dtype).view().to(DType::f32), bias_ ? std::optional(bias_->clone()) : std::nullopt,
                dtype);
}

void Linear::pack() {
  const DType product = product_dtype(dtype_, in_size());
  const kernels::Target& target = kernels::target();
  packed_ = Tensor::uninitialized({target.linear_floats(product, out_size(), in_size())});
  target.linear_pack(product, weight_.data<float>(), out_size(), in_size(), packed_.data<float>());
}

Tensor Linear::forward(const View& x) const {
  check_input(x, in_size());
  const DType product = product_dtype(dtype_, in_size());
  Dims shape = x.shape();
  shape[shape.rank() - 1] = out_size();
  Tensor y = Tensor::uninitialized(shape, product), made;

  kernels::LinearOperands operands;
  operands.dtype = product;
  operands.x = rows_of(x, product, dtype_, made);
  operands.packed = packed_.data<float>();
  operands.bias = bias_ ? bias_->data<float>() : nullptr;
  operands.y = y.raw();
  operands.in = in_size();
  operands.out = out_size();

  // Items count through the panels of outputs first: the rows of x stay in the L2 cache meanwhile.
  const kernels::Target& target = kernels::target();
  const std::int64_t rows = x.count() / in_size(), panels = divide_up(out_size(), target.panel_rows);
  const std::int64_t items = divide_up(rows, kernels::linear_rows) * panels;
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(weight_.count());
  parallel_items(items, flops < parallel_flops ? 1 : num_threads(), [&](int, std::int64_t item) {
    const std::int64_t first = item / panels * kernels::linear_rows;
    target.linear(operands, first, std::min(first + kernels::linear_rows, rows), item % panels);
  });
  return product == dtype_ ? std::move(y) : y.view().to(dtype_);
}

}  // namespace attend
