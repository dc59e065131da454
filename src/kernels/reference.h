// Attention as a textbook has it: plain loops in double precision, one query row at a time.
//
// It is the oracle that every faster kernel is held against, the path for f64, and the source of the steps that
// attention_steps() shows. A row needs O(Tk) memory.
#pragma once

#include <cstdint>
#include <optional>

#include "attend/tensor.h"
#include "core/signed_vector.h"
#include "kernels/rules.h"

namespace attend::inline v1::kernels {

// A matrix as a kernel sees it; strides count elements.
struct Matrix {
  const void* data = nullptr;  // null: there is none
  DType dtype = DType::f32;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
};

// The loops over doubles take so many keys at a time: their sums do not wait for each other, and compilers turn them
// into vectors.
inline constexpr std::int64_t keys_together = 8;

// One query head of one batch item.
struct Head {
  std::int64_t Tk = 0, D = 0, Dv = 0;  // rules.key_length is at most Tk
  Matrix q;                            // [Tq,D]
  Matrix k;                            // [Tk,D]
  // The keys in double, keys_together of them side by side: [Tk / keys_together, D, keys_together]. Null: not made.
  const double* key_panels = nullptr;
  Matrix v;              // [Tk,Dv]
  Matrix mask;           // [Tq,Tk] bool, true = may attend
  Matrix bias;           // [Tq,Tk]
  Matrix distance_bias;  // [1,2 * reach + 1]
  std::int64_t reach = 0;
  Rules rules;
  double alibi_slope = 0;
  std::optional<double> sink;
};

// The steps of one query row. Reused from row to row: the vectors keep their memory.
struct Row {
  SignedVector<double> query;          // [D]
  SignedVector<double> scores;         // [Tk] q.k
  SignedVector<double> scaled_scores;  // [Tk] q.k * scale
  SignedVector<double> logits;         // [Tk] what the softmax sees; -infinity where the key is not attended to
  SignedVector<double> weights;        // [Tk] after dropout
  SignedVector<double> context;        // [Dv]
  double lse = 0, lse_low = 0;  // natural log of the sum of exp(logits), the sink included; what rounding it lost
  double sink_weight = 0;       // 0 without a sink

  SignedVector<double> copies;  // [keys_together, max(D, Dv)] of keys or values, where they are not read in place

  // Makes room, so that no row of a head of these sizes allocates.
  void resize(std::int64_t Tk, std::int64_t D, std::int64_t Dv);
};

// Query row i of the head, all steps.
void reference_row(const Head& head, std::int64_t i, Row& row);

// What the softmax sees of one pair; -infinity where the key is not attended to.
double reference_logit(const Head& head, std::int64_t i, std::int64_t j);

// What a row's backward starts from.
struct RowGradient {
  SignedVector<double> dcontext;  // [Dv] the gradient of the row's result
  // What the forward gave: weights are exp(logit - lse - lse_low). Without lse_low the row's own sum is found again.
  double lse = 0;
  std::optional<double> lse_low = {};
  double delta = 0;  // dcontext . context, less the gradient of lse
  // The results.
  SignedVector<double> dlogits;  // [Tk] 0 where the key is not attended to
  SignedVector<double> dquery;   // [D]
  double dsink = 0;
};

// Step 4 to 1 of query row i backwards; its share is added to dk [Tk,D] and dv [Tk,Dv], row-major. `row` is scratch.
void reference_row_backward(const Head& head, std::int64_t i, Row& row, RowGradient& gradient, double* dk, double* dv);

}  // namespace attend::inline v1::kernels
