#include "openmp.h"

#include <dlfcn.h>
#include <pthread.h>

#include "attend/threads.h"

namespace attend::python {

namespace {

// Of GCC's OpenMP, libgomp: what `#pragma omp parallel` is compiled to (its manual, "Implementing PARALLEL construct"),
// and two functions of the OpenMP API.
struct OpenMp {
  void (*parallel)(void (*body)(void*), void* data, unsigned threads, unsigned flags);
  int (*max_threads)();
  int (*thread)();
  int (*threads)();
};

OpenMp openmp;
bool forked = false;  // from a process that may have had OpenMP's threads

struct Loop {
  int workers;
  void (*work)(void* context, int worker);
  void* context;
};

// One thread of the team. A nested region has fewer than it asked for.
void take_workers(void* data) {
  const Loop& loop = *static_cast<const Loop*>(data);
  for (int worker = openmp.thread(); worker < loop.workers; worker += openmp.threads()) loop.work(loop.context, worker);
}

const HostThreads openmp_threads{
    .count = [] { return openmp.max_threads(); },
    .run =
        [](int workers, void (*work)(void*, int), void* context) {
          Loop loop{workers, work, context};
          openmp.parallel(take_workers, &loop, static_cast<unsigned>(workers), 0);
        },
};

template <class Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function;
}

}  // namespace

void leave_openmp_threads_in_forks() {
  pthread_atfork(nullptr, nullptr, [] {
    forked = true;
    set_host_threads(nullptr);
  });
}

void use_openmp_threads() {
  if (forked) return;
  void* library = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD);  // only where it is loaded already
  if (!library) return;
  if (find(library, "GOMP_parallel", openmp.parallel) && find(library, "omp_get_max_threads", openmp.max_threads) &&
      find(library, "omp_get_thread_num", openmp.thread) && find(library, "omp_get_num_threads", openmp.threads)) {
    set_host_threads(&openmp_threads);
  }
}

}  // namespace attend::python
