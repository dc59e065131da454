// Threads.
#include "attend/threads.h"

#include <nanobind/nanobind.h>

#include "bindings.h"

namespace attend::python {

void bind_threads(nanobind::module_& m) {
  m.def("set_num_threads", &set_num_threads, nanobind::arg("threads"), R"(Let at most that many threads work on a call.

Never more than the processors that the program may use. Results have the same bits for any number.
Raises ValueError below 1.

>>> import attend
>>> attend.set_num_threads(1)
>>> attend.num_threads()
1)");
  m.def("num_threads", &num_threads, "How many threads a call uses at most.");
}

}  // namespace attend::python
