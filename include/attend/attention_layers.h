// Attention with parameters: a single head, and PyTorch's nn.MultiheadAttention.
//
//     attend::Generator generator(123);
//     const attend::MultiHeadAttention layer(64, 8, generator);
//     const attend::Tensor output = layer.forward(x).output;  // x, output: [B,T,64]
//
// backward() takes the gradient of forward()'s result and gives those of arguments and parameters, the latter in f32.
// There is no tape: what it needs from forward() is a `state` argument. Layers don't change; make a new one from new
// parameters. Bits: the same for any number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "attend/api.h"
#include "attend/attention.h"
#include "attend/io.h"
#include "attend/linear.h"
#include "attend/random.h"
#include "attend/tensor.h"

namespace attend::inline v1 {

struct ATTEND_API SelfAttentionOptions {
  bool qkv_bias = false;
};

// What forward() keeps for backward(), in dtype(); lse and lse_low in f32. N is T, or B,T.
struct ATTEND_API SelfAttentionState {
  Tensor queries;  // [N,D]
  Tensor keys;     // [N,D]
  Tensor values;   // [N,Dv]
  Tensor context;  // [N,Dv]
  Tensor lse;      // [N]
  Tensor lse_low;  // [N]
};

struct ATTEND_API SelfAttentionGradients : OptionGradients {
  Tensor dx;                          // x's shape: query.dx + key.dx + value.dx
  LinearGradients query, key, value;  // from_parameters(): w_query [E,D] as [D,E], and so on
};

// One attention head over one sequence, without an output projection.
class ATTEND_API SelfAttention {
 public:
  // Draws Linear layers as nn.Linear(E, D) does, in the order query, key, value.
  SelfAttention(std::int64_t embedding_size, std::int64_t d_k, std::int64_t d_v, Generator& generator,
                SelfAttentionOptions options = {});
  // Layers with one in_size() and dtype; query and key with one out_size(). Throws bad_shape, bad_dtype.
  SelfAttention(Linear query, Linear key, Linear value);
  // Bare parameters, used as x @ w: w_query [E,D], w_key [E,D], w_value [E,Dv].
  static SelfAttention from_parameters(const View& w_query, const View& w_key, const View& w_value);

  // The same layer computing in dtype, f32 or bf16: its Linear layers by Linear::to(), attention in dtype. Throws
  // bad_dtype.
  SelfAttention to(DType dtype) const;
  DType dtype() const { return query_.dtype(); }

  // x [T,E] or [B,T,E], floating point -> context [T,Dv] or [B,T,Dv], dtype().
  Tensor forward(const View& x, const AttentionOptions& options = {}) const;
  // The same; fills `state`.
  Tensor forward(const View& x, const AttentionOptions& options, SelfAttentionState& state) const;
  // dcontext: the gradient of the result, floating point. x, options and state as in forward(). `backward`: as in
  // attention_backward(), dlse in the shape of state.lse. Throws bad_shape, bad_dtype, bad_value.
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

struct ATTEND_API MultiHeadAttentionOptions {
  std::int64_t d_k = 0;           // head size of queries and keys; 0: E / heads
  std::int64_t d_v = 0;           // head size of values; 0: E / heads
  std::int64_t key_size = 0;      // embedding size of the key sequence (torch: kdim); 0: E
  std::int64_t value_size = 0;    // embedding size of the value sequence (torch: vdim); 0: E
  bool bias = true;               // on all projections
  bool output_projection = true;  // concat_heads [T,heads * d_v] -> output [T,E]
  bool bias_kv = false;           // one extra learned key and value (torch: bias_k, bias_v)
  bool zero_attention = false;    // one extra key and value of zeros (torch: add_zero_attn)
};

// Masks in torch.nn.MultiheadAttention's polarity, used nowhere else in the library: in a bool mask, true = may NOT
// attend. A floating-point mask is added to the scaled scores, as everywhere.
struct ATTEND_API MultiHeadAttentionCall {
  enum class Weights { none, averaged, per_head };

  OptionalView key_padding_mask = {};  // [B,Tk], or [Tk] without B
  OptionalView attn_mask = {};         // [Tq,Tk] or [B*heads,Tq,Tk]
  AttentionOptions attention = {};     // causal, window, mask, ... as everywhere; combined with the masks above
  Weights weights = Weights::none;
};

// Without B in the arguments, without B in the results.
struct ATTEND_API MultiHeadAttentionResult {
  Tensor output;  // [B,Tq,E], or without an output projection the heads side by side [B,Tq,heads * d_v]; dtype()
  std::optional<Tensor>
      weights;  // averaged [B,Tq,Tk'] or per head [B,heads,Tq,Tk']; Tk' includes bias_kv's and zero_attention's keys
};

// What forward() keeps for backward(), in dtype(), lse and lse_low in f32; without B if the arguments had none. Tk'
// includes the keys of bias_kv and zero_attention.
struct ATTEND_API MultiHeadAttentionState {
  Tensor queries;       // [B,Tq,heads * d_k]
  Tensor keys;          // [B,Tk',heads * d_k]
  Tensor values;        // [B,Tk',heads * d_v]
  Tensor concat_heads;  // [B,Tq,heads * d_v]
  Tensor lse;           // [B,heads,Tq]
  Tensor lse_low;       // [B,heads,Tq]
};

// Which extra gradients backward() gives; default: none. The masks have them only if they are floating point.
struct ATTEND_API MultiHeadAttentionBackward {
  bool key_padding_mask = false;
  bool attn_mask = false;
  // for MultiHeadAttentionCall::attention; lse is not a result here and has no gradient
  BackwardOptions attention = {};
};

// The requested gradients of options and masks, in their shapes and dtypes.
struct ATTEND_API MultiHeadAttentionGradients : OptionGradients {
  // In the arguments' shapes and dtype(). For self-attention dquery is x's whole gradient, and the others are empty.
  Tensor dquery, dkey, dvalue;
  TensorMap parameters;  // the entries of state_dict(), f32
  std::optional<Tensor> dkey_padding_mask = {}, dattn_mask = {};
};

// torch.nn.MultiheadAttention with batch_first=True.
//
// The keys of bias_kv and zero_attention follow the sequence's own, in that order. Every query sees them whatever
// causal, window, key_lengths or a mask say, and ALiBi does not change their score. Tk in the call (masks, key_lengths,
// bottom_right) counts only the sequence's own keys. With these extra keys, causal, window, key_lengths and ALiBi are
// written out as a mask and a bias, at most [B,heads,Tq,Tk'].
//
// A query that sees no key has context 0 and weights 0, so its output is the output projection's bias. torch gives NaN.
class ATTEND_API MultiHeadAttention {
 public:
  // Draws what nn.MultiheadAttention draws, in its order. If d_k or d_v is not E / heads, which torch lacks: the same
  // order and initialisers with separate projections.
  MultiHeadAttention(std::int64_t embedding_size, std::int64_t heads, Generator& generator,
                     MultiHeadAttentionOptions options = {});

  // Reads a state_dict of nn.MultiheadAttention: in_proj_weight or q_/k_/v_proj_weight; in_proj_bias, out_proj.weight,
  // out_proj.bias, bias_k, bias_v; each name after `prefix`. Sizes, bias and bias_kv come from the tensors; sizes given
  // in the options must agree. State what torch does not store: heads, add_zero_attn, and output_projection = false if
  // there is no out_proj.weight. Throws bad_shape or bad_dtype, naming the entry; bad_value for a missing or unknown
  // entry.
  static MultiHeadAttention from_state_dict(const TensorMap& tensors, std::int64_t heads,
                                            MultiHeadAttentionOptions options = {}, std::string_view prefix = "");
  // What from_state_dict() reads: torch's entries if torch has such a layer. Otherwise separate projections, with
  // in_proj_bias [heads * (2 * d_k + d_v)], and no entries for an output projection that is absent.
  TensorMap state_dict() const;

  // The same layer computing in dtype, f32 or bf16: projections by Linear::to(), bias_kv rounded, attention in dtype.
  // state_dict() keeps names, shapes and f32, with the rounded values. Throws bad_dtype.
  MultiHeadAttention to(DType dtype) const;
  DType dtype() const { return query_.dtype(); }

  // Self-attention: x [T,E] or [B,T,E].
  MultiHeadAttentionResult forward(const View& x, const MultiHeadAttentionCall& call = {}) const {
    return forward(x, x, x, call);
  }
  // Cross-attention: query [B,Tq,E], key [B,Tk,key_size], value [B,Tk,value_size], or all without B.
  MultiHeadAttentionResult forward(const View& query, const View& key, const View& value,
                                   const MultiHeadAttentionCall& call = {}) const;

  // The same; fills `state`.
  MultiHeadAttentionResult forward(const View& x, const MultiHeadAttentionCall& call,
                                   MultiHeadAttentionState& state) const {
    return forward(x, x, x, call, state);
  }
  MultiHeadAttentionResult forward(const View& query, const View& key, const View& value,
                                   const MultiHeadAttentionCall& call, MultiHeadAttentionState& state) const;

  // doutput: the gradient of the result's output, floating point. Other arguments as in forward(). No gradient flows
  // through the result's weights, and call.weights is ignored. Extra memory: that of Linear::backward(). If gradients
  // of several masks or biases are asked for, or of one with extra keys, also one joined tensor of at most
  // [B,heads,Tq,Tk']. Throws bad_shape, bad_dtype; bad_value for a gradient of something absent.
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

}  // namespace attend::inline v1
