// A call over a whole sequence, of which there are some rows here and, a piece at a time, some keys: the sums of rows
// are carried on from piece to piece. Pieces that come in the order of the sequence and begin at whole tiles leave the
// bits that one call over all keys gives.
#pragma once

#include <vector>

#include "attention/backward.h"
#include "attention/problem.h"

namespace attend::inline v1 {

// The pairs that rules leave to queries [first, last), last > first.
double visible_pairs(const kernels::Rules& rules, std::int64_t first, std::int64_t last);

// What the positions of the whole decide, without its tensors.
struct Positions {
  std::vector<Sequence> sequences;
  kernels::Rules common;

  // Shapes of the whole, as in attention(); of the options those that are about positions, and numbers. Throws Error.
  static Positions check(const char* function, const Dims& q, const Dims& k, const Dims& v, DType dtype,
                         const AttentionOptions& options);

  // Whether some of these queries may see some of these keys, all counted in the whole.
  bool meet(const Range& queries, const Range& keys) const;
  // The pairs among them that may be seen, of all batch items.
  double pairs(const Range& queries, const Range& keys) const;
  // Adds what of each sequence meets, for queries that stand at `first_row` on and keys that stand at 0 on.
  void add_parts(const Range& queries, std::int64_t first_row, const Range& keys, std::vector<Sequence>& to) const;
  // Adds these queries without keys.
  void add_rows(const Range& queries, std::int64_t first_row, std::vector<Sequence>& to) const;

 private:
  std::optional<Sequence> part(const Sequence& sequence, const Range& queries, const Range& keys) const;
};

// The rows that are here: q [B,H,Tq_local,D], with the options that are tensors of pairs or of heads.
struct OwnRows {
  Problem base;  // as if all keys were here

  // k and v: some keys, of which the shape but for Tk counts. mask and bias broadcast to [B,H,Tq_local,Tk]. Throws
  // Error.
  static OwnRows check(const char* function, const View& q, const View& k, const View& v, std::int64_t Tk,
                       const AttentionOptions& options);

  // The rest of a backward's arguments, for these rows as if all keys were here.
  BackwardProblem check_backward(const char* function, const View& dout, const View& out, const View& lse,
                                 const AttentionOptions& options, const BackwardOptions& backward) const;

  // These parts of them and of the keys k [B,Hkv,n,D], v [B,Hkv,n,Dv], which stand at keys.begin on in the whole.
  Problem with(const View& k, const View& v, const Range& keys, std::vector<Sequence> parts) const;
};

// ---- The forward ----

// [B,H,Tq_local,Dv + 3] f32: no key came yet.
Tensor begin_sums(const OwnRows& rows);
// The keys of a problem that OwnRows::with() made, to the sums of its rows.
void add_keys(const Problem& part, const MutableView& sums);
// What sums of the parts' rows come to.
void finish_sums(const Problem& part, const MutableView& sums, const ResultViews& to);

// ---- The backward ----

// Sums of dk or dv, f32 without gaps, times a factor, to `to` of the same shape, whose heads are without gaps each. The
// sums become theirs times the factor.
void store_key_gradients(const MutableView& sums, float factor, const MutableView& to);

}  // namespace attend::inline v1
