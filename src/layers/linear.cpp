#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "attend/layers.h"
#include "core/divide_up.h"
#include "core/message.h"
#include "core/parallel.h"
#include "kernels/targets.h"
#include "layers/blocks.h"
#include "layers/gradients.h"
#include "layers/rows.h"

namespace attend::inline v1 {

namespace {

// Less work than this is done before another thread has woken up.
constexpr double parallel_flops = 2e6;
// So are fewer bytes of weights read.
constexpr double parallel_bytes = 1 << 18;
// And fewer elements than this are copied or added up.
constexpr std::int64_t parallel_copies = 1 << 16;

Dims weight_shape(std::int64_t in_size, std::int64_t out_size) {
  if (in_size < 1) fail(ErrorCode::bad_value, "Linear", "in_size is {}, expected at least 1", in_size);
  if (out_size < 1) fail(ErrorCode::bad_value, "Linear", "out_size is {}, expected at least 1", out_size);
  return {out_size, in_size};
}

void check_bias(const View& bias, const Dims& weight) {
  if (bias.shape() != Dims{weight[0]}) {
    fail(ErrorCode::bad_shape, "Linear", "bias has shape {}, expected [{}] (weight {})", bias.shape(), weight[0],
         weight);
  }
  if (!is_floating(bias.dtype()))
    fail(ErrorCode::bad_dtype, "Linear", "bias is {}, expected floating point", bias.dtype());
}

void check_parameters(const View& weight, const std::optional<View>& bias) {
  if (weight.rank() != 2 || weight.size(0) < 1 || weight.size(1) < 1) {
    fail(ErrorCode::bad_shape, "Linear", "weight has shape {}, expected [out,in], both at least 1", weight.shape());
  }
  if (!is_floating(weight.dtype()))
    fail(ErrorCode::bad_dtype, "Linear", "weight is {}, expected floating point", weight.dtype());
  if (bias) check_bias(*bias, weight.shape());
}

// What the kernels multiply in: the layer's dtype where they have products of it, else f32, of the same rounded
// numbers.
DType product_dtype(DType dtype, std::int64_t in) {
  return dtype == DType::bf16 && kernels::target().bf16_dot && in % 2 == 0 ? DType::bf16 : DType::f32;
}

// Whether products of f32 read a weight of bf16 where it lies.
bool is_widened(const View& weight) {
  return weight.dtype() == DType::bf16 && weight.is_contiguous() && weight.size(1) % 2 == 0;
}

// x, row-major, in `dtype`, rounded to `rounding` on the way; `made` holds it where it is not x itself.
const void* rows_of(const View& x, DType dtype, DType rounding, Tensor& made) {
  if (x.dtype() == dtype && (dtype == rounding || x.dtype() == rounding) && x.is_contiguous()) return x.raw();
  made = converted(x, rounding);
  if (dtype != rounding) made = converted(made, dtype);
  return made.raw();
}

// Rows of x [rows,in] as quantized weights meet them, made once for layers that take them alike.
class RowsForBlocks {
 public:
  RowsForBlocks(const void* x, std::int64_t rows, std::int64_t in)
      : x_(static_cast<const float*>(x)), rows_(rows), in_(in) {}

  const void* of(const kernels::BlockKernels& kernels) {
    if (!kernels.prepare) return x_;
    if (made_for_ != kernels.prepare) make(kernels);
    return made_.back().raw();
  }

 private:
  void make(const kernels::BlockKernels& kernels) {
    const std::int64_t bytes = in_ / 32 * kernels.prepared_bytes;
    auto* to = static_cast<std::byte*>(made_.emplace_back(Tensor::uninitialized({rows_, bytes}, DType::i8)).raw());
    parallel_for(rows_, parallel_copies / in_ + 1, [&](std::int64_t begin, std::int64_t end) {
      kernels.prepare(x_ + begin * in_, (end - begin) * in_, to + begin * bytes);
    });
    made_for_ = kernels.prepare;
  }

  const float* x_;
  std::int64_t rows_, in_;
  decltype(kernels::BlockKernels::prepare) made_for_ = nullptr;
  std::vector<Tensor> made_;
};

// Outputs [first, last) alone, whose weights are in `panel`.
kernels::LinearOperands of_panel(const kernels::LinearOperands& operands, std::int64_t first, std::int64_t last,
                                 const float* panel) {
  kernels::LinearOperands part = operands;
  part.packed = panel;
  part.out = last - first;
  part.bias = operands.bias ? operands.bias + first : nullptr;
  part.y = static_cast<std::byte*>(operands.y) + first * size_of(operands.y_dtype);
  return part;
}

// One y = x W^T + b of those that are computed side by side. Any cut into items gives the same bits.
class Product {
 public:
  enum class Weights {
    packed,   // in the kernels' order: operands.packed
    rows,     // [out,in], row-major: operands.weight
    columns,  // their transpose [in,out], row-major: operands.weight
    blocks,   // [out,in], quantized
  };

  Product(const kernels::LinearOperands& operands, std::int64_t rows, Weights weights,
          const kernels::BlockMatrix& blocks = {}, const kernels::BlockKernels& block_kernels = {})
      : operands_(operands),
        blocks_(blocks),
        block_kernels_(block_kernels),
        weights_(weights),
        rows_(rows),
        panels_(divide_up(operands.out, target_.panel_rows)) {}

  // Less than this is done, or read, before another thread has woken up. Few rows take as long as their weights take to
  // come from memory; packed ones may be in a cache.
  double work() const {
    const auto weights = static_cast<double>(operands_.in * operands_.out);
    const double products = 2 * static_cast<double>(rows_) * weights / parallel_flops;
    const double bytes = weights * static_cast<double>(size_of(operands_.weight_dtype)) / parallel_bytes;
    return weights_ == Weights::packed ? products : std::max(products, bytes);
  }

  // Into items, for so many threads: before all that follows.
  void cut(int threads) {
    panels_of_item_ = streams() ? stretch(threads) : 1;
    items_ = (streams() ? 1 : divide_up(rows_, rows_of_item())) * divide_up(panels_, panels_of_item_);
    if (rows_ == 0) items_ = 0;
  }

  std::int64_t items() const { return items_; }

  // Floats that an item works in.
  std::int64_t floats() const {
    if (weights_ == Weights::packed || streams()) return 0;
    return target_.linear.floats(operands_.dtype, target_.panel_rows, operands_.in);
  }

  void run(std::int64_t item, float* scratch) const {
    if (streams()) {
      const std::int64_t begin = item * panels_of_item_, end = std::min(panels_, begin + panels_of_item_);
      if (weights_ == Weights::blocks) return block_kernels_.stream(operands_, blocks_, rows_, begin, end);
      return target_.linear.stream(operands_, rows_, begin, end);
    }
    // Items count through the panels of outputs first: the rows of x stay in the L2 cache meanwhile.
    const std::int64_t first = item / panels_ * rows_of_item(), last = std::min(first + rows_of_item(), rows_);
    if (weights_ == Weights::packed) return target_.linear.run(operands_, first, last, item % panels_);
    run_packing(first, last, item % panels_ * target_.panel_rows, scratch);
  }

 private:
  // Whether the weights are read once, straight into the products.
  bool streams() const {
    return (weights_ == Weights::rows || weights_ == Weights::blocks) && rows_ <= kernels::linear_stream_rows;
  }

  // Long stretches, as what comes next is asked for within one, but eight for each thread where there is so much; of
  // blocks one: with two, SmolLM2's tokens took 1.04 times as long, and with eight 1.1 times those.
  std::int64_t stretch(int threads) const {
    const bool blocks = weights_ == Weights::blocks;
    const std::int64_t least_bytes = blocks ? 1 << 15 : 1 << 17;
    const std::int64_t row = blocks ? blocks_.matrix.row_bytes() : operands_.in * size_of(operands_.weight_dtype);
    const std::int64_t bytes = row * target_.panel_rows;
    return std::max(divide_up(least_bytes, bytes), divide_up(panels_, (blocks ? std::int64_t{1} : 8) * threads));
  }

  // A panel that is packed where it is used serves as many rows as make the copy small beside the products: a fresh
  // copy of all the weights, with the pages that it would touch first, took a quarter of the time where rows are few.
  std::int64_t rows_of_item() const {
    return weights_ == Weights::packed ? kernels::linear_rows : 8 * kernels::linear_rows;
  }

  void run_packing(std::int64_t begin, std::int64_t end, std::int64_t first, float* panel) const {
    const std::int64_t last = std::min(operands_.out, first + target_.panel_rows);
    if (weights_ == Weights::rows) {
      target_.linear.pack_rows(operands_.dtype, operands_.weight, operands_.weight_dtype, operands_.in, first, last,
                               panel);
    } else if (weights_ == Weights::blocks) {
      block_kernels_.pack(blocks_, first, last, panel);
    } else {
      kernels::linear_pack_columns(operands_.dtype, operands_.weight, operands_.in, operands_.out, first, last,
                                   target_.panel_rows, panel);
    }
    const kernels::LinearOperands part = of_panel(operands_, first, last, panel);
    for (std::int64_t row = begin; row < end; row += kernels::linear_rows) {
      const std::int64_t row_end = std::min(row + kernels::linear_rows, end);
      if (weights_ == Weights::blocks) {
        block_kernels_.run(part, row, row_end);
      } else {
        target_.linear.run(part, row, row_end, 0);
      }
    }
  }

  const kernels::Target& target_ = kernels::target();
  kernels::LinearOperands operands_;
  kernels::BlockMatrix blocks_;
  kernels::BlockKernels block_kernels_;
  Weights weights_;
  std::int64_t rows_, panels_;
  std::int64_t panels_of_item_ = 0, items_ = 0;  // since cut()
};

void multiply(std::vector<Product> products) {
  const int threads = num_threads();
  std::int64_t items = 0, floats = 0;
  double work = 0;
  for (Product& product : products) {
    product.cut(threads);
    items += product.items(), work += product.work();
    floats = std::max(floats, product.floats());
  }
  const int workers = work < 1 ? 1 : static_cast<int>(std::min<std::int64_t>(items, threads));
  Tensor scratch = Tensor::uninitialized({workers, floats});
  parallel_items(items, workers, [&](int worker, std::int64_t item) {
    for (const Product& product : products) {
      if (item < product.items()) return product.run(item, scratch.data<float>() + worker * floats);
      item -= product.items();
    }
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

// Rows [begin, end) of columns [first, last), whole blocks, as f32 [end - begin,last - first].
void weight_columns(const Linear& layer, std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last,
                    float* to) {
  const View weight = layer.weight();
  const std::int64_t count = last - first;
  if (layer.quantized())
    return kernels::target().linear.widen(columns_of(*layer.quantized(), first, last), begin, end, to, count);
  if (!weight.is_contiguous()) {
    MutableView(to, DType::f32, {end - begin, count}).copy_from(weight.slice(0, begin, end).slice(1, first, last));
    return;
  }
  const auto* from = static_cast<const std::byte*>(weight.raw());
  for (std::int64_t r = begin; r < end; ++r)
    kernels::target().rows.convert(from + (r * layer.in_size() + first) * size_of(weight.dtype()), weight.dtype(),
                                   to + (r - begin) * count, DType::f32, count);
}

// y = x W of a weight that is not in f32, which is the products' dtype.
class WidenedProduct {
 public:
  WidenedProduct(const Linear& layer, const kernels::LinearOperands& operands, std::int64_t rows)
      : layer_(layer), operands_(operands), rows_(rows), in_(layer.in_size()), out_(layer.out_size()) {}

  void run() const {
    const std::int64_t wide = divide_up(columns_at_once, block()) * block();
    if (out_ * wide > most_floats) return by_strips(std::max(block(), most_floats * 2 / out_ / block() * block()));
    const std::int64_t items = divide_up(in_, wide), floats = target_.linear.floats(DType::f32, panel_, out_);
    const double work = 2e-6 * static_cast<double>(in_ * out_ * (rows_ + 8));  // a number is unpacked in that of 8 rows
    const int workers = work < 1 ? 1 : static_cast<int>(std::min<std::int64_t>(items, num_threads()));
    Tensor scratch = Tensor::uninitialized({workers, out_ * wide + floats});
    parallel_items(items, workers, [&](int worker, std::int64_t item) {
      float* strip = scratch.data<float>() + worker * scratch.size(1);
      run_columns(item * wide, std::min(in_, (item + 1) * wide), strip, strip + out_ * wide);
    });
  }

 private:
  // Whole panels of every target, of which a strip of most matrices stays in the second-level cache: the numbers are
  // used where they are made.
  static constexpr std::int64_t columns_at_once = 96, most_floats = 1 << 20;

  std::int64_t block() const { return layer_.quantized() ? block_size(layer_.quantized()->type) : 32; }

  void run_columns(std::int64_t first, std::int64_t last, float* strip, float* panel) const {
    weight_columns(layer_, 0, out_, first, last, strip);
    for (std::int64_t column = first; column < last; column += panel_) {
      const std::int64_t end = std::min(last, column + panel_);
      kernels::linear_pack_columns(DType::f32, strip, out_, last - first, column - first, end - first, panel_, panel);
      const kernels::LinearOperands part = of_panel(operands_, column, end, panel);
      for (std::int64_t row = 0; row < rows_; row += kernels::linear_rows)
        target_.linear.run(part, row, std::min(row + kernels::linear_rows, rows_), 0);
    }
  }

  // Of so many outputs that a thread's strip would fit no cache: all threads make one, and multiply by it.
  void by_strips(std::int64_t wide) const {
    Tensor strip = Tensor::uninitialized({out_, std::min(wide, in_)});
    for (std::int64_t first = 0; first < in_; first += wide) {
      const std::int64_t last = std::min(first + wide, in_), count = last - first;
      parallel_for(out_, parallel_copies / count + 1, [&](std::int64_t begin, std::int64_t end) {
        weight_columns(layer_, begin, end, first, last, strip.data<float>() + begin * count);
      });
      kernels::LinearOperands some = of_panel(operands_, first, last, nullptr);
      some.weight = strip.raw();
      some.weight_dtype = DType::f32;
      multiply({{some, rows_, Product::Weights::columns}});
    }
  }

  const kernels::Target& target_ = kernels::target();
  const Linear& layer_;
  kernels::LinearOperands operands_;
  std::int64_t rows_, in_, out_, panel_ = target_.panel_rows;
};

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
  if (product_dtype(weight.dtype(), weight.size(1)) != weight.dtype() && !is_widened(weight)) layer.pack();
  return layer;
}

Linear Linear::borrow(const QuantizedView& weight, const std::optional<View>& bias, Activations activations) {
  check_blocks("Linear", weight);
  if (bias) check_bias(*bias, {weight.rows, weight.columns});
  Linear layer;
  layer.quantized_ = weight;
  layer.activations_ = activations;
  if (bias) layer.bias_ = bias->to(DType::f32);
  return layer;
}

Tensor Linear::weight_rows(std::int64_t first, std::int64_t last) const {
  if (quantized_) return dequantize(*quantized_, first, last);
  return weight().slice(0, first, last).to(DType::f32);
}

Linear Linear::to(DType dtype) const {
  if (dtype != DType::f32 && dtype != DType::bf16)
    fail(ErrorCode::bad_dtype, "Linear", "dtype is {}, expected f32 or bf16", dtype);
  return quantized_ ? Linear(dequantize(*quantized_), bias_, dtype) : Linear(weight(), bias_, dtype);
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
  return std::move(forward_each({this}, x, y_dtype).front());
}

std::vector<Tensor> Linear::forward_each(const std::vector<const Linear*>& layers, const View& x) {
  return layers.empty() ? std::vector<Tensor>{} : forward_each(layers, x, layers.front()->dtype());
}

std::vector<Tensor> Linear::forward_each(const std::vector<const Linear*>& layers, const View& x, DType y_dtype) {
  const DType dtype = layers.front()->dtype(), product = product_dtype(dtype, layers.front()->in_size());
  if (y_dtype != dtype && y_dtype != DType::f32)
    fail(ErrorCode::bad_dtype, "Linear", "y_dtype is {}, expected f32 or the layer's {}", y_dtype, dtype);
  const DType made_dtype = product == y_dtype ? product : DType::f32;
  for (const Linear* layer : layers) {
    layer->check_input(x);
    if (layer->dtype() != dtype)
      fail(ErrorCode::bad_dtype, "Linear", "layers are {} and {}, expected one dtype", dtype, layer->dtype());
  }
  std::vector<Tensor> results;
  std::vector<Product> products;
  Tensor made;
  const void* rows = rows_of(x, product, dtype, made);
  RowsForBlocks rows_for_blocks(rows, x.count() / layers.front()->in_size(), layers.front()->in_size());
  for (const Linear* layer : layers) {
    results.push_back(Tensor::uninitialized(with_last(x.shape(), layer->out_size()), made_dtype));
    kernels::LinearOperands operands;
    operands.dtype = product;
    operands.y_dtype = made_dtype;
    operands.x = rows;
    operands.y = results.back().raw();
    operands.in = operands.x_stride = layer->in_size();
    operands.out = operands.y_stride = layer->out_size();
    operands.bias = layer->bias_ ? layer->bias_->data<float>() : nullptr;
    Product::Weights weights = Product::Weights::packed;
    kernels::BlockMatrix blocks;
    kernels::BlockKernels block_kernels{};
    if (layer->quantized_) {
      blocks = cut(*layer->quantized_);
      block_kernels = kernels::target().linear.blocks(layer->quantized_->type, layer->activations_);
      operands.x = rows_for_blocks.of(block_kernels);
      weights = Product::Weights::blocks;
    } else if (layer->packed_.count() > 0) {
      operands.packed = layer->packed_.data<float>();
    } else {
      operands.weight = layer->borrowed_->raw();
      operands.weight_dtype = layer->borrowed_->dtype();
      weights = layer->borrowed_->is_contiguous() ? Product::Weights::rows : Product::Weights::columns;
    }
    products.emplace_back(operands, x.count() / layer->in_size(), weights, blocks, block_kernels);
  }
  multiply(std::move(products));
  for (Tensor& y : results) {
    if (made_dtype != y_dtype) y = converted(y, y_dtype);
  }
  return results;
}

// dx = dy W, dW = dy^T x, db = dy^T 1: the products of forward()'s kind that linear.h tells of.
LinearGradients Linear::backward(const View& dy, const View& x) const {
  check_input(x);
  check_given("Linear", "dy", dy, with_last(x.shape(), out_size()));
  const std::int64_t rows = x.count() / in_size();
  const DType product = product_dtype(dtype(), out_size());
  if (rows == 0) {
    return {Tensor(x.shape(), dtype()), Tensor({out_size(), in_size()}),
            bias_ ? std::optional(Tensor({out_size()})) : std::nullopt};
  }
  Tensor made_dy, made_x;
  const void* dy_rows = rows_of(dy, product, dtype(), made_dy);
  const void* x_rows = rows_of(x, product, dtype(), made_x);
  LinearGradients out{
      input_gradient(product, dtype(), dy_rows, x.shape()), weight_gradient(product, dy_rows, x_rows, rows), {}};
  if (bias_ && product == DType::bf16) out.dbias = sum_rows(static_cast<const BF16*>(dy_rows), rows, out_size());
  if (bias_ && product == DType::f32) out.dbias = sum_rows(static_cast<const float*>(dy_rows), rows, out_size());
  return out;
}

Tensor Linear::input_gradient(const View& dy) const {
  if (dy.rank() == 0) fail(ErrorCode::bad_shape, "Linear", "dy has no axes, expected [...,{}]", out_size());
  check_given("Linear", "dy", dy, with_last(dy.shape(), out_size()));
  const DType product = product_dtype(dtype(), out_size());
  Tensor made;
  return input_gradient(product, DType::f32, rows_of(dy, product, dtype(), made), with_last(dy.shape(), in_size()));
}

// dy [rows,out] -> dx = dy W
Tensor Linear::input_gradient(DType product, DType dx_dtype, const void* dy, const Dims& shape) const {
  Tensor dx = Tensor::uninitialized(shape, dx_dtype == product ? product : DType::f32);
  if (dx.count() == 0) return dx_dtype == dx.dtype() ? std::move(dx) : Tensor(shape, dx_dtype);
  kernels::LinearOperands operands;
  operands.dtype = product;
  operands.y_dtype = dx.dtype();
  operands.x = dy;
  operands.y = dx.raw();
  operands.in = operands.x_stride = out_size();
  operands.out = operands.y_stride = in_size();
  const std::int64_t rows = dx.count() / in_size();
  if (quantized_ || weight().dtype() != product) {
    WidenedProduct(*this, operands, rows).run();
  } else {
    // What is transposed where it lies is W^T in rows.
    const bool lies_in_rows = weight().is_contiguous();
    operands.weight = weight().raw();
    operands.weight_dtype = product;
    multiply({{operands, rows, lies_in_rows ? Product::Weights::columns : Product::Weights::rows}});
  }
  return dx.dtype() == dx_dtype ? std::move(dx) : converted(dx, dx_dtype);
}

// dy [rows,out], x [rows,in] -> dW = dy^T x
Tensor Linear::weight_gradient(DType product, const void* dy, const void* x, std::int64_t rows) const {
  // Rows that lie a multiple of 4 KiB apart would share few places of the L1 cache: 64 bytes more part them. (They also
  // hold the zero that makes the number of bf16 products even.)
  const std::int64_t line = 64 / size_of(product), stride = divide_up(rows, line) * line + line;
  Tensor dweight = Tensor::uninitialized({out_size(), in_size()});
  const Tensor turned = transpose(product, dy, rows, out_size(), stride);
  kernels::LinearOperands operands;
  operands.dtype = product;
  operands.x = turned.raw();
  operands.y = dweight.raw();
  operands.in = rows;
  operands.x_stride = stride;
  operands.out = operands.y_stride = in_size();
  operands.weight = x;
  operands.weight_dtype = product;
  multiply({{operands, out_size(), Product::Weights::columns}});
  return dweight;
}

}  // namespace attend::inline v1
