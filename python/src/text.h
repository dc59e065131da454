// What Python's objects say of themselves, for messages.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace attend::python {

// str(object) and repr(object); "<type>" for one that raises then, or whose text is not Unicode (a lone surrogate).
std::string text_of(nanobind::handle object);
std::string repr_of(nanobind::handle object);

}  // namespace attend::python
