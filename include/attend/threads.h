// How many threads the library's calls use, a loop on these threads, and how to end a call that takes too long.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "attend/api.h"

namespace attend::inline v0 {

// At most that many threads work on a call from now on, in the whole program; never more than the processors that the
// program may use, than its host's oneTBB allows, or than its host lends. Where the system gives no thread, the calling
// one does the work. Throws bad_value below 1.
ATTEND_API void set_num_threads(int threads);
// How many threads a call from here uses at most.
ATTEND_API int num_threads();

// Threads that the host program lends. Where those of another pool wait by spinning, as OpenMP's do, a second pool must
// share the cores with them: calls between a program's OpenMP loops then take up to twice as long.
struct ATTEND_API HostThreads {
  // How many may work on a loop that this thread begins. The library asks before a loop, on the thread that begins it:
  // the one that makes the call, and also one that run() called work on, as that work may have loops of its own. The
  // answer may be another each time. A loop goes by the one that it got.
  int (*count)();
  // Calls work(context, worker) once for each worker in [0, workers), on as many threads as there are for it, the
  // calling one among them, and returns when all have returned. work does not throw.
  void (*run)(int workers, void (*work)(void* context, int worker), void* context);
};

// From now on the library's work runs on these, in the whole program; null: on oneTBB's, as without this call. *threads
// must live until all calls have ended that began before they were replaced.
ATTEND_API void set_host_threads(const HostThreads* threads);

// The library's own loop, for what a program computes between its calls.
// Calls body(begin, end) for ranges that cover [0, count), from several threads where count > grain, else from the
// calling thread alone. Which thread takes which range is not fixed, so body's results must not depend on the ranges.
// An exception from body reaches the caller, once every running range has ended. Throws interrupted as below.
ATTEND_API void parallel_for(std::int64_t count, std::int64_t grain,
                             const std::function<void(std::int64_t, std::int64_t)>& body);

// While it lives, the library's calls on this thread ask `interrupted` now and then (every 20 ms, between two pieces of
// work, on this thread). Once it says true the call throws ErrorCode::interrupted; what it was to write is then
// unspecified, and what it was to read is unchanged. `interrupted` must not throw. They nest: the inner one is asked.
class ATTEND_API InterruptCheck {
 public:
  explicit InterruptCheck(std::function<bool()> interrupted);
  ~InterruptCheck();
  InterruptCheck(const InterruptCheck&) = delete;
  InterruptCheck& operator=(const InterruptCheck&) = delete;

 private:
  friend bool interrupt_requested();

  std::function<bool()> interrupted_;
  std::chrono::steady_clock::time_point asked_;
  InterruptCheck* outer_;
};

}  // namespace attend::inline v0
