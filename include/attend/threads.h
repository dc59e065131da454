// How many threads the library uses, a parallel loop, and how to interrupt a call.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "attend/api.h"

namespace attend::inline v1 {

// The most threads that work on a call, in the whole program. Never more than the program's processors, and never more
// than the host's oneTBB or HostThreads allow. If the system gives no thread, the calling one does the work. Throws
// bad_value below 1.
ATTEND_API void set_num_threads(int threads);
// The most threads for a call from here.
ATTEND_API int num_threads();

// Threads lent by the host program. Useful if another pool's threads wait by spinning, as OpenMP's do: with two pools
// on the same cores, calls between OpenMP loops can take twice as long.
struct ATTEND_API HostThreads {
  // How many may work on a loop begun by this thread. The library asks before each loop, on the thread that begins it:
  // the caller's, or one on which run() called work. The answer may change; each loop uses its own.
  int (*count)();
  // Calls work(context, worker) once for each worker in [0,workers), on available threads and the calling one, and
  // returns when all are done. work does not throw.
  void (*run)(int workers, void (*work)(void* context, int worker), void* context);
};

// Run the library's work on these threads, in the whole program; null: on oneTBB's, the default. *threads must live
// until all calls begun before its replacement have ended.
ATTEND_API void set_host_threads(const HostThreads* threads);

// The library's own loop: calls body(begin, end) for ranges that cover [0,count), on several threads if count > grain,
// else on the calling thread. Results must not depend on the ranges, as threads take them in any order. An exception
// from body is rethrown once every running range has ended. Throws interrupted as below.
ATTEND_API void parallel_for(std::int64_t count, std::int64_t grain,
                             const std::function<void(std::int64_t, std::int64_t)>& body);

// While it lives, the library's calls on this thread ask `interrupted` every 20 ms, between pieces of work. Once it
// returns true, the call throws ErrorCode::interrupted; its outputs are then unspecified, its inputs unchanged.
// `interrupted` must not throw. If nested, the innermost is asked.
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

}  // namespace attend::inline v1
