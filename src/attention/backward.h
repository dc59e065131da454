// The arguments of attention_backward(), checked and brought to one form.
#pragma once

#include <optional>

#include "attention/problem.h"

namespace attend {

// Gradients of small options, kept in double until all is summed.
struct OptionGradients {
  std::optional<Tensor> bias;        // in the option's own shape, f32 (f64 for f64 inputs)
  std::vector<double> alibi_slopes;  // [H] or empty: not wanted
  std::vector<double> sinks;         // [H] or empty: not wanted
};

struct BackwardProblem {
  Problem forward;
  View dout, out;            // [B,H,Tq,Dv]
  View lse;                  // [B,H,Tq]
  std::optional<View> dlse;  // [B,H,Tq]
  MutableView dq, dk, dv;    // [B,H,Tq,D], [B,Hkv,Tk,D], [B,Hkv,Tk,Dv]
  OptionGradients options;
};

// The plain path: f64, and what the fused one is held against.
void backward_reference(BackwardProblem& problem);

}  // namespace attend
