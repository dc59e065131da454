// Layers with parameters, each holding what the PyTorch layer of that name holds, and initialised as it is.
//
// backward() stands beside each forward(): given the gradient of the forward's result, the gradients of its arguments
// and parameters. There is no tape. What a backward needs of its forward is an argument: the forward's own, and where
// more is needed a struct that the forward fills and anyone may look at. Layers do not change; one with new parameters
// is made from them. Gradients of parameters are f32. Bits: the same for any number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/attention.h"
#include "attend/io.h"
#include "attend/quantized.h"
#include "attend/random.h"
#include "attend/tensor.h"

#pragma GCC visibility push(default)

namespace attend {

// The numbers of rows [first, last), [last - first,columns] f32: ggml's, to the bit. Throws bad_shape, bad_value.
Tensor dequantize(const QuantizedView& matrix, std::int64_t first, std::int64_t last);
Tensor dequantize(const QuantizedView& matrix);

struct LinearOptions {
  bool bias = true;
};

struct LinearGradients {
  Tensor dx;                    // x's shape, in the layer's dtype
  Tensor dweight;               // [out,in], f32
  std::optional<Tensor> dbias;  // [out], f32; where there is a bias
};

// y = x W^T + b, torch.nn.Linear. The weight is kept twice: as it is, in dtype(), and as the kernels read it, in the
// dtype of their products; a borrowed one not at all. The bias is f32.
class Linear {
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

  // The same of a quantized weight: of its numbers as dequantize() gives them, in f32, or where the processor
  // multiplies bytes (target avx512_bf16) by digits of x that are as exact (docs/numerics.md). They are unpacked in
  // registers: for up to 8 rows of x where they pass by, for more a panel at a time; a row has the same bits either
  // way. Throws bad_shape; bad_value for a head that can't be interleaved.
  static Linear borrow(const QuantizedView& weight, const std::optional<View>& bias = std::nullopt);

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

  DType dtype() const { return quantized_ ? DType::f32 : weight().dtype(); }
  std::int64_t in_size() const { return quantized_ ? quantized_->columns : weight().size(1); }
  std::int64_t out_size() const { return quantized_ ? quantized_->rows : weight().size(0); }
  // [out,in], dtype(); empty where it is quantized
  View weight() const ATTEND_LIFETIMEBOUND { return borrowed_ ? *borrowed_ : weight_.view(); }
  const std::optional<QuantizedView>& quantized() const { return quantized_; }
  // Rows [first, last) of the weight, whatever it is, as f32 [last - first,in]. Throws bad_value.
  Tensor weight_rows(std::int64_t first, std::int64_t last) const;
  const std::optional<Tensor>& bias() const { return bias_; }  // [out], f32

 private:
  Linear() = default;
  Linear(const View& weight, const std::optional<Tensor>& bias, DType dtype);
  void pack();
  void check_input(const View& x) const;
  static std::vector<Tensor> forward_each(const std::vector<const Linear*>& layers, const View& x, DType y_dtype);
  Tensor input_gradient(DType product, const void* dy, const Dims& shape) const;
  Tensor weight_gradient(DType product, const void* dy, const void* x, std::int64_t rows) const;

  Tensor weight_;                           // empty where it is borrowed
  std::optional<View> borrowed_;            // row-major or transposed
  std::optional<QuantizedView> quantized_;  // of whole blocks
  std::optional<Tensor> bias_;
  Tensor packed_;  // empty where it is borrowed, but for kernels that have no products of its dtype
};

// What a key carries per unit of weight, abs(W_O^h v_j) [B,H,Tk] (Kobayashi et al. 2020): v [B,Hkv,Tk,Dv], with its
// bias, and output_weight [E,H*Dv] of the projection that follows attention, head by head, as Linear has it; of any
// floating-point dtype, computed in f32, for f64 values in f64. H must be a multiple of Hkv. Bits: the same for any
// number of threads. Throws bad_shape, bad_dtype.
Tensor key_sizes(const View& v, const View& output_weight);

// A row of numbers for each id, torch.nn.Embedding.
class Embedding {
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

// What transformers have between their products, forward only. x and its like: floating point, computed in f32, and
// rows are their last axis. Throws bad_shape, bad_dtype.

// (x - mean) / sqrt(variance + eps) * weight + bias, torch.nn.LayerNorm (Ba et al. 2016).
class LayerNorm {
 public:
  // weight [E], bias [E] or none. Throws bad_value for eps below 0 or not finite.
  explicit LayerNorm(const View& weight, const std::optional<View>& bias = std::nullopt, double eps = 1e-5);
  // x [...,E] -> the same shape in y_dtype: f32, bf16 or f16.
  Tensor forward(const View& x, DType y_dtype = DType::f32) const;

  const Tensor& weight() const { return weight_; }             // [E], f32
  const std::optional<Tensor>& bias() const { return bias_; }  // [E], f32
  double eps() const { return eps_; }

 private:
  Tensor weight_;
  std::optional<Tensor> bias_;
  double eps_;
};

// x / sqrt(mean of x^2 + eps) * weight, torch.nn.RMSNorm (Zhang and Sennrich 2019).
class RmsNorm {
 public:
  explicit RmsNorm(const View& weight, double eps = 1e-6);
  Tensor forward(const View& x, DType y_dtype = DType::f32) const;

  const Tensor& weight() const { return weight_; }  // [E], f32
  double eps() const { return eps_; }

 private:
  Tensor weight_;
  double eps_;
};

// What is between two products, number by number.
enum class Activation : std::uint8_t {
  linear,        // x
  relu,          // max(x, 0)
  relu6,         // min(max(x, 0), 6)
  relu_squared,  // relu(x)^2 (So et al. 2021)
  leaky_relu,    // x, and below 0 x / 100
  gelu,          // x times the normal distribution's function at x (Hendrycks and Gimpel 2016)
  gelu_tanh,     // its approximation by tanh: PyTorch's approximate="tanh", "gelu_new" elsewhere
  gelu_quick,    // x / (1 + e^-1.702x)
  gelu_10,       // min(gelu(x), 10)
  silu,          // x / (1 + e^-x)
  hardswish,     // x relu6(x + 3) / 6 (Howard et al. 2019)
  mish,          // x tanh(ln(1 + e^x)) (Misra 2019)
  sigmoid,       // 1 / (1 + e^-x)
  tanh,
  laplace,        // the distribution function of N(0.707107, 0.282095) at x (Ma et al. 2022)
  sqrt_softplus,  // sqrt(ln(1 + e^x))
};

// x = f(x); x row-major, f32, bf16 or f16.
void activate(Activation f, const MutableView& x);
// x = f(x) * gated, of the same shape and dtype. With silu that is SwiGLU's product (Shazeer 2020).
void activate(Activation f, const MutableView& x, const View& gated);

// How rotary angles are stretched for texts longer than those of the training.
enum class RotaryScaling : std::uint8_t {
  none,
  linear,    // positions divided by factor (Chen et al. 2023)
  llama3,    // slow frequencies divided by factor, fast ones kept, those between mixed (Llama 3.1)
  yarn,      // likewise, between beta_fast and beta_slow turns, and the scores sharpened (Peng et al. 2023)
  longrope,  // each frequency divided by its own number, in texts longer than those by another (Ding et al. 2024)
};

struct RotaryOptions {
  double theta = 10000;
  RotaryScaling scaling = RotaryScaling::none;
  double factor = 1;
  std::int64_t original_length = 0;                            // not of linear: tokens of the training's texts
  double low_frequency_factor = 1, high_frequency_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;                        // yarn
  bool truncate = true;                                        // yarn: between whole dimensions
  // yarn: the default of attention_factor is m(mscale) / m(mscale_all_dim) where both are there, m(1) otherwise;
  // m(x) = 0.1 x ln(factor) + 1
  double mscale = 0, mscale_all_dim = 0;
  std::vector<double> short_factors = {}, long_factors = {};  // longrope: [R/2]
  // yarn, longrope: of cos and sin; longrope's default is sqrt(1 + ln(factor) / ln(original_length))
  std::optional<double> attention_factor = {};
};

// cos and sin of the angles of T positions, [T,R/2], f32.
struct RotaryAngles {
  Tensor cos, sin;
};

// Rotary positions (Su et al. 2021): of the first R numbers of a head, all of them or a part, the pairs (i, i + R/2),
// turned by position * theta^(-2i/R).
// Frequencies and angles are rounded to f32, as in the programs that the models were trained by.
class RotaryEmbedding {
 public:
  // rotary_size: R, even. Throws bad_value.
  explicit RotaryEmbedding(std::int64_t rotary_size, const RotaryOptions& options = {});
  // starts: [sequences + 1], where each sequence begins, and the end; empty: one sequence. The frequencies of longrope
  // are those for the sequence's last position: keys that were rotated before it grew longer than original_length keep
  // theirs, as in Transformers.
  RotaryAngles angles(std::span<const std::int64_t> positions, std::span<const std::int64_t> starts = {}) const;
  // In place; x [T,H,D], D from R on, the last axis row-major.
  static void rotate(const MutableView& x, const RotaryAngles& angles);

 private:
  std::vector<float> frequencies_;       // [R/2]
  std::vector<float> long_frequencies_;  // of sequences longer than original_length_; empty: the same
  std::int64_t original_length_ = 0;
  double factor_ = 1;  // of cos and sin
};

struct SelfAttentionOptions {
  bool qkv_bias = false;
};

// What SelfAttention::forward() keeps for backward(), in its dtype(); lse and lse_low in f32. N: T, or B,T.
struct SelfAttentionState {
  Tensor queries;  // [N,D]
  Tensor keys;     // [N,D]
  Tensor values;   // [N,Dv]
  Tensor context;  // [N,Dv]
  Tensor lse;      // [N]
  Tensor lse_low;  // [N]
};

struct SelfAttentionGradients : OptionGradients {
  Tensor dx;                          // x's shape: query.dx + key.dx + value.dx
  LinearGradients query, key, value;  // of a layer from_parameters(): of w_query [E,D] as [D,E], and so on
};

// One head: queries, keys and values of one sequence, without an output projection.
class SelfAttention {
 public:
  // Linear layers, as nn.Linear(E, D) draws them, in the order query, key, value.
  SelfAttention(std::int64_t embedding_size, std::int64_t d_k, std::int64_t d_v, Generator& generator,
                SelfAttentionOptions options = {});
  // Layers of one in_size() and dtype, query and key of one out_size(). Throws bad_shape, bad_dtype.
  SelfAttention(Linear query, Linear key, Linear value);
  // Bare parameters, used as x @ w: w_query [E,D], w_key [E,D], w_value [E,Dv].
  static SelfAttention from_parameters(const View& w_query, const View& w_key, const View& w_value);

  // The same layer computing in dtype, f32 or bf16: its Linear layers as Linear::to() has them, and attention in dtype.
  // Throws bad_dtype.
  SelfAttention to(DType dtype) const;
  DType dtype() const { return query_.dtype(); }

  // x [T,E] or [B,T,E], floating point -> context [T,Dv] or [B,T,Dv], dtype().
  Tensor forward(const View& x, const AttentionOptions& options = {}) const;
  // The same, and fills `state`.
  Tensor forward(const View& x, const AttentionOptions& options, SelfAttentionState& state) const;
  // dcontext: the gradient of forward()'s result, floating point; x, options and state as they were there. `backward`
  // as in attention_backward(), dlse in the shape of state.lse. Throws bad_shape, bad_dtype, bad_value.
  SelfAttentionGradients backward(const View& dcontext, const View& x, const SelfAttentionState& state,
                                  const AttentionOptions& options = {}, const BackwardOptions& backward = {}) const;

  const Linear& query() const { return query_; }
  const Linear& key() const { return key_; }
  const Linear& value() const { return value_; }

 private:
  void check_input(const View& x) const;
  void check_state(const View& dcontext, const View& x, const SelfAttentionState& state) const;
  void compute(const View& x, const AttentionOptions& options, SelfAttentionState& state) const;

  Linear query_, key_, value_;
};

struct MultiHeadAttentionOptions {
  std::int64_t d_k = 0;           // head size of queries and keys; 0: E / heads
  std::int64_t d_v = 0;           // head size of values; 0: E / heads
  std::int64_t key_size = 0;      // embedding size of the key sequence (torch: kdim); 0: E
  std::int64_t value_size = 0;    // embedding size of the value sequence (torch: vdim); 0: E
  bool bias = true;               // on the projections, the output projection included
  bool output_projection = true;  // concat_heads [T, heads * d_v] -> output [T,E]
  bool bias_kv = false;           // one learned key and value more (torch: bias_k, bias_v)
  bool zero_attention = false;    // one key and value of zeros more (torch: add_zero_attn)
};

// torch.nn.MultiheadAttention's polarity: in a bool mask, true = may NOT attend. This is the only place in the library
// where it is so; a floating-point mask is added to the scaled scores, as everywhere.
struct MultiHeadAttentionCall {
  enum class Weights { none, averaged, per_head };

  OptionalView key_padding_mask = {};  // [B,Tk], or [Tk] without B
  OptionalView attn_mask = {};         // [Tq,Tk] or [B*heads,Tq,Tk]
  AttentionOptions attention = {};     // causal, window, mask, ... as everywhere; all of them hold together
  Weights weights = Weights::none;
};

// Without B in the arguments, without B in the results.
struct MultiHeadAttentionResult {
  Tensor output;  // [B,Tq,E], or the concatenated heads [B,Tq,heads * d_v] without an output projection; dtype()
  std::optional<Tensor>
      weights;  // averaged [B,Tq,Tk'] or per head [B,heads,Tq,Tk']; Tk' counts bias_kv and zero_attention
};

// What MultiHeadAttention::forward() keeps for backward(), in its dtype(), lse and lse_low in f32; without B where the
// arguments had none. Tk' counts the keys of bias_kv and zero_attention.
struct MultiHeadAttentionState {
  Tensor queries;       // [B,Tq,heads * d_k]
  Tensor keys;          // [B,Tk',heads * d_k]
  Tensor values;        // [B,Tk',heads * d_v]
  Tensor concat_heads;  // [B,Tq,heads * d_v]
  Tensor lse;           // [B,heads,Tq]
  Tensor lse_low;       // [B,heads,Tq]
};

// Which gradients of a call's tensors backward() gives besides; none by default. Those of key_padding_mask and
// attn_mask exist where these are floating point.
struct MultiHeadAttentionBackward {
  bool key_padding_mask = false;
  bool attn_mask = false;
  BackwardOptions attention = {};  // of MultiHeadAttentionCall::attention; lse is no result here, and has no gradient
};

// Those of the options, and of the two masks, in the shapes and dtypes of the call's, where they were asked for.
struct MultiHeadAttentionGradients : OptionGradients {
  // In the arguments' shapes, in the layer's dtype(). Of self-attention, dquery is all of x's gradient, and the others
  // are empty.
  Tensor dquery, dkey, dvalue;
  TensorMap parameters;  // the entries of state_dict(), f32
  std::optional<Tensor> dkey_padding_mask = {}, dattn_mask = {};
};

// Several heads side by side over slices of one projection: torch.nn.MultiheadAttention with batch_first=True.
//
// The keys of bias_kv and zero_attention come after the sequence's own, in that order, and have no position in it:
// every query sees them, whatever causal, window, key_lengths or a mask say, and ALiBi leaves their score as it is.
// Tk in the call (masks, key_lengths, bottom_right) counts the sequence's own keys. With appended keys, causal, window,
// key_lengths and ALiBi are written out as a mask and a bias, at most [B,heads,Tq,Tk'].
// A query that may attend to nothing has context 0 and weights 0, so that its output is the output projection's bias;
// torch gives NaN.
class MultiHeadAttention {
 public:
  // Draws what nn.MultiheadAttention draws, in its order. Where d_k or d_v differ from E / heads (torch has no such
  // layer): the same order and initialisers with those sizes, the projections separate.
  MultiHeadAttention(std::int64_t embedding_size, std::int64_t heads, Generator& generator,
                     MultiHeadAttentionOptions options = {});

  // A state_dict of nn.MultiheadAttention: in_proj_weight, or q_/k_/v_proj_weight; in_proj_bias, out_proj.weight,
  // out_proj.bias, bias_k, bias_v; each with `prefix` before its name. Sizes, bias and bias_kv come from the tensors,
  // and sizes in the options, where given, must agree. What torch does not keep in the state_dict (the number of heads,
  // add_zero_attn) is given; so is output_projection = false, lest a file without out_proj.weight pass for whole.
  // Throws bad_shape or bad_dtype, naming the entry; a missing one, or another name with the prefix, is a bad_value.
  static MultiHeadAttention from_state_dict(const TensorMap& tensors, std::int64_t heads,
                                            MultiHeadAttentionOptions options = {}, std::string_view prefix = "");
  // What from_state_dict reads. Where torch has such a layer, exactly its entries; else the projections separate, with
  // in_proj_bias [heads * (2 * d_k + d_v)], and without the entries of an output projection that is not there.
  TensorMap state_dict() const;

  // The same layer computing in dtype, f32 or bf16: its projections as Linear::to() has them, bias_kv rounded, and
  // attention in dtype. state_dict() keeps its names, shapes and f32; weights are what they were rounded to. Throws
  // bad_dtype.
  MultiHeadAttention to(DType dtype) const;
  DType dtype() const { return query_.dtype(); }

  // Self-attention: x [T,E] or [B,T,E].
  MultiHeadAttentionResult forward(const View& x, const MultiHeadAttentionCall& call = {}) const {
    return forward(x, x, x, call);
  }
  // Cross-attention: query [B,Tq,E], key [B,Tk,key_size], value [B,Tk,value_size], or all without B.
  MultiHeadAttentionResult forward(const View& query, const View& key, const View& value,
                                   const MultiHeadAttentionCall& call = {}) const;

  // The same, and fills `state`.
  MultiHeadAttentionResult forward(const View& x, const MultiHeadAttentionCall& call,
                                   MultiHeadAttentionState& state) const {
    return forward(x, x, x, call, state);
  }
  MultiHeadAttentionResult forward(const View& query, const View& key, const View& value,
                                   const MultiHeadAttentionCall& call, MultiHeadAttentionState& state) const;

  // doutput: the gradient of the result's output, floating point; the other arguments as they were in forward(). The
  // result's weights are for looking at: call.weights counts for nothing here, no gradient comes through them.
  // Memory besides state and gradients: that of Linear::backward; and where gradients of masks or biases are asked for
  // that forward() has to join (more than one, or appended keys), one of the joined size, at most [B,heads,Tq,Tk'].
  // Throws bad_shape, bad_dtype; bad_value where a gradient is asked for of something that is not there.
  MultiHeadAttentionGradients backward(const View& doutput, const View& x, const MultiHeadAttentionState& state,
                                       const MultiHeadAttentionCall& call = {},
                                       const MultiHeadAttentionBackward& wanted = {}) const;
  MultiHeadAttentionGradients backward(const View& doutput, const View& query, const View& key, const View& value,
                                       const MultiHeadAttentionState& state, const MultiHeadAttentionCall& call = {},
                                       const MultiHeadAttentionBackward& wanted = {}) const;

  std::int64_t heads() const { return heads_; }

 private:
  struct Parts;

  MultiHeadAttention(std::int64_t heads, Linear query, Linear key, Linear value);
  void check_arguments(const View& query, const View& key, const View& value) const;
  void check_state(const View& doutput, const View& query, const View& key, const MultiHeadAttentionState& state) const;
  std::int64_t appended() const { return (bias_k_ ? 1 : 0) + (zero_attention_ ? 1 : 0); }
  std::optional<Tensor> compute(const View& query, const View& key, const View& value,
                                const MultiHeadAttentionCall& call, MultiHeadAttentionState& state) const;
  void compute_backward(AttentionGradientViews to, const View& dconcat_heads, const MultiHeadAttentionState& state,
                        const MultiHeadAttentionCall& call, const MultiHeadAttentionBackward& wanted,
                        MultiHeadAttentionGradients& out) const;
  TensorMap by_name(const Parts& parts) const;
  static MultiHeadAttention draw(std::int64_t embedding_size, std::int64_t heads, Generator& generator,
                                 MultiHeadAttentionOptions options);

  std::int64_t heads_;
  Linear query_, key_, value_;    // E -> heads * d_k, key_size -> heads * d_k, value_size -> heads * d_v
  std::optional<Linear> output_;  // heads * d_v -> E
  std::optional<Tensor> bias_k_;  // [heads * d_k], dtype()
  std::optional<Tensor> bias_v_;  // [heads * d_v], dtype()
  bool zero_attention_ = false;
};

}  // namespace attend

#pragma GCC visibility pop
