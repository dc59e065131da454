// The logarithms of the rows' sums, again from q and k: for passes after the forward, where what it gave is not there
// or not exact enough.
#pragma once

#include <optional>

#include "attention/problem.h"

namespace attend::inline v1 {

// Whether some finite lse [B,H,Tq], f32, has that magnitude or more.
bool is_coarse(const View& lse, float magnitude);

// To statistics [B,H,Tq,n], f32: element 0 the binary logarithm, 1 what rounding it lost. By the forward's own path,
// without values; allocates sum_rows_bytes(). logits: as ResultViews has them, where they are wanted.
void sum_rows(const Problem& problem, const MutableView& statistics, const std::optional<MutableView>& logits = {});
std::int64_t sum_rows_bytes(const Problem& problem);

}  // namespace attend::inline v1
