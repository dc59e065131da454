// The arguments of attention(), checked and brought to one form.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/attention.h"
#include "kernels/reference.h"

namespace attend {

// The view with axes of size 1 in front, up to four.
View with_four_axes(const View& x);

struct Problem {
  int rank = 4;  // of the arguments; results have as many axes
  std::int64_t B = 1, H = 1, Hkv = 1, Tq = 0, Tk = 0, D = 0, Dv = 0;
  View q, k, v;                           // 4 axes each
  std::optional<View> mask, bias;         // [B,H,Tq,Tk], broadcast
  std::vector<double> alibi_slopes;       // [H] or empty
  std::vector<double> sinks;              // [H] or empty
  std::vector<std::int64_t> key_lengths;  // [B]
  std::vector<std::int64_t> offsets;      // [B]
  double scale = 1;
  double softcap = 0;
  bool causal = false;
  Window window;

  // Throws Error; `function` is the name that its messages begin with.
  static Problem check(const char* function, const View& q, const View& k, const View& v,
                       const AttentionOptions& options);

  // The result's shape without the leading axes that the arguments do not have.
  Dims trim(const Dims& shape) const;
  // What a kernel needs to know of one query head of one batch item.
  kernels::Head head(std::int64_t b, std::int64_t h) const;
};

}  // namespace attend
