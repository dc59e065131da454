// Matrix products and embeddings: y = x W^T + b with a dense, borrowed or quantized W, and rows of a table by id.
// Parameters and initialisation are those of PyTorch's layers.
//
// Each forward() has a backward(): it takes the gradient of the result and gives those of arguments and parameters, the
// latter in f32. There is no tape: what backward() needs from forward() is an argument. Layers don't change; make a new
// one from new parameters. Bits: the same for any number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attend/api.h"
#include "attend/quantized.h"
#include "attend/random.h"
#include "attend/tensor.h"

namespace attend::inline v1 {

// Rows [first,last) as numbers, [last - first,columns] f32, with ggml's bits. Throws bad_shape, bad_value.
ATTEND_API Tensor dequantize(const QuantizedView& matrix, std::int64_t first, std::int64_t last);
ATTEND_API Tensor dequantize(const QuantizedView& matrix);

struct ATTEND_API LinearOptions {
  bool bias = true;
};

struct ATTEND_API LinearGradients {
  Tensor dx;                    // x's shape, in the layer's dtype
  Tensor dweight;               // [out,in], f32
  std::optional<Tensor> dbias;  // [out], f32, if there is a bias
};

// y = x W^T + b, as torch.nn.Linear. Holds the weight twice: in dtype(), and packed for the kernels in the dtype of
// their products; a borrowed weight not at all. The bias is f32.
class ATTEND_API Linear {
 public:
  // Draws weight, then bias, as nn.Linear: uniform within 1 / sqrt(in_size). Throws bad_value for a size below 1.
  Linear(std::int64_t in_size, std::int64_t out_size, Generator& generator, LinearOptions options = {});
  // weight [out,in], bias [out] or none, any floating-point dtype. Throws bad_shape, bad_dtype.
  explicit Linear(const View& weight, const std::optional<View>& bias = std::nullopt);

  // Reads the weight where it lies, [out,in] in f32 or bf16, row-major or transposed, and computes in that dtype.
  // Copies only the bias. Where the kernels have no bf16 products, a weight in bf16 is widened as it is read; one that
  // is transposed, or whose `in` is odd, is copied as f32. The memory must outlive the layer. Bits: those of a layer
  // that owns its weight. Throws bad_shape, bad_dtype.
  static Linear borrow(const View& weight, const std::optional<View>& bias = std::nullopt);

  // The same for a quantized weight. With exact activations y has f32 accuracy over the weight's dequantize()d numbers;
  // fast and int8 round x (docs/numerics.md). Blocks are unpacked in registers for up to 8 rows of x, else a panel at a
  // time; a row has the same bits either way. backward() and input_gradient() ignore the rounding. Throws bad_shape;
  // bad_value for a head that can't be interleaved.
  static Linear borrow(const QuantizedView& weight, const std::optional<View>& bias = std::nullopt,
                       Activations activations = Activations::exact);

  // The same layer computing in dtype, f32 or bf16. bf16 rounds weights and x to bf16, sums products and bias in f32,
  // and rounds y to bf16. Throws bad_dtype.
  Linear to(DType dtype) const;

  // x [...,in] -> [...,out] in dtype(), f32 unless changed by to(). Sums are in f32, in an order that depends only on
  // `in`: the same bits for any number of rows and threads. Throws bad_shape, bad_dtype.
  Tensor forward(const View& x) const;
  // The same in y_dtype: dtype(), or f32 for sums that are not rounded again.
  Tensor forward(const View& x, DType y_dtype) const;
  // The results of several layers with one in_size() and dtype for the same x (such as queries, keys and values), in
  // one loop, with forward()'s bits. Throws bad_shape, bad_dtype.
  static std::vector<Tensor> forward_each(const std::vector<const Linear*>& layers, const View& x);
  // dy [...,out]; x [...,in] as in forward(). In bf16 both and the weights are rounded to bf16, products are summed in
  // f32, and dx is rounded to bf16. Extra memory: that of dy, x and the weights. Throws bad_shape, bad_dtype.
  LinearGradients backward(const View& dy, const View& x) const;
  // Only dx, not rounded: dy [...,out] -> dy W [...,in], f32. In bf16 dy is rounded to bf16. A quantized weight is
  // unpacked to f32 a strip of columns at a time.
  Tensor input_gradient(const View& dy) const;

  DType dtype() const { return quantized_ ? DType::f32 : weight().dtype(); }
  std::int64_t in_size() const { return quantized_ ? quantized_->columns : weight().size(1); }
  std::int64_t out_size() const { return quantized_ ? quantized_->rows : weight().size(0); }
  // [out,in], dtype(); empty if quantized
  View weight() const ATTEND_LIFETIMEBOUND { return borrowed_ ? *borrowed_ : weight_.view(); }
  const std::optional<QuantizedView>& quantized() const { return quantized_; }
  Activations activations() const { return activations_; }
  // Rows [first,last) of any kind of weight, [last - first,in] f32. Throws bad_value.
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

  Tensor weight_;                           // empty if borrowed
  std::optional<View> borrowed_;            // row-major or transposed
  std::optional<QuantizedView> quantized_;  // of whole blocks
  Activations activations_ = Activations::exact;
  std::optional<Tensor> bias_;
  Tensor packed_;  // empty if borrowed, unless the kernels lack products of its dtype
};

// What a key carries per unit of weight, abs(W_O^h v_j) [B,H,Tk] (Kobayashi et al. 2020). v [B,Hkv,Tk,Dv] with its
// bias; output_weight [E,H*Dv] of the projection after attention, as Linear has it. H is a multiple of Hkv. Any
// floating-point dtype, computed in f32, or f64 for f64 values. Bits: the same for any number of threads. Throws
// bad_shape, bad_dtype.
ATTEND_API Tensor key_sizes(const View& v, const View& output_weight);

// A row of numbers for each id, as torch.nn.Embedding.
class ATTEND_API Embedding {
 public:
  // Draws the weight from N(0,1), as nn.Embedding.
  Embedding(std::int64_t count, std::int64_t size, Generator& generator);
  // weight [count,E], floating point.
  explicit Embedding(const View& weight);

  // ids [T] -> [T,E], f32. Throws bad_value for an id outside [0,count).
  Tensor forward(std::span<const std::int64_t> ids) const;
  // dy [...,E], a row for each id -> dweight [count,E], f32: each id's sum of rows. Throws bad_value like forward(),
  // bad_shape, bad_dtype.
  Tensor backward(const View& dy, std::span<const std::int64_t> ids) const;

  const Tensor& weight() const { return weight_; }

 private:
  Tensor weight_;  // [count,E]
};

}  // namespace attend::inline v1
