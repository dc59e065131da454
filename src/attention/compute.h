// From a checked problem to its result.
#pragma once

#include <new>
#include <stdexcept>

#include "attention/problem.h"
#include "core/message.h"

namespace attend {

// Of lse, and of sums: the dtype that goes with q's.
inline DType statistics_dtype(const View& q) {
  return q.dtype() == DType::f64 ? DType::f64 : DType::f32;
}

// out [B,H,Tq,Dv], lse [B,H,Tq].
void compute_into(const Problem& problem, const MutableView& out, const MutableView& lse);
// The same into new tensors, with as many axes as the arguments had.
AttentionResult compute(const Problem& problem);

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

}  // namespace attend
