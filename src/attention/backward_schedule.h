// How a backward is computed: the cut into work items, the order of their sums, and the memory that they need.
#pragma once

#include "attention/backward.h"
#include "attention/key_stretches.h"
#include "kernels/targets.h"

namespace attend::inline v1 {

// An item: the query heads of one key head of one sequence, against one stretch of its keys.
struct BackwardSchedule : Stretches {
  Path path = Path::fused;
  const kernels::Target* target = nullptr;
  int workers = 1;
  std::int64_t worker_bytes = 0;   // scratch of one worker's kernels
  std::int64_t bias_floats = 0;    // of one item's own sums of dbias
  std::int64_t distance_sums = 0;  // of one item's own sums of ddistance_bias
  std::int64_t row_floats = 0;     // of a row of dq's sums; 0: they are made in dq itself
  std::int64_t sums_bytes = 0;     // scratch of the pass that finds the rows' sums; 0: lse_low is given
  std::int64_t scratch_bytes = 0;  // of all
};

BackwardSchedule make_backward_schedule(const BackwardProblem& problem);
void run_backward(BackwardProblem& problem, const BackwardSchedule& schedule);

// The plain path, for f64: a stretch is all keys. Bytes of one worker.
void run_reference(BackwardProblem& problem, const BackwardSchedule& schedule);
std::int64_t reference_bytes(const Problem& problem);

}  // namespace attend::inline v1
