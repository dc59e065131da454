#include "core/parallel.h"

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>

namespace attend {

void parallel_for(std::int64_t count, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (count <= 0) return;
  if (count <= grain) return body(0, count);
  // oneTBB synchronises inside its own library, where ThreadSanitizer does not see it. These two words say the same in
  // code that it does see: what came before the loop happens before every range, and every range before what follows.
  std::atomic<int> started{0};
  std::atomic<int> finished{0};
  started.store(1, std::memory_order_release);
  tbb::parallel_for(tbb::blocked_range<std::int64_t>(0, count, grain),
                    [&](const tbb::blocked_range<std::int64_t>& range) {
                      started.load(std::memory_order_acquire);
                      body(range.begin(), range.end());
                      finished.fetch_add(1, std::memory_order_release);
                    });
  finished.load(std::memory_order_acquire);
}

int available_threads() {
  const std::size_t allowed = tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  return static_cast<int>(std::min(allowed, static_cast<std::size_t>(tbb::this_task_arena::max_concurrency())));
}

void parallel_items(std::int64_t count, int workers, const std::function<void(int, std::int64_t)>& body) {
  if (workers <= 1) {
    for (std::int64_t item = 0; item < count; ++item) body(0, item);
    return;
  }
  std::atomic<std::int64_t> next{0};
  // One range a worker; each takes items until there are none, so that a worker who comes late costs nothing.
  const auto range = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t worker = begin; worker < end; ++worker) {
      for (std::int64_t item = next++; item < count; item = next++) body(static_cast<int>(worker), item);
    }
  };
  parallel_for(workers, 1, std::ref(range));  // a reference: a copy of the captures would be allocated
}

}  // namespace attend
