// Scaled dot-product attention, softmax(q k^T * scale) v (Vaswani et al. 2017, equation 1), and its gradients.
//
//     const attend::AttentionResult result = attend::attention(q, k, v, {.causal = true});
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "attend/api.h"
#include "attend/tensor.h"

namespace attend::inline v1 {

// Where query 0 stands among the keys: query i is level with key i + offset. causal, window, distance_bias and ALiBi
// use it.
class ATTEND_API Offset {
 public:
  // Any integer.
  explicit constexpr Offset(std::int64_t value) : value_(value) {}
  // Query 0 is level with key 0: PyTorch, JAX, Keras.
  static constexpr Offset top_left() { return Offset(0); }
  // The last query is level with the last key (offset Tk - Tq): FlashAttention, decoding. With key_lengths, it is the
  // batch item's last valid key (offset key_lengths[b] - Tq).
  static constexpr Offset bottom_right() {
    Offset offset(0);
    offset.bottom_right_ = true;
    return offset;
  }
  // The offset for these numbers of queries and (valid) keys.
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

// Drops each weight with probability p, 0 <= p < 1, and scales the others by 1 / (1 - p) (Srivastava et al. 2014). The
// choice depends only on the seed and the position (b,h,i,j), so every path and the backward drop the same. Give a new
// seed for each step. lse is that of the weights before dropout.
struct ATTEND_API Dropout {
  double p = 0;
  std::uint64_t seed = 0;
};

// Additions to plain attention; the defaults add nothing. Views are borrowed for the call. They apply to a score in the
// order of the ONNX operator Attention: scale, softcap, bias, distance_bias and ALiBi, mask.
struct ATTEND_API AttentionOptions {
  // Default 1 / sqrt(D). 0, or a magnitude from 8.2e-39 to 2.3e38; for f64 any finite number.
  std::optional<double> scale = {};
  bool causal = false;  // key j is visible to query i if j <= i + offset
  Window window = {};
  // Default top_left. Required if Tq != Tk and causal, window, distance_bias or alibi_slopes is used.
  std::optional<Offset> offset = {};
  OptionalView mask = {};  // bool, true = may attend; broadcast to [B,H,Tq,Tk]
  OptionalView bias = {};  // floating point, added to the scaled scores; broadcast to [B,H,Tq,Tk]
  // [H,2R+1], floating point: adds distance_bias[h][clamp(j - (i + offset), -R, R) + R] to the scaled scores. Distances
  // beyond R share the outermost number; -inf hides. These are T5's relative positions (Raffel et al. 2020, section
  // 2.1), in memory that does not grow with Tq * Tk.
  OptionalView distance_bias = {};
  OptionalView alibi_slopes = {};  // [H]: adds -slope * |i + offset - j|
  OptionalView sinks = {};         // [H]: one extra score in each row's softmax, without a value
  double softcap = 0;              // c > 0: scaled scores become c * tanh(score / c)
  OptionalView key_lengths = {};   // i64 [B]: only keys j < key_lengths[b] exist
  // i64 [sequences + 1], both or neither, with B = 1: sequences of different lengths one after another along Tq and Tk
  // (FlashAttention's cu_seqlens). Sequence n has queries query_starts[n] <= i < query_starts[n + 1] and sees only its
  // own keys; causal, window, offset, distance_bias and ALiBi count from its first query and key.
  OptionalView query_starts = {};
  OptionalView key_starts = {};
  Dropout dropout = {};
};

// Extra results of attention().
struct ATTEND_API ForwardOptions {
  bool lse_low = false;  // AttentionResult::lse_low
};

// out [B,H,Tq,Dv] has q's dtype. lse [B,H,Tq] is the natural log of the sum of exponentials of a row's scores and its
// sink, in f32 (f64 for f64). lse_low has the same shape and dtype and holds what rounding took from lse: lse + lse_low
// is accurate to 2^-40, relative or absolute. From lse alone, weights are off by half a unit in its last place: 1.5e-5
// of a weight if lse is 500.
struct ATTEND_API AttentionResult {
  Tensor out;
  Tensor lse;
  std::optional<Tensor> lse_low = {};
};

// q [B,H,Tq,D], k [B,Hkv,Tk,D], v [B,Hkv,Tk,Dv] -> out [B,H,Tq,Dv], lse [B,H,Tq] (natural log). All three may lack
// leading axes ([H,T,D] or [T,D]), and so does the result. Any strides. One dtype for all: f32, f64, bf16 or f16. H is
// a multiple of Hkv; query head h reads key head h / (H / Hkv).
//
// A row that sees no key gives out 0 and lse -inf (with a sink: the sink). NaN or infinity in a masked key or value
// never reaches the output. Throws bad_shape, bad_dtype or bad_value with the argument, what was expected and what
// came; out_of_memory. Bits: the same for any number of threads, and for an item alone or in a batch
// (docs/numerics.md).
ATTEND_API AttentionResult attention(const View& q, const View& k, const View& v, const AttentionOptions& options = {},
                                     const ForwardOptions& wanted = {});

// The same into the caller's memory, with any strides: out [B,H,Tq,Dv] in q's dtype (for bf16 and f16 also f32,
// unrounded); lse and lse_low, if given, [B,H,Tq] f32 (f64 for f64). Also throws bad_shape or bad_dtype for out, lse
// and lse_low, and bad_value if they overlap an argument or each other. On an error they are unchanged, except after
// `interrupted`.
ATTEND_API void attention_into(const MutableView& out, const std::optional<MutableView>& lse, const View& q,
                               const View& k, const View& v, const AttentionOptions& options = {},
                               const std::optional<MutableView>& lse_low = {});

// Merges two results over disjoint sets of keys: out_a, out_b [B,H,Tq,Dv] and lse_a, lse_b [B,H,Tq], or fewer axes. out
// = (e^lse_a out_a + e^lse_b out_b) / (e^lse_a + e^lse_b); lse = log(e^lse_a + e^lse_b). A row that saw nothing (lse
// -inf) adds nothing. Only one of the two may include a sink. lse_low_a and lse_low_b, both or neither, keep the shares
// exact for large lse; the result then has lse_low. Throws bad_shape, bad_dtype, bad_value.
ATTEND_API AttentionResult merge(const View& out_a, const View& lse_a, const View& out_b, const View& lse_b,
                                 const std::optional<View>& lse_low_a = {}, const std::optional<View>& lse_low_b = {});
// The same for two results as they are.
ATTEND_API AttentionResult merge(const AttentionResult& a, const AttentionResult& b);

// The requested gradients of options, each in the option's shape and dtype, summed over axes that it was broadcast
// along.
struct ATTEND_API OptionGradients {
  std::optional<Tensor> dbias = {}, dalibi_slopes = {}, dsinks = {}, ddistance_bias = {};
};
// dq, dk and dv have the shapes and dtypes of q, k and v.
struct ATTEND_API AttentionGradients : OptionGradients {
  Tensor dq, dk, dv;
};
// Memory for the gradients, with any strides; optional ones only if wanted.
struct ATTEND_API AttentionGradientViews {
  MutableView dq, dk, dv;
  std::optional<MutableView> dbias = {}, dalibi_slopes = {}, dsinks = {}, ddistance_bias = {};
};

// Extra arguments and results of attention_backward().
struct ATTEND_API BackwardOptions {
  OptionalView dlse = {};  // [B,H,Tq], lse's dtype: the gradient of lse, if something was computed from it
  bool dbias = false;
  bool dalibi_slopes = false;
  bool dsinks = false;
  bool ddistance_bias = false;
  // [B,H,Tq], lse's dtype, from the forward or merge(). Without it an extra pass over q and k (a fifth of the time)
  // recovers it. If lse is merged no pass can, as it covers other keys too; lse alone is then used.
  OptionalView lse_low = {};
};

// The gradients of attention(q, k, v, options) -> out, lse. dout [B,H,Tq,Dv] is out's gradient, in q's dtype. out and
// lse come from the forward with the same arguments; for bf16 and f16 an f32 out is more accurate (docs/numerics.md).
// They may also come from merge(), with k and v one of its sets of keys: dk and dv are then for these keys, and dq is
// their share.
//
// Weights are recomputed from lse, so nothing of size Tq * Tk is stored (docs/backward.md). A row that sees no key has
// gradient 0 and adds nothing. NaN or infinity in a masked key or value reaches no gradient; in a row it reaches no key
// hidden from that row. Same errors as attention(), and bad_value for the gradient of an absent option. Bits: the same
// for any number of threads.
ATTEND_API AttentionGradients attention_backward(const View& dout, const View& q, const View& k, const View& v,
                                                 const View& out, const View& lse, const AttentionOptions& options = {},
                                                 const BackwardOptions& backward = {});

// The same into the caller's memory; `to` says which gradients are wanted. Same errors as attention_into().
ATTEND_API void attention_backward_into(const AttentionGradientViews& to, const View& dout, const View& q,
                                        const View& k, const View& v, const View& out, const View& lse,
                                        const AttentionOptions& options = {}, const std::optional<View>& dlse = {},
                                        const std::optional<View>& lse_low = {});

// How attention() computes.
enum class ATTEND_API Path : std::uint8_t {
  reference,  // plain double-precision loops, a row at a time: f64
  fused,      // tiles of scores that are never stored
  decode,     // few query rows against many keys, each key read once
};
// "reference", "fused", "decode"
ATTEND_API std::string_view name_of(Path path);

// How attention() runs for given shapes; exactly what happens.
struct ATTEND_API AttentionPlan {
  Path path = Path::fused;
  std::string target;             // kernels: baseline, avx2, avx2_vnni, avx512, avx512_vnni, avx512_bf16, neon
  std::int64_t tile_queries = 0;  // query rows of a work item, the heads of a group together
  std::int64_t tile_keys = 0;     // keys in one tile
  std::int64_t key_ranges = 1;    // most work items that share a head's keys; their sums are added in order
  std::int64_t work_items = 0;
  int threads = 1;                 // at most
  std::int64_t scratch_bytes = 0;  // allocated besides out and lse
  double flops = 0;                // useful ones: 2 (D + Dv) for each pair left by causal, window and lengths
  std::string reason;              // why this path
};

// The plan for shapes as in attention(). Reads only the shapes of mask, bias and distance_bias. Same errors as
// attention().
ATTEND_API AttentionPlan plan(const Dims& q, const Dims& k, const Dims& v, DType dtype = DType::f32,
                              const AttentionOptions& options = {});

// The plan of attention_backward(): scratch_bytes exclude the gradients, flops are 5 (D + Dv) for each pair. If some
// |lse| is 2^31 or more, the pass for the sums runs even with lse_low, in extra memory.
ATTEND_API AttentionPlan plan_backward(const Dims& q, const Dims& k, const Dims& v, DType dtype = DType::f32,
                                       const AttentionOptions& options = {}, const BackwardOptions& backward = {});

// Every step of attention(), for inspection. Memory grows with Tq * Tk. f32 (f64 for f64 inputs).
struct ATTEND_API AttentionSteps {
  Tensor scores;         // [B,H,Tq,Tk] q.k, masked keys too
  Tensor scaled_scores;  // [B,H,Tq,Tk] scores * scale
  Tensor logits;         // [B,H,Tq,Tk] input of the softmax, after softcap, biases and ALiBi; -inf where masked
  Tensor weights;        // [B,H,Tq,Tk] softmax over visible keys, 0 for others; after dropout
  Tensor context;        // [B,H,Tq,Dv] weights v: attention()'s out, up to rounding
  Tensor lse;            // [B,H,Tq]
};

// Arguments and errors as in attention(). Computed in double for every dtype.
ATTEND_API AttentionSteps attention_steps(const View& q, const View& k, const View& v,
                                          const AttentionOptions& options = {});

}  // namespace attend::inline v1

#include "attend/options.h"  // for programs that find its contents here
