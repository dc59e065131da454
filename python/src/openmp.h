// PyTorch's threads.
#pragma once

namespace attend::python {

// Lets the library work on the threads of the OpenMP that PyTorch has loaded, if it is GCC's. They spin for some
// milliseconds after each of PyTorch's own loops: attention of 8 x 12 x 128 x 32 between two matrix products took 2.8
// ms on oneTBB's threads and 1.4 ms alone (two Zen 4 cores). torch.set_num_threads then counts for attend too.
void use_openmp_threads();

// In a process that is forked from now on there is no such use: libgomp would wait for threads that were left behind.
void leave_openmp_threads_in_forks();

}  // namespace attend::python
