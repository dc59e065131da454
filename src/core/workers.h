// The threads that a loop's work runs on: workers_tbb.cpp has them, workers_one.cpp is a build without threads.
// src/CMakeLists.txt takes one of the two; set_host_threads() of attend/threads.h is there too.
#pragma once

#include <functional>

namespace attend::inline v1 {

// How many threads may work on a call from this one.
int threads_here();

// body(worker) for each worker in [0, workers), each on a thread of its own where there are as many. What came before
// happens before every body, and every body before what follows. The first exception reaches the caller.
void run_workers(int workers, const std::function<void(int)>& body);

}  // namespace attend::inline v1
