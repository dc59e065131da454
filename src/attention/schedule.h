// How a problem is computed: the path, the cut into work items, and the memory that they need.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "attention/problem.h"
#include "kernels/targets.h"

namespace attend::inline v1 {

// Below this, waking a second thread (3 to 8 us) costs more than it saves.
inline constexpr double parallel_flops = 2e6;

// The sequences whose rows meet one range of keys together (decode).
struct SharedRange {
  std::int64_t range = 0;  // its number, the same in each of them
  std::vector<std::int64_t> sequences = {};
};

struct Schedule {
  Path path = Path::reference;
  const kernels::Target* target = nullptr;
  std::int64_t queries = 0;  // of each head in a work item; reference: rows in one
  std::int64_t keys = 0;     // of a decode item, at most
  std::int64_t ranges = 0;   // of keys, in a head, at most
  bool cached = false;       // whether all keys and values of the decode items fit an L2 cache
  std::int64_t items = 0;
  int workers = 1;
  std::int64_t worker_bytes = 0;   // scratch of one worker
  std::int64_t partial_bytes = 0;  // what a decode item leaves
  std::int64_t shared_bytes = 0;   // of all decode items
  const char* reason = "";

  std::vector<std::int64_t> members = {};    // the sequences, where query_starts cut them; else all
  std::vector<SharedRange> shared = {};      // decode items of a key head, where sequences have caches of their own
  std::shared_ptr<Schedule> also = nullptr;  // for sequences that take the other path; runs after this, in its scratch

  std::int64_t scratch_bytes() const {
    const std::int64_t own = workers * worker_bytes + shared_bytes;
    return also ? std::max(own, also->scratch_bytes()) : own;
  }
};

// Throws out_of_memory for sizes that no memory holds.
Schedule make_schedule(const Problem& problem);
// The plain path, for any dtype.
Schedule reference_schedule(const Problem& problem, const char* reason);

// Computes in `scratch`, scratch_bytes() of it, 64-byte aligned.
void run_schedule(const Problem& problem, const Schedule& schedule, const ResultViews& to, void* scratch);

// Which path a sequence takes depends on it and the options alone: not on what else is in the call.
bool takes_decode(const Problem& problem, const Sequence& sequence);
// Whether some sequence does.
bool decodes_some(const Problem& problem);

}  // namespace attend::inline v1
