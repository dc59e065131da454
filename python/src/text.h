// What Python's objects say of themselves, for messages, and the paths that they are.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace attend::python {

// str(object) and repr(object); "<type>" for one that raises then, or whose text is not Unicode (a lone surrogate). Of
// a long repr its beginning: a message says what came, and need not hold it all.
std::string text_of(nanobind::handle object);
std::string repr_of(nanobind::handle object);

[[noreturn]] void refuse(const char* function, const std::string& name, const char* expected, nanobind::handle object);
// The argument of that name. Throws TypeError.
template <class T>
T expect(const char* function, const std::string& name, const char* expected, nanobind::handle object) {
  T result{};
  if (!nanobind::try_cast(object, result)) refuse(function, name, expected, object);
  return result;
}
constexpr const char* whole_number = "a whole number";

// The bytes of a path, also of one that holds others than UTF-8, as os.listdir() gives it. Throws what os.fsencode()
// does.
std::string path_of(nanobind::handle path);
// The same path for another process, which may be in another folder: as os.fsdecode() gives it. A name that is no path
// here stays as it is.
nanobind::str lasting_path(const std::string& path);

}  // namespace attend::python
