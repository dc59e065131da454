// attention() of sequences that have a KvCache each.
#pragma once

#include <nanobind/nanobind.h>

namespace attend::python {

namespace nb = nanobind;

// Whether it is a list or tuple, as no array is.
bool are_caches(nb::handle x);
// Throws TypeError for what is not a KvCache.
nb::object attention_of_caches(nb::handle q, nb::handle caches, bool return_lse, bool return_lse_low,
                               const nb::kwargs& keywords);

}  // namespace attend::python
