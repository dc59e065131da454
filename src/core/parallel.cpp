#include "core/parallel.h"

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

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

}  // namespace attend
