#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "attend/layers.h"
#include "core/divide_up.h"
#include "core/message.h"
#include "core/parallel.h"
#include "kernels/targets.h"
#include "layers/gradients.h"
#include "layers/rows.h"

namespace attend {

namespace {

// Less work than this is done before another thread has woken up.
constexpr double parallel_flops = 2e6;
// So are fewer bytes of weights read.
constexpr std::int64_t parallel_bytes = 1 << 18;
// And fewer elements than this are copied or added up.
constexpr std::int64_t parallel_copies = 1 << 16;

Dims weight_shape(std::int64_t in_size, std::int64_t out_size) {
  if (in_size < 1) fail(ErrorCode::bad_value, "Linear", "in_size is {}, expected at least 1", in_size);
  if (out_size < 1) fail(ErrorCode::bad_value, "Linear", "out_size is {}, expected at least 1", out_size);
  return {out_size, in_size};
}

void check_parameters(const View& weight, const std::optional<View>& bias) {
  if (weight.rank() != 2 || weight.size(0) < 1 || weight.size(1) < 1) {
    fail(ErrorCode::bad_shape, "Linear", "weight has shape {}, expected [out,in], both at least 1", weight.shape());
  }
  if (!is_floating(weight.dtype()))
    fail(ErrorCode::bad_dtype, "Linear", "weight is {}, expected floating point", weight.dtype());
  if (!bias) return;
  if (bias->shape() != Dims{weight.size(0)}) {
    fail(ErrorCode::bad_shape, "Linear", "bias has shape {}, expected [{}] (weight {})", bias->shape(), weight.size(0),
         weight.shape());
  }
  if (!is_floating(bias->dtype()))
    fail(ErrorCode::bad_dtype, "Linear", "bias is {}, expected floating point", bias->dtype());
}

// What the kernels multiply in: the layer's dtype where they have products of it, else f32, of the same rounded
// numbers.
DType product_dtype(DType dtype, std::int64_t in) {
  return dtype == DType::bf16 && kernels::target().bf16_dot && in % 2 == 0 ? DType::bf16 : DType::f32;
}

// x, row-major, in `dtype`, rounded to `rounding` on the way; `made` holds it where it is not x itself.
const void* rows_of(const View& x, DType dtype, DType rounding, Tensor& made) {
  if (x.dtype() == dtype && (dtype == rounding || x.dtype() == rounding) && x.is_contiguous()) return x.raw();
  made = converted(x, rounding);
  if (dtype != rounding) made = converted(made, dtype);
  return made.raw();
}

int threads_for(const kernels::LinearOperands& operands, std::int64_t rows) {
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(operands.in * operands.out);
  return flops < parallel_flops ? 1 : num_threads();
}

// y, of so many rows. Any cut of it gives the same bits.
void multiply(const kernels::LinearOperands& operands, std::int64_t rows) {
  // Items count through the panels of outputs first: the rows of x stay in the L2 cache meanwhile.
  const kernels::Target& target = kernels::target();
  const std::int64_t panels = divide_up(operands.out, target.panel_rows);
  const std::int64_t items = divide_up(rows, kernels::linear_rows) * panels;
  parallel_items(items, threads_for(operands, rows), [&](int, std::int64_t item) {
    const std::int64_t first = item / panels * kernels::linear_rows;
    target.linear.run(operands, first, std::min(first + kernels::linear_rows, rows), item % panels);
  });
}

// y, of so many rows, where pack(first, last, panel) packs a panel of the weights. It is packed where it is used, and
// serves as many rows as make the copy small beside the products: a fresh copy of all the weights, with the pages that
// it would touch first, took a quarter of the time where rows are few.
template <class Pack>
void multiply_unpacked(const kernels::LinearOperands& operands, std::int64_t rows, Pack pack) {
  constexpr std::int64_t rows_at_once = 8 * kernels::linear_rows;
  const kernels::Target& target = kernels::target();
  const std::int64_t panels = divide_up(operands.out, target.panel_rows);
  const std::int64_t items = divide_up(rows, rows_at_once) * panels;
  // Few rows take as long as their weights take to come from memory.
  const bool many = operands.in * operands.out * size_of(operands.dtype) >= parallel_bytes;
  const auto workers =
      static_cast<int>(std::min<std::int64_t>(items, many ? num_threads() : threads_for(operands, rows)));
  const std::int64_t floats = target.linear.floats(operands.dtype, target.panel_rows, operands.in);
  Tensor packed = Tensor::uninitialized({workers, floats});
  parallel_items(items, workers, [&](int worker, std::int64_t item) {
    const std::int64_t first = item % panels * target.panel_rows;
    const std::int64_t last = std::min(operands.out, first + target.panel_rows);
    float* panel = packed.data<float>() + worker * floats;
    pack(first, last, panel);
    kernels::LinearOperands part = operands;
    part.packed = panel;
    part.out = last - first;
    part.bias = operands.bias ? operands.bias + first : nullptr;
    part.y = static_cast<std::byte*>(operands.y) + first * size_of(operands.y_dtype);
    const std::int64_t begin = item / panels * rows_at_once, end = std::min(rows, begin + rows_at_once);
    for (std::int64_t row = begin; row < end; row += kernels::linear_rows) {
      target.linear.run(part, row, std::min(row + kernels::linear_rows, end), 0);
    }
  });
}

// The weights are given by their transpose `columns` [in,out], row-major.
void multiply_columns(const kernels::LinearOperands& operands, const void* columns, std::int64_t rows) {
  multiply_unpacked(operands, rows, [&](std::int64_t first, std::int64_t last, float* panel) {
    kernels::linear_pack_columns(operands.dtype, columns, operands.in, operands.out, first, last,
                                 kernels::target().panel_rows, panel);
  });
}

// The weights are `weight` [out,in], row-major.
void multiply_rows(const kernels::LinearOperands& operands, const void* weight, std::int64_t rows) {
  multiply_unpacked(operands, rows, [&](std::int64_t first, std::int64_t last, float* panel) {
    kernels::target().linear.pack_rows(operands.dtype, weight, operands.in, first, last, panel);
  });
}

// x [rows,columns], row-major -> [columns,stride], zeros beyond the last row.
Tensor transpose(DType dtype, const void* x, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  constexpr std::int64_t columns_at_once = 16;  // a line of the cache, read whole
  Tensor out = Tensor::uninitialized({columns, stride}, dtype);
  parallel_for(divide_up(columns, columns_at_once), parallel_copies / (rows * columns_at_once) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 kernels::transpose_columns(dtype, x, rows, columns, begin * columns_at_once,
                                            std::min(columns, end * columns_at_once), stride, out.raw());
               });
  return out;
}

// The sum of x [rows,columns] over its rows, in double: its error does not grow with them.
template <class T>
Tensor sum_rows(const T* x, std::int64_t rows, std::int64_t columns) {
  Tensor out = Tensor::uninitialized({columns});
  parallel_for(columns, parallel_copies / (rows + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sums(static_cast<std::size_t>(end - begin));
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* row = x + r * columns + begin;
      for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += static_cast<double>(static_cast<float>(row[c]));
    }
    for (std::size_t c = 0; c < sums.size(); ++c) out.data<float>()[begin + std::int64_t(c)] = float(sums[c]);
  });
  return out;
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

Linear::Linear(const View& weight, const std::optional<Tensor>& bias, DType dtype)
    : weight_(weight.to(dtype)), bias_(bias ? std::optional(bias->clone()) : std::nullopt) {
  pack();
}

Linear Linear::borrow(const View& weight, const std::optional<View>& bias) {
  check_parameters(weight, bias);
  if (weight.dtype() != DType::f32 && weight.dtype() != DType::bf16)
    fail(ErrorCode::bad_dtype, "Linear", "weight is {}, expected f32 or bf16", weight.dtype());
  if (!weight.is_contiguous() && !weight.transpose(0, 1).is_contiguous()) {
    fail(ErrorCode::bad_shape, "Linear", "weight {} has strides {}, expected rows or columns in one piece",
         weight.shape(), weight.strides());
  }
  Linear layer;
  layer.borrowed_ = weight;
  if (bias) layer.bias_ = bias->to(DType::f32);
  if (product_dtype(weight.dtype(), weight.size(1)) != weight.dtype()) layer.pack();
  return layer;
}

Linear Linear::to(DType dtype) const {
  if (dtype != DType::f32 && dtype != DType::bf16)
    fail(ErrorCode::bad_dtype, "Linear", "dtype is {}, expected f32 or bf16", dtype);
  return Linear(weight(), bias_, dtype);
}

void Linear::pack() {
  const DType product = product_dtype(dtype(), in_size());
  const kernels::Target& target = kernels::target();
  packed_ = Tensor::uninitialized({target.linear.floats(product, out_size(), in_size())});
  Tensor made;
  const View singles = in_row_major(in_dtype(weight(), DType::f32, made), made);
  target.linear.pack(product, singles.data<float>(), out_size(), in_size(), packed_.data<float>());
}

void Linear::check_input(const View& x) const {
  if (!is_floating(x.dtype())) fail(ErrorCode::bad_dtype, "Linear", "x is {}, expected floating point", x.dtype());
  if (x.rank() == 0) fail(ErrorCode::bad_shape, "Linear", "x has no axes, expected [...,{}]", in_size());
  if (x.size(-1) != in_size()) {
    fail(ErrorCode::bad_shape, "Linear", "x has {} features (x {}), the layer takes {}", x.size(-1), x.shape(),
         in_size());
  }
}

Tensor Linear::forward(const View& x) const {
  return forward(x, dtype());
}

Tensor Linear::forward(const View& x, DType y_dtype) const {
  check_input(x);
  if (y_dtype != dtype() && y_dtype != DType::f32)
    fail(ErrorCode::bad_dtype, "Linear", "y_dtype is {}, expected f32 or the layer's {}", y_dtype, dtype());
  const DType product = product_dtype(dtype(), in_size());
  Tensor made;
  kernels::LinearOperands operands;
  operands.dtype = product;
  operands.y_dtype = product == y_dtype ? product : DType::f32;
  Tensor y = Tensor::uninitialized(with_last(x.shape(), out_size()), operands.y_dtype);
  operands.x = rows_of(x, product, dtype(), made);
  operands.bias = bias_ ? bias_->data<float>() : nullptr;
  operands.y = y.raw();
  operands.in = operands.x_stride = in_size();
  operands.out = operands.y_stride = out_size();
  const std::int64_t rows = x.count() / in_size();
  if (packed_.count() > 0) {
    operands.packed = packed_.data<float>();
    multiply(operands, rows);
  } else if (borrowed_->is_contiguous()) {
    multiply_rows(operands, borrowed_->raw(), rows);
  } else {
    multiply_columns(operands, borrowed_->raw(), rows);
  }
  return operands.y_dtype == y_dtype ? std::move(y) : converted(y, y_dtype);
}

// dx = dy W, dW = dy^T x, db = dy^T 1: the products of forward()'s kind that linear.h tells of.
LinearGradients Linear::backward(const View& dy, const View& x) const {
  check_input(x);
  check_given("Linear", "dy", dy, with_last(x.shape(), out_size()));
  const std::int64_t rows = x.count() / in_size();
  const DType product = product_dtype(dtype(), out_size());
  if (rows == 0) {
    return {Tensor(x.shape(), dtype()), Tensor(weight().shape()),
            bias_ ? std::optional(Tensor({out_size()})) : std::nullopt};
  }
  Tensor made_dy, made_x;
  const void* dy_rows = rows_of(dy, product, dtype(), made_dy);
  const void* x_rows = rows_of(x, product, dtype(), made_x);
  LinearGradients out{input_gradient(product, dy_rows, x.shape()), weight_gradient(product, dy_rows, x_rows, rows), {}};
  if (bias_ && product == DType::bf16) out.dbias = sum_rows(static_cast<const BF16*>(dy_rows), rows, out_size());
  if (bias_ && product == DType::f32) out.dbias = sum_rows(static_cast<const float*>(dy_rows), rows, out_size());
  return out;
}

// dy [rows,out] -> dx = dy W
Tensor Linear::input_gradient(DType product, const void* dy, const Dims& shape) const {
  Tensor dx = Tensor::uninitialized(shape, product);
  kernels::LinearOperands operands;
  operands.dtype = operands.y_dtype = product;
  operands.x = dy;
  operands.y = dx.raw();
  operands.in = operands.x_stride = out_size();
  operands.out = operands.y_stride = in_size();
  Tensor made;
  multiply_columns(operands, in_row_major(in_dtype(weight(), product, made), made).raw(), dx.count() / in_size());
  return product == dtype() ? std::move(dx) : converted(dx, dtype());
}

// dy [rows,out], x [rows,in] -> dW = dy^T x
Tensor Linear::weight_gradient(DType product, const void* dy, const void* x, std::int64_t rows) const {
  // Rows that lie a multiple of 4 KiB apart would share few places of the L1 cache: 64 bytes more part them. (They also
  // hold the zero that makes the number of bf16 products even.)
  const std::int64_t line = 64 / size_of(product), stride = divide_up(rows, line) * line + line;
  Tensor dweight = Tensor::uninitialized(weight().shape());
  const Tensor turned = transpose(product, dy, rows, out_size(), stride);
  kernels::LinearOperands operands;
  operands.dtype = product;
  operands.x = turned.raw();
  operands.y = dweight.raw();
  operands.in = rows;
  operands.x_stride = stride;
  operands.out = operands.y_stride = in_size();
  multiply_columns(operands, x, out_size());
  return dweight;
}

}  // namespace attend
