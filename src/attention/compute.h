// From a checked problem to its result.
#pragma once

#include <functional>
#include <new>
#include <span>
#include <stdexcept>

#include "attention/problem.h"
#include "attention/schedule.h"
#include "core/message.h"

namespace attend::inline v1 {

// A query row of the problem: where it stands in the results, and its steps.
struct ReferenceRow {
  Sequence sequence;
  std::int64_t h, i;
  const kernels::Row& steps;

  // Values to the row of x [B,H,Tq,...], by key from the sequence's first key on.
  void store(const MutableView& x, std::span<const double> values, bool by_key = false) const;
};

// Every query row in any order, by the plain path. Allocates before the first row, not later: so a caller's memory is
// whole or untouched.
void for_each_row(const Problem& problem, const Schedule& schedule,
                  const std::function<void(const ReferenceRow&)>& body);

void compute_into(const Problem& problem, const ResultViews& to);
// The same into new tensors, with as many axes as the arguments had.
AttentionResult compute(const Problem& problem, const ForwardOptions& wanted);

// body(), with out_of_memory where there is no memory for more than the result's tensors.
template <class Body>
auto with_memory(const char* function, const View& q, const View& k, Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {  // a list longer than any memory
  }
  fail(ErrorCode::out_of_memory, function, "no memory for a list (q {}, k {})", q.shape(), k.shape());
}

}  // namespace attend::inline v1
