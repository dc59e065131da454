// What Python's objects say of themselves, for messages, and the paths that they are.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace attend::python {

// str(object) and repr(object); "<type>" for one that raises then, or whose text is not Unicode (a lone surrogate).
std::string text_of(nanobind::handle object);
std::string repr_of(nanobind::handle object);

// The bytes of a path, also of one that holds others than UTF-8, as os.listdir() gives it. Throws what os.fsencode()
// does.
std::string path_of(nanobind::handle path);

}  // namespace attend::python
