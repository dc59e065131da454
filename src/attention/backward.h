// The arguments of attention_backward(), checked and brought to one form.
#pragma once

#include <cstdint>
#include <optional>

#include "attention/problem.h"

namespace attend::inline v1 {

// The gradients of options, as they are summed.
struct OptionSums {
  std::optional<MutableView> bias;  // [B,H,Tq,Tk], with strides of 0 where it was broadcast; f32 (f64 for f64 inputs)
  MutableView bias_elements;        // the same, each element once
  // As many as their options have elements; empty: not wanted.
  std::vector<double> distance_bias, alibi_slopes, sinks;

  // Whether one of what is added to the scores is wanted; whether any is.
  bool of_logits() const { return bias || !distance_bias.empty() || !alibi_slopes.empty(); }
  bool any() const { return of_logits() || !sinks.empty(); }

  // Sums of 0, once all memory is there: until then a caller's is untouched.
  void clear();
};

// The lists among them, and what they are gradients of.
struct OptionList {
  std::vector<double> OptionSums::*sums;
  OptionalView AttentionOptions::*option;
  bool BackwardOptions::*wanted;
  std::optional<MutableView> AttentionGradientViews::*to;
};
inline constexpr OptionList option_lists[] = {
    {&OptionSums::distance_bias, &AttentionOptions::distance_bias, &BackwardOptions::ddistance_bias,
     &AttentionGradientViews::ddistance_bias},
    {&OptionSums::alibi_slopes, &AttentionOptions::alibi_slopes, &BackwardOptions::dalibi_slopes,
     &AttentionGradientViews::dalibi_slopes},
    {&OptionSums::sinks, &AttentionOptions::sinks, &BackwardOptions::dsinks, &AttentionGradientViews::dsinks},
};

// Where the keys of a call are a piece of all, and the rows some of all (carried.h): the sums that go on.
struct CarriedGradients {
  enum class Step : std::uint8_t { begin, piece, end };
  Step step = Step::piece;
  MutableView statistics;  // [B,H,Tq,3] f32, of the rows, as kernels::BackwardGroup has them
  MutableView dq;          // [B,H,Tq,row_floats] f32; without elements where dq itself holds the sums
  MutableView dk, dv;      // [B,Hkv,Tk,D] and [B,Hkv,Tk,Dv] f32, rows without gaps; dk without the scale
};

struct BackwardProblem {
  const Problem forward;
  View dout, out;                     // [B,H,Tq,Dv]
  View lse;                           // [B,H,Tq]
  std::optional<View> lse_low, dlse;  // [B,H,Tq]
  MutableView dq, dk, dv;             // [B,H,Tq,D], [B,Hkv,Tk,D], [B,Hkv,Tk,Dv]
  OptionSums options;
  std::optional<CarriedGradients> carried = {};

  // Throws Error; dq, dk and dv are still to be given.
  static BackwardProblem check(const char* function, const View& dout, const View& q, const View& k, const View& v,
                               const View& out, const View& lse, const AttentionOptions& options,
                               const BackwardOptions& backward);
  // Sums of dbias are made in this memory, of the bias's shape and lse's dtype.
  void sum_bias_in(const MutableView& dbias);
};

// Memory for the gradients that are wanted, of the shapes and dtypes of what they are gradients of.
AttentionGradients new_gradients(const View& q, const View& k, const View& v, const AttentionOptions& options,
                                 const BackwardOptions& backward);
AttentionGradientViews views_of(AttentionGradients& gradients);

// Has dbias summed where it goes; or, where that can't hold sums, in memory of its own, which is returned.
std::optional<Tensor> place_bias_sums(BackwardProblem& x, const AttentionGradientViews& to);
// What the gradients of options came to. Gradients are written by now, and no memory is asked for any more.
void store_options(const BackwardProblem& x, const AttentionGradientViews& to, const std::optional<Tensor>& bias_sums);

// Whether sums can be made in that memory: in whole elements, which a caller's need not be.
inline bool is_aligned(const View& x) {
  return reinterpret_cast<std::uintptr_t>(x.raw()) % static_cast<std::uintptr_t>(size_of(x.dtype())) == 0;
}

}  // namespace attend::inline v1
