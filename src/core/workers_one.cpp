// One thread, the caller's: WebAssembly as browsers give it to any page.
#include "attend/threads.h"
#include "core/workers.h"

namespace attend::inline v1 {

int threads_here() {
  return 1;
}

void run_workers(int workers, const std::function<void(int)>& body) {
  for (int worker = 0; worker < workers; ++worker) body(worker);
}

void set_host_threads(const HostThreads*) {}  // there are none to lend

}  // namespace attend::inline v1
