// Scaled dot-product attention: softmax(q k^T * scale) v
// (Vaswani et al. 2017, "Attention Is All You Need", equation 1).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "attend/api.h"
#include "attend/tensor.h"

namespace attend::inline v0 {

// Where query 0 stands among the keys: query i is level with key i + offset.
// Causal, window, distance_bias and ALiBi share it.
class ATTEND_API Offset {
 public:
  // Any integer.
  explicit constexpr Offset(std::int64_t value) : value_(value) {}
  // Query 0 stands at key 0: PyTorch, JAX, Keras.
  static constexpr Offset top_left() { return Offset(0); }
  // The last query stands at the last key, offset Tk - Tq: FlashAttention, decoding. Where key_lengths are given, the
  // last key of a batch item is its last valid one: offset key_lengths[b] - Tq.
  static constexpr Offset bottom_right() {
    Offset offset(0);
    offset.bottom_right_ = true;
    return offset;
  }
  // The offset for that many queries and (valid) keys.
  constexpr std::int64_t resolve(std::int64_t queries, std::int64_t keys) const {
    return bottom_right_ ? keys - queries : value_;
  }

 private:
  std::int64_t value_;
  bool bottom_right_ = false;
};

// Key j is visible to query i if i + offset - left <= j <= i + offset + right; -1 leaves a side open.
struct ATTEND_API Window {
  std::int64_t left = -1;
  std::int64_t right = -1;
};

// Each weight is dropped with probability p, 0 <= p < 1, and the others count 1 / (1 - p) (Srivastava et al. 2014).
// Which ones are dropped depends only on the seed and on the pair's place (b, h, i, j) in the tensors: every path drops
// the same, and so does the backward. The caller gives a new seed for each step. lse is of the weights before any is
// dropped.
struct ATTEND_API Dropout {
  double p = 0;
  std::uint64_t seed = 0;
};

// What may be added to plain attention; the defaults add nothing. Views are borrowed for the call.
// Order of operations on a score: scale, softcap, bias, distance_bias and ALiBi, mask (as the ONNX operator Attention).
struct ATTEND_API AttentionOptions {
  // Default 1 / sqrt(D). 0, or of a magnitude from 8.2e-39 to 2.3e38; f64 takes any finite number.
  std::optional<double> scale = {};
  bool causal = false;  // key j is visible to query i if j <= i + offset
  Window window = {};
  // Default top_left. Must be given where Tq != Tk and causal, window, distance_bias or alibi_slopes make it matter.
  std::optional<Offset> offset = {};
  OptionalView mask = {};  // bool, true = may attend; broadcast to [B,H,Tq,Tk]
  OptionalView bias = {};  // floating point, added to the scaled scores; broadcast to [B,H,Tq,Tk]
  // [H,2R+1], floating point: adds distance_bias[h][clamp(j - (i + offset), -R, R) + R] to the scaled scores, one
  // number for each distance of key j from query i; farther than R they share the outermost. -inf hides. These are the
  // relative positions of T5 (Raffel et al. 2020, section 2.1) in memory that does not grow with Tq * Tk.
  OptionalView distance_bias = {};
  OptionalView alibi_slopes = {};  // [H]: adds -slope * |i + offset - j|
  OptionalView sinks = {};         // [H]: one more score in the softmax of each row, without a value
  double softcap = 0;              // c > 0: scaled scores become c * tanh(score / c)
  OptionalView key_lengths = {};   // i64 [B]: only keys j < key_lengths[b] exist
  // i64 [sequences + 1], both or neither, with B = 1: sequences of different lengths stand one after another along Tq
  // and Tk (FlashAttention's cu_seqlens). Sequence n has the queries query_starts[n] <= i < query_starts[n + 1] and
  // sees its own keys alone; causal, window, offset, distance_bias and ALiBi count from its first query and key.
  OptionalView query_starts = {};
  OptionalView key_starts = {};
  Dropout dropout = {};
};

// What else attention() may be asked for.
struct ATTEND_API ForwardOptions {
  bool lse_low = false;  // AttentionResult::lse_low
};

// out [B,H,Tq,Dv] is in q's dtype. lse [B,H,Tq] is the natural logarithm of the sum of exponentials of a row's scores,
// its sink included, in f32 (f64 for f64 inputs). lse_low, of the same shape and dtype, is what rounding took from lse:
// lse + lse_low is that logarithm to 2^-40 of it or of 1. Weights made again from lse alone are off by half a unit in
// its last place: where lse is 500, by 1.5e-5 of a weight.
struct ATTEND_API AttentionResult {
  Tensor out;
  Tensor lse;
  std::optional<Tensor> lse_low = {};
};

// q [B,H,Tq,D], k [B,Hkv,Tk,D], v [B,Hkv,Tk,Dv] -> out [B,H,Tq,Dv], lse [B,H,Tq] (natural log).
// Any strides; leading axes may be left out of all three ([H,T,D] or [T,D]), and are then left out of the result.
// dtypes f32, f64, bf16, f16, the same for q, k and v.
// H is a multiple of Hkv: query head h reads key head h / (H / Hkv).
// A row with nothing to attend to gives out 0 and lse -inf (with a sink: the sink). NaN or infinity in a masked key or
// value never reaches the output.
// Throws bad_shape, bad_dtype or bad_value, naming the argument, what was expected and what came; out_of_memory.
// Bits: the same for any number of threads, for a batch of 1 and the same item in a larger one (docs/numerics.md).
ATTEND_API AttentionResult attention(const View& q, const View& k, const View& v, const AttentionOptions& options = {},
                                     const ForwardOptions& wanted = {});

// The same into memory of the caller: out [B,H,Tq,Dv] in q's dtype, or for bf16 and f16 in f32, not rounded; lse and
// lse_low [B,H,Tq] f32 (f64 for f64) where wanted; any strides. Besides attention()'s errors: bad_shape or bad_dtype
// for out, lse and lse_low, bad_value where their memory meets an argument's or their own. Where an error is thrown
// they are untouched, unless it is `interrupted`.
ATTEND_API void attention_into(const MutableView& out, const std::optional<MutableView>& lse, const View& q,
                               const View& k, const View& v, const AttentionOptions& options = {},
                               const std::optional<MutableView>& lse_low = {});

// Two results over disjoint sets of keys as one over both: out_a, out_b [B,H,Tq,Dv] with lse_a, lse_b [B,H,Tq], or with
// fewer axes. out = (e^lse_a out_a + e^lse_b out_b) / (e^lse_a + e^lse_b); lse = log(e^lse_a + e^lse_b). A row that saw
// nothing (lse -inf) adds nothing. A sink must be in one of the two alone. lse_low_a and lse_low_b, both or neither,
// make the shares exact where lse is large, and the result has lse_low then. Throws bad_shape, bad_dtype, bad_value.
ATTEND_API AttentionResult merge(const View& out_a, const View& lse_a, const View& out_b, const View& lse_b,
                                 const std::optional<View>& lse_low_a = {}, const std::optional<View>& lse_low_b = {});
// The same of two results as they are.
ATTEND_API AttentionResult merge(const AttentionResult& a, const AttentionResult& b);

// Of the options, where they were asked for: each in that option's shape and dtype, summed over the axes that it was
// broadcast along.
struct ATTEND_API OptionGradients {
  std::optional<Tensor> dbias = {}, dalibi_slopes = {}, dsinks = {}, ddistance_bias = {};
};
// dq, dk and dv have the shapes and dtypes of q, k and v.
struct ATTEND_API AttentionGradients : OptionGradients {
  Tensor dq, dk, dv;
};
// Memory for them, of any strides; the optional ones where they are wanted.
struct ATTEND_API AttentionGradientViews {
  MutableView dq, dk, dv;
  std::optional<MutableView> dbias = {}, dalibi_slopes = {}, dsinks = {}, ddistance_bias = {};
};

// What else attention_backward() may be given, and asked for.
struct ATTEND_API BackwardOptions {
  OptionalView dlse = {};  // [B,H,Tq], lse's dtype: the gradient of lse, where something was computed from it
  bool dbias = false;
  bool dalibi_slopes = false;
  bool dsinks = false;
  bool ddistance_bias = false;
  // [B,H,Tq], lse's dtype, as the forward or merge() gave it. Without it one more pass over q and k finds what it
  // holds, in a fifth of the time. No pass can where lse is merged, as it is of more keys than these: lse is then all.
  OptionalView lse_low = {};
};

// The gradients of attention(q, k, v, options) -> out, lse. dout [B,H,Tq,Dv], in q's dtype, is the gradient of out.
// out and lse are what the forward gave for the same arguments and options. They may also be what merge() gave, with k
// and v one of its sets of keys: dk and dv are then those of these keys, and dq is what these keys add to the whole.
// For bf16 and f16, out may be f32: the gradients are nearer the truth then (docs/numerics.md).
// Nothing of Tq * Tk is stored: weights are computed again from lse (docs/backward.md).
// A row with nothing to attend to has gradient 0 and adds nothing to the others. NaN or infinity in a masked key or
// value reaches no gradient. In a row, it reaches no key that the row does not see.
// Throws what attention() throws; bad_value where a gradient is wanted of an option that is not there. Bits: the same
// for any number of threads.
ATTEND_API AttentionGradients attention_backward(const View& dout, const View& q, const View& k, const View& v,
                                                 const View& out, const View& lse, const AttentionOptions& options = {},
                                                 const BackwardOptions& backward = {});

// The same into memory of the caller; `to` says which gradients are wanted. Errors as of attention_into().
ATTEND_API void attention_backward_into(const AttentionGradientViews& to, const View& dout, const View& q,
                                        const View& k, const View& v, const View& out, const View& lse,
                                        const AttentionOptions& options = {}, const std::optional<View>& dlse = {},
                                        const std::optional<View>& lse_low = {});

// How attention() computes.
enum class ATTEND_API Path : std::uint8_t {
  reference,  // plain loops in double precision, a row at a time: f64
  fused,      // tiles of scores that are never stored
  decode,     // a few query rows against many keys, which are read once
};
// "reference", "fused", "decode".
ATTEND_API std::string_view name_of(Path path);

// What attention() does with arguments of these shapes: what is said here is what runs.
struct ATTEND_API AttentionPlan {
  Path path = Path::fused;
  std::string target;             // of the kernels: baseline, avx2, avx512, avx512_bf16, neon
  std::int64_t tile_queries = 0;  // query rows of a work item, the heads of a group together
  std::int64_t tile_keys = 0;     // keys looked at in one piece
  std::int64_t key_ranges = 1;    // work items that share the keys of a head, at most; their sums are added in order
  std::int64_t work_items = 0;
  int threads = 1;                 // at most
  std::int64_t scratch_bytes = 0;  // allocated besides out and lse
  double flops = 0;                // useful ones: 2 (D + Dv) for every pair that causal, window and lengths leave
  std::string reason;              // why this path
};

// Shapes as in attention(). Of mask, bias and distance_bias nothing but the shape is read. Throws what attention()
// throws.
ATTEND_API AttentionPlan plan(const Dims& q, const Dims& k, const Dims& v, DType dtype = DType::f32,
                              const AttentionOptions& options = {});

// What attention_backward() does with such arguments: scratch_bytes are besides the gradients, flops 5 (D + Dv) a pair.
// Where some lse is 2^31 or more in magnitude, the pass for the sums is made although lse_low is given, in memory of
// its own.
ATTEND_API AttentionPlan plan_backward(const Dims& q, const Dims& k, const Dims& v, DType dtype = DType::f32,
                                       const AttentionOptions& options = {}, const BackwardOptions& backward = {});

// Every step of attention(), for looking at: memory grows with Tq * Tk. f32 (f64 for f64 inputs).
struct ATTEND_API AttentionSteps {
  Tensor scores;         // [B,H,Tq,Tk] q.k, masked keys too
  Tensor scaled_scores;  // [B,H,Tq,Tk] scores * scale
  Tensor logits;         // [B,H,Tq,Tk] what the softmax sees: after softcap, biases and ALiBi; -inf where masked
  Tensor weights;        // [B,H,Tq,Tk] the softmax over the keys that are visible; 0 for the others; after dropout
  Tensor context;        // [B,H,Tq,Dv] weights v: attention()'s out, up to rounding
  Tensor lse;            // [B,H,Tq]
};

// The same arguments and errors as attention(). Computed in double for every dtype.
ATTEND_API AttentionSteps attention_steps(const View& q, const View& k, const View& v,
                                          const AttentionOptions& options = {});

}  // namespace attend::inline v0

#include "attend/options.h"  // which had its place here
