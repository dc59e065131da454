// Products with matrices that are a model's: dense, borrowed or quantized; and rows of a matrix by their ids. Each
// holds what the PyTorch layer of that name holds, and is initialised as it is.
//
// backward() stands beside each forward(): given the gradient of the forward's result, the gradients of its arguments
// and parameters. There is no tape. What a backward needs of its forward is an argument: the forward's own, and where
// more is needed a struct that the forward fills and anyone may look at. Layers do not change; one with new parameters
// is made from them. Gradients of parameters are f32. Bits: the same for any number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attend/api.h"
#include "attend/quantized.h"
#include "attend/random.h"
#include "attend/tensor.h"

namespace attend::inline v0 {

// The numbers of rows [first, last), [last - first,columns] f32: ggml's, to the bit. Throws bad_shape, bad_value.
ATTEND_API Tensor dequantize(const QuantizedView& matrix, std::int64_t first, std::int64_t last);
ATTEND_API Tensor dequantize(const QuantizedView& matrix);

struct ATTEND_API LinearOptions {
  bool bias = true;
};

struct ATTEND_API LinearGradients {
  Tensor dx;                    // x's shape, in the layer's dtype
  Tensor dweight;               // [out,in], f32
  std::optional<Tensor> dbias;  // [out], f32; where there is a bias
};

// y = x W^T + b, torch.nn.Linear. The weight is kept twice: as it is, in dtype(), and as the kernels read it, in the
// dtype of their products; a borrowed one not at all. The bias is f32.
class ATTEND_API Linear {
 public:
  // Draws weight, then bias, as nn.Linear does: uniform within 1 / sqrt(in_size). Throws bad_value for a size below 1.
  Linear(std::int64_t in_size, std::int64_t out_size, Generator& generator, LinearOptions options = {});
  // weight [out,in], bias [out] or none; floating point of any width. Throws bad_shape, bad_dtype.
  explicit Linear(const View& weight, const std::optional<View>& bias = std::nullopt);

  // A layer that reads its weight where it lies, [out,in] in f32 or bf16, row-major or transposed, and computes in that
  // dtype: nothing is copied (but the bias; and where the kernels have no products of bf16, or `in` is odd, the weight
  // in f32). The memory must outlive the layer. The bits are those of a layer that keeps its weight. Throws bad_shape,
  // bad_dtype.
  static Linear borrow(const View& weight, const std::optional<View>& bias = std::nullopt);

  // The same of a quantized weight. With exact activations y is that of the weight's numbers as dequantize() gives
  // them, in f32, or where the processor multiplies bytes by digits of x that are as exact; fast and int8 round x
  // (docs/numerics.md has both). Blocks are unpacked in registers: for up to 8 rows of x where they pass by, for more a
  // panel at a time; a row has the same bits either way. backward() and input_gradient() are those of y without the
  // rounding. Throws bad_shape; bad_value for a head that can't be interleaved.
  static Linear borrow(const QuantizedView& weight, const std::optional<View>& bias = std::nullopt,
                       Activations activations = Activations::exact);

  // The same layer computing in dtype, f32 or bf16. bf16: weights and x rounded to bf16, products summed in f32, the
  // bias added in f32, y rounded to bf16. Throws bad_dtype.
  Linear to(DType dtype) const;

  // x [...,in] -> [...,out] in dtype(), f32 unless to() said otherwise. Sums are in f32, in an order that depends on
  // `in` alone: the same bits for any number of rows and threads. Throws bad_shape, bad_dtype.
  Tensor forward(const View& x) const;
  // The same in y_dtype, dtype() or f32: sums that are not rounded once more.
  Tensor forward(const View& x, DType y_dtype) const;
  // What each of several layers of one in_size() and dtype makes of the same x, such as the queries, keys and values of
  // self-attention: one loop over all outputs, with the bits of forward(). Throws bad_shape, bad_dtype.
  static std::vector<Tensor> forward_each(const std::vector<const Linear*>& layers, const View& x);
  // dy [...,out], x [...,in] as it was in forward(). In bf16 both are rounded to bf16, as are the weights, products are
  // summed in f32, and dx is rounded to bf16. Memory besides the gradients: what dy, x and the weights take. Throws
  // bad_shape, bad_dtype.
  LinearGradients backward(const View& dy, const View& x) const;
  // dx alone, not rounded: dy [...,out] -> dy W [...,in], f32. In bf16 dy is rounded to bf16; a quantized weight is
  // taken as its numbers in f32, unpacked a strip of columns at a time.
  Tensor input_gradient(const View& dy) const;

  DType dtype() const { return quantized_ ? DType::f32 : weight().dtype(); }
  std::int64_t in_size() const { return quantized_ ? quantized_->columns : weight().size(1); }
  std::int64_t out_size() const { return quantized_ ? quantized_->rows : weight().size(0); }
  // [out,in], dtype(); empty where it is quantized
  View weight() const ATTEND_LIFETIMEBOUND { return borrowed_ ? *borrowed_ : weight_.view(); }
  const std::optional<QuantizedView>& quantized() const { return quantized_; }
  Activations activations() const { return activations_; }
  // Rows [first, last) of the weight, whatever it is, as f32 [last - first,in]. Throws bad_value.
  Tensor weight_rows(std::int64_t first, std::int64_t last) const;
  const std::optional<Tensor>& bias() const { return bias_; }  // [out], f32

 private:
  Linear() = default;
  Linear(const View& weight, const std::optional<Tensor>& bias, DType dtype);
  void pack();
  void check_input(const View& x) const;
  static std::vector<Tensor> forward_each(const std::vector<const Linear*>& layers, const View& x, DType y_dtype);
  Tensor input_gradient(DType product, DType dx_dtype, const void* dy, const Dims& shape) const;
  Tensor weight_gradient(DType product, const void* dy, const void* x, std::int64_t rows) const;

  Tensor weight_;                           // empty where it is borrowed
  std::optional<View> borrowed_;            // row-major or transposed
  std::optional<QuantizedView> quantized_;  // of whole blocks
  Activations activations_ = Activations::exact;
  std::optional<Tensor> bias_;
  Tensor packed_;  // empty where it is borrowed, but for kernels that have no products of its dtype
};

// What a key carries per unit of weight, abs(W_O^h v_j) [B,H,Tk] (Kobayashi et al. 2020): v [B,Hkv,Tk,Dv], with its
// bias, and output_weight [E,H*Dv] of the projection that follows attention, head by head, as Linear has it; of any
// floating-point dtype, computed in f32, for f64 values in f64. H must be a multiple of Hkv. Bits: the same for any
// number of threads. Throws bad_shape, bad_dtype.
ATTEND_API Tensor key_sizes(const View& v, const View& output_weight);

// A row of numbers for each id, torch.nn.Embedding.
class ATTEND_API Embedding {
 public:
  // Draws the weight from N(0,1), as nn.Embedding does.
  Embedding(std::int64_t count, std::int64_t size, Generator& generator);
  // weight [count,E], floating point.
  explicit Embedding(const View& weight);

  // ids [T] -> [T,E], f32. Throws bad_value for an id outside [0, count).
  Tensor forward(std::span<const std::int64_t> ids) const;
  // dy [...,E], a row for each id -> dweight [count,E], f32: for each embedding the sum of the rows where its id stood.
  // Throws bad_value as forward() does, bad_shape, bad_dtype.
  Tensor backward(const View& dy, std::span<const std::int64_t> ids) const;

  const Tensor& weight() const { return weight_; }

 private:
  Tensor weight_;  // [count,E]
};

}  // namespace attend::inline v0
