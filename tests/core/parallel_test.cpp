#include "core/parallel.h"

#include <algorithm>
#include <thread>

#include "tests/expect.h"

namespace attend {
namespace {

TEST(Parallel, EveryIndexOnce) {
  for (const std::int64_t count : {0, 1, 7, 1000, 100'003}) {
    std::vector<int> seen(static_cast<std::size_t>(count));
    parallel_for(count, 10, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
    });
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), count);
  }
}

TEST(Parallel, SmallLoopsStayOnTheCallingThread) {
  const std::thread::id caller = std::this_thread::get_id();
  int calls = 0;
  parallel_for(10, 10, [&](std::int64_t begin, std::int64_t end) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 10);
    ++calls;
  });
  EXPECT_EQ(calls, 1);
}

TEST(Parallel, AnExceptionReachesTheCaller) {
  const auto throws = [](std::int64_t begin, std::int64_t) {
    if (begin > 50) throw Error(ErrorCode::bad_value, "from a range");
  };
  test::expect_error(
      ErrorCode::bad_value, [&] { parallel_for(100, 1, throws); }, "from a range");
}

}  // namespace
}  // namespace attend
