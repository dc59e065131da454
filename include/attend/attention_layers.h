// Attention with parameters: one head, and PyTorch's nn.MultiheadAttention, initialised as these are.
//
// backward() stands beside each forward(): given the gradient of the forward's result, the gradients of its arguments
// and parameters. There is no tape. What a backward needs of its forward is an argument: the forward's own, and where
// more is needed a struct that the forward fills and anyone may look at. Layers do not change; one with new parameters
// is made from them. Gradients of parameters are f32. Bits: the same for any number of threads.
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

namespace attend::inline v0 {

struct ATTEND_API SelfAttentionOptions {
  bool qkv_bias = false;
};

// What SelfAttention::forward() keeps for backward(), in its dtype(); lse and lse_low in f32. N: T, or B,T.
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
  LinearGradients query, key, value;  // of a layer from_parameters(): of w_query [E,D] as [D,E], and so on
};

// One head: queries, keys and values of one sequence, without an output projection.
class ATTEND_API SelfAttention {
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

struct ATTEND_API MultiHeadAttentionOptions {
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
struct ATTEND_API MultiHeadAttentionCall {
  enum class Weights { none, averaged, per_head };

  OptionalView key_padding_mask = {};  // [B,Tk], or [Tk] without B
  OptionalView attn_mask = {};         // [Tq,Tk] or [B*heads,Tq,Tk]
  AttentionOptions attention = {};     // causal, window, mask, ... as everywhere; all of them hold together
  Weights weights = Weights::none;
};

// Without B in the arguments, without B in the results.
struct ATTEND_API MultiHeadAttentionResult {
  Tensor output;  // [B,Tq,E], or the concatenated heads [B,Tq,heads * d_v] without an output projection; dtype()
  std::optional<Tensor>
      weights;  // averaged [B,Tq,Tk'] or per head [B,heads,Tq,Tk']; Tk' counts bias_kv and zero_attention
};

// What MultiHeadAttention::forward() keeps for backward(), in its dtype(), lse and lse_low in f32; without B where the
// arguments had none. Tk' counts the keys of bias_kv and zero_attention.
struct ATTEND_API MultiHeadAttentionState {
  Tensor queries;       // [B,Tq,heads * d_k]
  Tensor keys;          // [B,Tk',heads * d_k]
  Tensor values;        // [B,Tk',heads * d_v]
  Tensor concat_heads;  // [B,Tq,heads * d_v]
  Tensor lse;           // [B,heads,Tq]
  Tensor lse_low;       // [B,heads,Tq]
};

// Which gradients of a call's tensors backward() gives besides; none by default. Those of key_padding_mask and
// attn_mask exist where these are floating point.
struct ATTEND_API MultiHeadAttentionBackward {
  bool key_padding_mask = false;
  bool attn_mask = false;
  BackwardOptions attention = {};  // of MultiHeadAttentionCall::attention; lse is no result here, and has no gradient
};

// Those of the options, and of the two masks, in the shapes and dtypes of the call's, where they were asked for.
struct ATTEND_API MultiHeadAttentionGradients : OptionGradients {
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
class ATTEND_API MultiHeadAttention {
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

}  // namespace attend::inline v0
